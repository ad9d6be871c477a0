// Reading ptxas -v: logs as NVRTC 12.4 and 13.0 write them.
#include "jit/compile/compile_log.h"

#include "tests/support/catch.h"

namespace kiln {
namespace {

constexpr const char* kLog =
    "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine "
    "register count at entry.\n"
    "ptxas info    : 0 bytes gmem\n"
    "ptxas info    : Compiling entry function 'other' for 'sm_90a'\n"
    "ptxas info    : Function properties for other\n"
    "ptxas         .     21720 bytes stack frame, 64196 bytes spill stores, 82888 bytes spill "
    "loads\n"
    "ptxas info    : Used 255 registers, used 0 barriers, 21720 bytes cumulative stack size\n"
    "ptxas info    : Compiling entry function 'kernel' for 'sm_90a'\n"
    "ptxas info    : Function properties for kernel\n"
    "ptxas         .     16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads\n"
    "ptxas info    : Used 168 registers, used 2 barriers, 200 bytes cumulative stack size, 400 "
    "bytes "
    "smem, 360 bytes cmem[0]\n"
    "ptxas info    : Compile time = 16.095 ms\n"
    "ptxas info    : Function properties for _Z6helperPf\n"
    "ptxas         .     32 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads\n";

TEST_CASE("the named kernel's resources are read", "[compile_log]") {
  const auto use = parse_compile_log(kLog, "kernel");
  REQUIRE(use.has_value());
  CHECK(use->registers == 168);
  CHECK(use->static_shared_bytes == 400);
  CHECK(use->stack_bytes == 200);
  CHECK(use->spill_store_bytes == 12);  // with those of the function that was not inlined
  CHECK(use->spill_load_bytes == 16);
}

TEST_CASE("another kernel's resources are its own", "[compile_log]") {
  const auto use = parse_compile_log(kLog, "other");
  REQUIRE(use.has_value());
  CHECK(use->registers == 255);
  CHECK(use->static_shared_bytes == 0);
  CHECK(use->spill_store_bytes == 64196);
}

TEST_CASE("performance warnings are kept word for word", "[compile_log]") {
  const auto use = parse_compile_log(kLog, "kernel");
  REQUIRE(use.has_value());
  REQUIRE(use->warnings.size() == 1);
  CHECK(use->warnings[0] == std::string(kLog, std::string(kLog).find('\n')));
}

TEST_CASE("a kernel that the log does not know is told from one without resources",
          "[compile_log]") {
  CHECK_FALSE(parse_compile_log(kLog, "kern").has_value());
  CHECK_FALSE(parse_compile_log("", "kernel").has_value());
}

TEST_CASE("the log of 12.4, and one that ends without a newline, are read", "[compile_log]") {
  const auto use = parse_compile_log(
      "ptxas info    : Compiling entry function 'k' for 'sm_80'\n"
      "ptxas info    : Function properties for k\n"
      "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 10 registers, 400 bytes smem, 360 bytes cmem[0]",
      "k");
  REQUIRE(use.has_value());
  CHECK(use->registers == 10);
  CHECK(use->static_shared_bytes == 400);
  CHECK(use->stack_bytes == 0);
  CHECK(use->warnings.empty());
}

}  // namespace
}  // namespace kiln
