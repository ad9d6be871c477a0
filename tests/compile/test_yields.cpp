// These tests set where warps yield in machine code of NVRTC's.
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "jit/compile/compiler.h"
#include "tests/support/catch.h"

namespace kiln {
namespace {

// Four times 64 multiply-adds, which nothing keeps apart.
constexpr const char* kRun =
    "extern \"C\" __global__ void __launch_bounds__(128) run(float* p, float by) {\n"
    "  float x[64];\n"
    "  for (int i = 0; i < 64; ++i) x[i] = p[i * 128 + threadIdx.x];\n"
    "  for (int j = 0; j < 4; ++j)\n"
    "    for (int i = 0; i < 64; ++i) x[i] = x[i] * by + 3.0f;\n"
    "  for (int i = 0; i < 64; ++i) p[i * 128 + threadIdx.x] = x[i];\n"
    "}\n";

CompileResult compile_run(std::span<const YieldRule> rules, std::string_view arch = "sm_90a") {
  set_nvrtc_search({.python_paths = {KILN_TEST_SITE_PACKAGES}});
  return compile(
      {.name = "/kiln/kernel.cu", .source = kRun, .arch = arch, .entry = "run", .yields = rules});
}

TEST_CASE("rules change bits of the instructions that they name, and no others", "[yields]") {
  const YieldRule rules[] = {{YieldKind::multiply_add, 2}};
  const CompileResult plain = compile_run({}), ruled = compile_run(rules);
  CHECK(ruled.resources.warnings.empty());
  CHECK(ruled.ptx == plain.ptx);
  REQUIRE(ruled.cubin.size() == plain.cubin.size());
  int changed = 0;
  for (std::size_t at = 8; at + 8 <= plain.cubin.size(); at += 8) {
    std::uint64_t before, after, low;
    std::memcpy(&before, plain.cubin.data() + at, 8);
    std::memcpy(&after, ruled.cubin.data() + at, 8);
    if (before == after) continue;
    ++changed;
    std::memcpy(&low, plain.cubin.data() + at - 8, 8);
    CHECK((low & 0x1ff) == 0x23);
    CHECK(((before ^ after) & ~(1ull << 45 | 15ull << 58)) == 0);
  }
  CHECK(changed >= 64);
  CHECK(changed <= 256);
}

TEST_CASE("rules are for sm_90a alone", "[yields]") {
  const YieldRule rules[] = {{YieldKind::multiply_add, 2}};
  for (const char* arch : {"sm_90", "sm_80", "compute_80"}) {
    CHECK_THROWS_AS(compile_run(rules, arch), std::invalid_argument);
  }
}

TEST_CASE("PTX alone has no rules", "[yields]") {
  const YieldRule rules[] = {{YieldKind::multiply_add, 2}};
  const CompileResult result = compile_run(rules, "compute_90a");
  CHECK(result.cubin.empty());
  CHECK(result.resources.warnings.empty());
}

}  // namespace
}  // namespace kiln
