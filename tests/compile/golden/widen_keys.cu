#include "/kiln/widen_keys/widen_keys.cuh"

struct Config {
  using Element = kiln::bf16;
  using CacheElement = kiln::i8;
};
extern "C" __global__ void __launch_bounds__(kiln::kWidenThreads)
kiln_kernel(const __grid_constant__ kiln::WidenParams args) {
  kiln::widen_keys<Config>(args);
}
