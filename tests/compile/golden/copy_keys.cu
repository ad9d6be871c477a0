#include "/kiln/copy_keys/copy_keys.cuh"

struct Config {
  using Element = kiln::bf16;
  using CacheElement = kiln::i8;
};
extern "C" __global__ void __launch_bounds__(kiln::kCopyKeysThreads)
kiln_kernel(const __grid_constant__ kiln::CopyParams args) {
  kiln::copy_keys<Config>(args);
}
