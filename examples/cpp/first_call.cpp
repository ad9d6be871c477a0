// Attention from C++: a first call that compiles or reads the cache, then a Plan launched again.
#include <cuda_runtime_api.h>
#include <kiln/control.h>
#include <kiln/kiln.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

namespace {

constexpr std::int64_t kLength = 200, kDim = 64;

std::uint16_t to_bf16(float x) {  // exact for the small integers used here
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return static_cast<std::uint16_t>(bits >> 16);
}

kiln::TensorView on_device(const std::vector<std::uint16_t>& host) {
  void* data = nullptr;
  cudaMalloc(&data, host.size() * 2);
  cudaMemcpy(data, host.data(), host.size() * 2, cudaMemcpyHostToDevice);
  return kiln::contiguous_view(data, kiln::DType::bf16, 0, 1, kLength, 1, kDim);
}

}  // namespace

int main() try {
  // q = 0: every visible key weighs the same, so that row i is the mean of v[0..i]. v[j] = j % 2.
  const std::vector<std::uint16_t> zeros(kLength * kDim);
  std::vector<std::uint16_t> values(kLength * kDim), result(kLength * kDim, 0x7fff);
  for (std::int64_t i = 0; i < kLength * kDim; ++i) {
    values[i] = to_bf16(static_cast<float>(i / kDim % 2));
  }
  const kiln::TensorView q = on_device(zeros), k = on_device(zeros), v = on_device(values);
  const kiln::TensorView out = on_device(result);

  const kiln::AttentionOptions options{.causal = true};
  kiln::flash_attention(q, k, v, out, {}, options);
  std::printf("after the first call: %s\n", kiln::stats().c_str());
  const kiln::Plan plan = kiln::plan_flash_attention(q, k, v, out, {}, options);
  plan.launch({q.data, k.data, v.data, out.data});

  const cudaError_t error =
      cudaMemcpy(result.data(), out.data, result.size() * 2, cudaMemcpyDeviceToHost);
  double worst = error == cudaSuccess ? 0 : INFINITY;
  for (std::int64_t row = 0; row < kLength; ++row) {
    const std::uint32_t bits = static_cast<std::uint32_t>(result[row * kDim]) << 16;
    float mean;
    std::memcpy(&mean, &bits, sizeof(mean));
    worst = std::fmax(worst,
                      std::isnan(mean) ? INFINITY : std::fabs(mean - (row + 1) / 2 / (row + 1.0)));
  }
  std::printf("largest error %.4f: %s\n", worst, worst < 0.004 ? "ok" : "WRONG");
  return worst < 0.004 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
