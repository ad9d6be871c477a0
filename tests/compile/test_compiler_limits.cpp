// Compiling in a process that may have hardly anything: no descriptors, threads or stack.
#include "jit/compile/compiler.h"
#include "jit/compile/deep_stack.h"
#include "jit/compile/nvrtc.h"
#include "tests/support/catch.h"
#include "tests/support/limited_process.h"

namespace kiln {
namespace {

// The thread-local variables of a program lie in it, too: here 92 of the 160 KiB.
constexpr std::size_t kSmallStack = std::size_t{160} << 10;

CompileResult compile_small() {
  return compile({.name = "/kiln/kernel.cu",
                  .source = "extern \"C\" __global__ void one(float* p) { *p = 1; }\n",
                  .headers = {},
                  .arch = "sm_80",
                  .entry = "one"});
}

}  // namespace

TEST_CASE("a compile needs no descriptor beside NVRTC's own", "[compiler]") {
  set_nvrtc_search({.python_paths = {KILN_TEST_SITE_PACKAGES}});
  const std::string cubin = compile_small().cubin;  // NVRTC is loaded from here on
  for (int left : {1, 2, 3}) {
    INFO(left);
    CHECK(testing::holds_in_child([&] {
      testing::take_descriptors(left);
      return compile_small().cubin == cubin;
    }));
  }
}

TEST_CASE("a compile needs no deep stack", "[compiler]") {
  set_nvrtc_search({.python_paths = {KILN_TEST_SITE_PACKAGES}});
  const std::string cubin = compile_small().cubin;
  CHECK(testing::holds_in_child([&] {
    return testing::holds_on_stack(kSmallStack, [&] { return compile_small().cubin == cubin; });
  }));
  CHECK(testing::holds_in_child([&] {  // an error passes through
    return testing::holds_on_stack(kSmallStack, [&] {
      try {
        on_deep_stack([] { throw 7; });
      } catch (int value) {
        return value == 7;
      }
      return false;
    });
  }));
}

TEST_CASE("a compile needs no thread of its own", "[compiler]") {
  set_nvrtc_search({.python_paths = {KILN_TEST_SITE_PACKAGES}});
  const std::string cubin = compile_small().cubin;
  CHECK(testing::holds_in_child(
      [&] { return testing::forbid_threads() && compile_small().cubin == cubin; }));
}

}  // namespace kiln
