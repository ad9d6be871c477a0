#include "/kiln/quantize/quantize.cuh"

struct Config {
  using Input = kiln::f16;
  using Output = kiln::f8_e5m2;
  static constexpr kiln::Activation kGate = kiln::Activation::silu;
  static constexpr bool kPowerOfTwo = true, kCounts = true, kTurns = false, kKeeps = false, kHardware = true;
  static constexpr int kVector = 8, kLanes = 8, kCluster = 1, kVectors = 2;
};

extern "C" __global__ void
__launch_bounds__(kiln::quantize_threads(Config::kLanes), 1)
kiln_kernel(const __grid_constant__ kiln::QuantizeParams args) {
  kiln::quantize_groups<Config>(args);
}
