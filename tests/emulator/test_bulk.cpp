// Bulk copies: both schedules, completion, and what misuse reports.
#include <algorithm>

#include "tests/emulator/async_kernel.h"
#include "tests/support/catch.h"

namespace kiln::testing {
namespace {

using runtime::emulator::Schedule;

AsyncKernel bulk_load() {
  AsyncKernel kernel;
  kernel.body = kInitOne + R"(
  @%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%bar], 1024;
  @%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%s], [%in], 1024, [%bar];
)" + kWaitOne + "mov.u32 %r20, 256;\n" +
                kDump;
  return kernel;
}

const std::string kStore =
    "@%p0 cp.async.bulk.global.shared::cta.bulk_group [%out], [%s], 1024;\n"
    "@%p0 cp.async.bulk.commit_group;\n";

}  // namespace

TEST_CASE("a bulk load completes its mbarrier", "[emulator]") {
  AsyncKernel kernel = bulk_load();
  for (const Schedule schedule : {Schedule::eager, Schedule::late}) {
    kernel.options.schedule = schedule;
    kernel.run();
    for (std::size_t i = 0; i < 256; ++i) CHECK(kernel.output[i] == kernel.input[i]);
  }
}

TEST_CASE("what is wrong with a bulk load is told", "[emulator]") {
  AsyncKernel kernel = bulk_load();
  SECTION("no bytes expected") {
    replace(kernel.body, "arrive.expect_tx.shared.b64 _, [%bar], 1024",
            "arrive.shared.b64 _, [%bar]");
    has(kernel.fault(), "memory");  // read before it lands
  }
  SECTION("too many bytes expected") {
    replace(kernel.body, "[%bar], 1024;", "[%bar], 1040;");
    const std::string report = kernel.fault();
    has(report, "deadlock");
    has(report, "16 bytes awaited");
  }
  SECTION("bytes expected, no arrival") {
    replace(kernel.body, "arrive.expect_tx.shared.b64 _, [%bar]",
            "expect_tx.relaxed.cta.shared::cta.b64 [%bar]");
    has(kernel.fault(), "1 of 1 arrivals pending");
  }
  SECTION("wrong parity") {
    replace(kernel.body, "%p1, [%bar], 0", "%p1, [%bar], 1");
    CHECK(!kernel.fault().empty());
  }
  SECTION("no wait at all") {
    replace(kernel.body, "@!%p1 bra W;", "");
    replace(kernel.body, "mbarrier.try_wait", "mbarrier.test_wait");
    CHECK(!kernel.fault().empty());
  }
  SECTION("unfenced initialisation") {
    replace(kernel.body, "@%p0 fence.mbarrier_init.release.cluster;", "");
    has(kernel.fault(), "proxy");
  }
  SECTION("size") {
    replace(kernel.body, "[%in], 1024", "[%in], 1016");
    has(kernel.fault(), "the size must be a multiple of 16");
  }
  SECTION("source") {
    kernel.body.insert(0, "add.u64 %in, %in, 4;");
    has(kernel.fault(), "must be a multiple of 16");
  }
  SECTION("destination") {
    kernel.body.insert(0, "add.u32 %s, %s, 8;");
    has(kernel.fault(), "must be a multiple of 16");
  }
  SECTION("beyond the source") {
    kernel.body.insert(0, "add.u64 %in, %in, 15376;");
    has(kernel.fault(), "out-of-bounds");
  }
  SECTION("beyond the destination") {
    kernel.body.insert(0, "add.u32 %s, %s, 16384;");
    has(kernel.fault(), "out-of-bounds");
  }
}

TEST_CASE("a bulk store reads at the wait and lands at the latest at the end", "[emulator]") {
  AsyncKernel kernel;
  for (const Schedule schedule : {Schedule::eager, Schedule::late}) {
    kernel.options.schedule = schedule;
    for (const std::string& wait : {kWaitRead, std::string("cp.async.bulk.wait_group 0;\n")}) {
      kernel.body = fill(256) + kStore + wait + "@%p0 st.shared.u32 [%s], 77;\n";
      kernel.output.assign(4096, AsyncKernel::kUntouched);
      kernel.run();
      for (std::size_t i = 0; i < 256; ++i) CHECK(kernel.output[i] == i + 1);
    }
  }
  // Not landed yet where only the reads were waited for.
  kernel.body = fill(256) + kStore + kWaitRead + R"(
  @%p0 ld.global.u32 %r1, [%out];
  @%p0 st.global.u32 [%out+4096], %r1;
)";
  kernel.output.assign(4096, AsyncKernel::kUntouched);
  kernel.run();
  CHECK(kernel.output[1024] == AsyncKernel::kUntouched);
}

TEST_CASE("a bulk store needs its wait, its commit and its fence", "[emulator]") {
  AsyncKernel kernel;
  SECTION("wait") {
    kernel.body = fill(256) + kStore;
    has(kernel.fault(), "wait_group.read is missing");
  }
  SECTION("commit") {
    kernel.body = fill(256) + kStore + kWaitRead;
    replace(kernel.body, "@%p0 cp.async.bulk.commit_group;", "");
    has(kernel.fault(), "wait_group.read is missing");
  }
  SECTION("too few waited for") {
    kernel.body = fill(256) + kStore + "cp.async.bulk.wait_group.read 1;\n";
    has(kernel.fault(), "wait_group.read is missing");
  }
  SECTION("source written too early") {
    kernel.body = fill(256) + kStore +
                  "bar.sync 0;\nsetp.eq.u32 %p2, %t, 1;\n"
                  "@%p2 st.shared.u32 [%s], 77;\n" +
                  kWaitRead;
    kernel.threads = 64;
    replace(kernel.body, "%t, 1;", "%t, 33;");
    has(kernel.fault(), "race");
  }
  SECTION("fence") {
    kernel.body = fill(256) + kStore + kWaitRead;
    replace(kernel.body, "fence.proxy.async.shared::cta;", "");
    has(kernel.fault(), "proxy");
  }
}

TEST_CASE("bulk reductions", "[emulator]") {
  AsyncKernel kernel;
  kernel.blocks = 5;
  const auto body = [](const std::string& operation) {
    return fill(256) + "@%p0 cp.reduce.async.bulk.global.shared::cta.bulk_group" + operation +
           " [%out], [%s], 1024;\n@%p0 cp.async.bulk.commit_group;\n"
           "cp.async.bulk.wait_group 0;\n";
  };
  const auto check = [&](const std::string& operation, std::uint32_t before, auto want) {
    CAPTURE(operation);
    kernel.body = body(operation);
    kernel.output.assign(4096, before);
    kernel.run();
    for (std::uint32_t i = 0; i < 256; ++i) CHECK(kernel.output[i] == want(i + 1));
    CHECK(kernel.output[256] == before);
  };
  using U = std::uint32_t;
  check(".add.u32", 10, [](U i) { return 10 + 5 * i; });
  check(".min.s32", 100, [](U i) { return std::min(i, U{100}); });
  check(".max.s32", 0xffffffffu, [](U i) { return i; });
  check(".max.u32", 0xffffffffu, [](U) { return 0xffffffffu; });
  check(".or.b32", 1024, [](U i) { return 1024 | i; });
  check(".xor.b32", 0, [](U i) { return i; });
  check(".and.b32", 15, [](U i) { return 15 & i; });
  // 4, ... 8, or back to 0 beyond the limit i.
  check(".inc.u32", 3, [](U i) {
    U value = 3;
    for (int block = 0; block < 5; ++block) value = value >= i ? 0 : value + 1;
    return value;
  });
  // Subnormal bits add like integers; halves of each word alike.
  check(".add.f32", 0, [](U i) { return 5 * i; });
  check(".add.noftz.f16", 0, [](U i) { return 5 * i; });
  kernel.body = body(".add.f16");
  has(kernel.fault(), "unknown instruction");
}

TEST_CASE("a block may not end before what is sent to it", "[emulator]") {
  AsyncKernel kernel;
  kernel.blocks = kernel.cluster = 2;
  kernel.body = kInitOne + R"(
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  setp.ne.u32 %p2, %rank, 0;
  @%p2 exit;
  mov.u32 %r0, 1;
  mapa.shared::cluster.u32 %r1, %s, %r0;
  mapa.shared::cluster.u32 %r2, %bar, %r0;
  @%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%in], 64, [%r2];
)";
  CHECK(!kernel.fault().empty());
}

}  // namespace kiln::testing
