// Compiling in a process that may have hardly anything: no descriptors, no more threads.
#include "jit/compile/compiler.h"
#include "jit/compile/nvrtc.h"
#include "tests/support/catch.h"
#include "tests/support/limited_process.h"

namespace kiln {
namespace {

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

TEST_CASE("a compile needs no thread of its own", "[compiler]") {
  set_nvrtc_search({.python_paths = {KILN_TEST_SITE_PACKAGES}});
  const std::string cubin = compile_small().cubin;
  CHECK(testing::holds_in_child(
      [&] { return testing::forbid_threads() && compile_small().cubin == cubin; }));
}

}  // namespace kiln
