// Attention from C++: a first call that compiles or reads the cache, then a Plan launched again.
#include <kiln/control.h>
#include <kiln/kiln.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>

#include "memory.h"

constexpr std::int64_t kLength = 200, kDim = 64;

std::uint16_t to_bf16(float x) { return std::bit_cast<std::uint32_t>(x) >> 16; }
float from_bf16(std::uint16_t x) { return std::bit_cast<float>(std::uint32_t{x} << 16); }

// [batch 1, length, heads 1, dim], row j filled with j % period; both are exact in bfloat16.
kiln::TensorView tensor(int period) {
  auto* const data = static_cast<std::uint16_t*>(allocate(kLength * kDim * 2));
  for (std::int64_t i = 0; i < kLength * kDim; ++i) {
    data[i] = to_bf16(static_cast<float>(i / kDim % period));
  }
  auto view = kiln::contiguous_view(data, kiln::DType::bf16, 0, 1, kLength, 1, kDim);
  view.device_type = on_gpu() ? kiln::DeviceType::cuda : kiln::DeviceType::cpu;
  return view;
}

int main() try {
  if (!on_gpu()) kiln::set_device("emulator");
  std::printf("computing on %s\n", on_gpu() ? "cuda:0" : "the emulated device");
  // q = k = 0: every visible key weighs the same, so that row i is the mean of v[0..i].
  const auto q = tensor(1), k = tensor(1), v = tensor(2), out = tensor(1), again = tensor(1);
  const kiln::AttentionOptions options{.causal = true};
  kiln::flash_attention(q, k, v, out, /*lse=*/{}, options);
  std::printf("after the first call: %s\n", kiln::stats().c_str());

  // A plan has its arguments checked and its kernel loaded; a launch takes pointers alone.
  const kiln::Plan plan = kiln::plan_flash_attention(q, k, v, out, {}, options);
  plan.launch({q.data, k.data, v.data, again.data});

  double worst = finish() ? 0 : INFINITY;
  for (const auto& result : {out, again}) {
    for (std::int64_t row = 0; row < kLength; ++row) {
      const float got = from_bf16(static_cast<std::uint16_t*>(result.data)[row * kDim]);
      const double error = std::fabs(got - (row + 1) / 2 / (row + 1.0));
      if (!(error <= worst)) worst = error;  // a NaN too
    }
  }
  std::printf("largest error %.4f: %s\n", worst, worst < 0.004 ? "ok" : "WRONG");
  return worst < 0.004 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
