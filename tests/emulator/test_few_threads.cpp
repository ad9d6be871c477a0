// A launch in a process that may have no more threads.
#include <vector>

#include "runtime/emulator/machine/emulated_device.h"
#include "tests/emulator/ptx_text.h"
#include "tests/support/limited_process.h"

namespace kiln::runtime::emulator {
namespace {

constexpr unsigned kBlocks = 64;

// Each block writes its number.
bool runs() {
  std::vector<std::uint32_t> numbers(kBlocks);
  const auto address = reinterpret_cast<std::uint64_t>(numbers.data());
  const MemorySpan span{.address = address, .bytes = kBlocks * 4, .written = true};
  const std::string text = kernel(
      ".reg .b64 %d<4>; .reg .b32 %r<2>;\nld.param.u64 %d0, [p]; mov.u32 %r0, %ctaid.x;\n"
      "mul.wide.u32 %d1, %r0, 4; add.s64 %d2, %d0, %d1; add.u32 %r1, %r0, 1;\n"
      "st.global.u32 [%d2], %r1;");
  run({.ptx = text,
       .entry = {},
       .arch = {},
       .shape = {.grid = {kBlocks, 1, 1}, .block = {1, 1, 1}},
       .arguments = std::as_bytes(std::span(&address, 1)),
       .spans = {&span, 1},
       .options = {.workers = 8}});
  for (unsigned i = 0; i < kBlocks; ++i) {
    if (numbers[i] != i + 1) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("a launch works on the threads that it gets", "[few_threads]") {
  CHECK(runs());
  CHECK(kiln::testing::holds_in_child([] { return kiln::testing::forbid_threads() && runs(); }));
}

}  // namespace kiln::runtime::emulator
