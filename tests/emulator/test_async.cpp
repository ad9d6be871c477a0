// cp.async, mbarriers and what clusters share: that waits are needed, and how misuse is told.
#include "tests/emulator/async_kernel.h"
#include "tests/support/catch.h"

namespace kiln::testing {
namespace {

using runtime::emulator::Schedule;

// Every thread copies 16 bytes; `between` stands before they are read back.
AsyncKernel copies(const std::string& between) {
  AsyncKernel kernel;
  kernel.body = R"(
  shl.b32 %r0, %t, 4;
  add.u32 %r1, %s, %r0;
  cvt.u64.u32 %d0, %r0;
  add.u64 %d1, %in, %d0;
  add.u64 %d2, %out, %d0;
  cp.async.cg.shared.global [%r1], [%d1], 16;
)" + between + R"(
  ld.shared.v4.b32 {%r2, %r3, %r4, %r5}, [%r1];
  st.global.v4.b32 [%d2], {%r2, %r3, %r4, %r5};
)";
  return kernel;
}

// One thread initialises barrier 0 for `count` arrivals.
std::string init(int count) {
  return R"(
  setp.eq.u32 %p0, %t, 0;
  @%p0 mbarrier.init.shared.b64 [%bar], )" +
         std::to_string(count) + R"(;
  @%p0 fence.mbarrier_init.release.cluster;
  bar.sync 0;
)";
}

std::string wait(const char* label, const char* parity) {
  return std::string(label) + ":\n  mbarrier.try_wait.parity.shared.b64 %p1, [%bar], " + parity +
         ";\n  @!%p1 bra " + label + ";\n";
}

}  // namespace

TEST_CASE("cp.async lands where it is waited for", "[emulator]") {
  for (const Schedule schedule : {Schedule::eager, Schedule::late}) {
    for (const char* waits :
         {"cp.async.wait_all;", "cp.async.commit_group; cp.async.wait_group 0;",
          "cp.async.commit_group; cp.async.commit_group; cp.async.wait_group 1;"}) {
      AsyncKernel kernel = copies(waits);
      kernel.options.schedule = schedule;
      kernel.run();
      for (std::size_t i = 0; i < 128; ++i) CHECK(kernel.output[i] == kernel.input[i]);
    }
  }
}

TEST_CASE("a missing wait for cp.async is seen", "[emulator]") {
  for (const char* waits :
       {"", "cp.async.commit_group;", "cp.async.commit_group; cp.async.wait_group 1;",
        "cp.async.wait_group 0;"}) {
    CAPTURE(waits);
    AsyncKernel watched = copies(waits);
    has(watched.fault(), "memory");
    // Without the shadow the stale bytes are read, and the end still finds the copy in flight.
    AsyncKernel unwatched = copies(waits);
    unwatched.options.checks = false;
    has(unwatched.fault(), "cp.async that nobody waited for");
    CHECK(unwatched.output[0] != unwatched.input[0]);
  }
}

TEST_CASE("cp.async takes part of its source, or none", "[emulator]") {
  AsyncKernel kernel;
  kernel.body = R"(
  shl.b32 %r0, %t, 3;
  add.u32 %r1, %s, %r0;
  cvt.u64.u32 %d0, %r0;
  add.u64 %d1, %in, %d0;
  add.u64 %d2, %out, %d0;
  and.b32 %r6, %t, 1;
  shl.b32 %r6, %r6, 2;
  cp.async.ca.shared.global.L2::128B [%r1], [%d1], 8, %r6;
  cp.async.wait_all;
  ld.shared.v2.b32 {%r2, %r3}, [%r1];
  st.global.v2.b32 [%d2], {%r2, %r3};
)";
  kernel.run();
  for (std::size_t i = 0; i < 64; ++i) {
    CHECK(kernel.output[i] == (i % 4 == 2 ? kernel.input[i] : 0u));
  }
}

TEST_CASE("cp.async checks both of its addresses", "[emulator]") {
  AsyncKernel kernel = copies("cp.async.wait_all;");
  kernel.body.insert(0, "add.u64 %in, %in, 8;");
  has(kernel.fault(), "must be a multiple of 16");
  kernel = copies("cp.async.wait_all;");
  kernel.body.insert(0, "add.u64 %in, %in, 16000;");
  const std::string beyond = kernel.fault();
  has(beyond, "out-of-bounds");
  has(beyond, "lane 24");
  kernel = copies("cp.async.wait_all;");
  kernel.body.insert(0, "add.u32 %s, %s, 4;");
  has(kernel.fault(), "must be a multiple of 16");
  kernel = copies("cp.async.wait_all;");
  kernel.body.insert(0, "add.u32 %s, %s, 40000;");
  has(kernel.fault(), "out-of-bounds");
}

TEST_CASE("an mbarrier tracks cp.async", "[emulator]") {
  for (const char* noinc : {".noinc", ""}) {
    for (const Schedule schedule : {Schedule::eager, Schedule::late}) {
      AsyncKernel kernel =
          copies("cp.async.mbarrier.arrive" + std::string(noinc) + ".shared.b64 [%bar];\n" +
                 (*noinc != 0 ? "" : "mbarrier.arrive.shared.b64 %d3, [%bar];\n") + wait("W", "0"));
      kernel.body.insert(0, init(32));
      kernel.options.schedule = schedule;
      kernel.run();
      for (std::size_t i = 0; i < 128; ++i) CHECK(kernel.output[i] == kernel.input[i]);
    }
  }
  // Counted in the initialisation, but not so said.
  AsyncKernel kernel = copies("cp.async.mbarrier.arrive.shared.b64 [%bar];\n" + wait("W", "0"));
  kernel.body.insert(0, init(32));
  has(kernel.fault(), "deadlock");
}

TEST_CASE("phases of an mbarrier", "[emulator]") {
  AsyncKernel kernel;
  kernel.threads = 64;
  kernel.body = init(64) + R"(
  mbarrier.arrive.shared.b64 %d0, [%bar];
W0:
  mbarrier.test_wait.shared.b64 %p1, [%bar], %d0;
  @!%p1 bra W0;
  mbarrier.pending_count.b64 %r0, %d0;
  mbarrier.arrive.shared::cta.b64 _, [%bar];
)" + wait("W1", "1") +
                R"(
  mbarrier.test_wait.parity.shared.b64 %p2, [%bar], 0;
  selp.u32 %r1, 1, 0, %p2;
  mad.lo.u32 %r2, %r1, 1000, %r0;
  mul.wide.u32 %d1, %t, 4;
  add.u64 %d1, %out, %d1;
  st.global.u32 [%d1], %r2;
)";
  for (const std::uint64_t seed : {0, 1, 2}) {
    kernel.options.seed = seed;
    kernel.run();
    // In phase 2: parity 0 is not complete, and arrivals saw 64 to 1 pending.
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < 64; ++i) sum += kernel.output[i];
    CHECK(sum == 64 * 65 / 2);
  }
}

TEST_CASE("misuse of mbarriers is told", "[emulator]") {
  const auto report = [](const std::string& body) {
    AsyncKernel kernel;
    kernel.body = body;
    return kernel.fault();
  };
  const std::string arrive = "mbarrier.arrive.shared.b64 _, [%bar];\n";
  const std::string one = "setp.eq.u32 %p2, %t, 0;\n@%p2 ";
  has(report(arrive), "was never initialised");
  has(report("mbarrier.init.shared.b64 [%bar], 1;"), "initialised again");
  has(report("add.u32 %bar, %bar, 4;" + one + "mbarrier.init.shared.b64 [%bar], 1;"),
      "must be a multiple of 8");
  has(report(one + "mbarrier.init.shared.b64 [%bar], 0;"), "initialised for 0 arrivals");
  has(report(init(1) + one + "mbarrier.inval.shared.b64 [%bar];\n" + arrive),
      "used after mbarrier.inval");
  has(report(init(8) + one + "st.shared.u32 [%bar], 5;\n" + arrive), "written over");
  has(report(init(8) + one + "mbarrier.arrive.shared.b64 _, [%bar], 9;"),
      "gets 9 arrivals where its phase 0 awaits only 8");
  has(report(init(8) + one + "mbarrier.arrive.noComplete.shared.b64 %d0, [%bar], 8;"),
      "noComplete");
  has(report(init(8) + one + "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%bar], 1048576;"),
      "would await 1048576 bytes");
  has(report(init(8) + "mov.u32 %r0, 2;\n" + wait("W", "%r0")), "valid are 0 and 1");
  const std::string deadlock = report(init(33) + arrive + wait("W", "0"));
  has(deadlock, "deadlock");
  has(deadlock, "1 of 33 arrivals pending");
}

TEST_CASE("an mbarrier's initialisation needs a barrier", "[emulator]") {
  AsyncKernel kernel;
  kernel.threads = 64;
  kernel.body =
      "setp.eq.u32 %p0, %t, 0;\n@%p0 mbarrier.init.shared.b64 [%bar], 64;\n"
      "mbarrier.arrive.shared.b64 _, [%bar];";
  CHECK(!kernel.fault().empty());
}

TEST_CASE("arrivals order what was written before them", "[emulator]") {
  // Warp 1 reads what warp 0 wrote.
  const std::string body = init(1) + R"(
  setp.lt.u32 %p3, %t, 32;
  shl.b32 %r0, %t, 2;
  and.b32 %r0, %r0, 124;
  add.u32 %r1, %s, %r0;
  @%p3 st.shared.u32 [%r1], %t;
  @!%p3 bra READ;
  bar.warp.sync -1;
  @%p0 ARRIVE
  ret;
READ:
)" + wait("W", "0") + R"(
  ld.shared.u32 %r2, [%r1];
  mul.wide.u32 %d1, %t, 4;
  add.u64 %d1, %out, %d1;
  st.global.u32 [%d1], %r2;
)";
  AsyncKernel kernel;
  kernel.threads = 64;
  kernel.body = body;
  const auto at = body.find("ARRIVE");
  kernel.body.replace(at, 6, "mbarrier.arrive.shared.b64 _, [%bar];");
  kernel.run();
  for (std::size_t i = 32; i < 64; ++i) CHECK(kernel.output[i] == i - 32);
  kernel.body = body;
  kernel.body.replace(at, 6, "mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%bar];");
  has(kernel.fault(), "race");
}

TEST_CASE("a try_wait that nobody can satisfy yet gives up", "[emulator]") {
  // Polls the next phase before it lets the other warp go on.
  AsyncKernel kernel;
  kernel.threads = 64;
  kernel.body = init(1) + R"(
  setp.lt.u32 %p3, %t, 32;
  @!%p3 bra OTHER;
  mbarrier.try_wait.parity.shared.b64 %p4, [%bar], 0;
  bar.sync 1, 64;
)" + wait("W", "0") +
                R"(
  selp.u32 %r1, 1, 0, %p4;
  @%p0 st.global.u32 [%out], %r1;
  ret;
OTHER:
  bar.sync 1, 64;
  setp.eq.u32 %p5, %t, 32;
  @%p5 mbarrier.arrive.shared.b64 _, [%bar];
)";
  kernel.run();
  CHECK(kernel.output[0] == 0);
}

TEST_CASE("clusters: barriers, mapa, remote arrivals and asynchronous stores", "[emulator]") {
  AsyncKernel kernel;
  kernel.blocks = kernel.cluster = 2;
  kernel.body = init(1) + R"(
  barrier.cluster.arrive.release.aligned;
  barrier.cluster.wait.acquire.aligned;
  xor.b32 %r0, %rank, 1;
  shl.b32 %r1, %t, 2;
  add.u32 %r1, %s, %r1;
  mapa.shared::cluster.u32 %r2, %r1, %r0;
  mapa.shared::cluster.u32 %r3, %bar, %r0;
  getctarank.shared::cluster.u32 %r4, %r2;
  mad.lo.u32 %r4, %r4, 100, %t;
  @%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%bar], 128;
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r2], %r4, [%r3];
)" + wait("W", "0") +
                R"(
  ld.shared.u32 %r5, [%r1];
  mad.lo.u32 %r6, %rank, 32, %t;
  mul.wide.u32 %d1, %r6, 4;
  add.u64 %d1, %out, %d1;
  st.global.u32 [%d1], %r5;
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
)";
  for (const std::uint64_t seed : {0, 1, 2, 3}) {
    kernel.options.seed = seed;
    kernel.run();
    for (std::size_t i = 0; i < 64; ++i) CHECK(kernel.output[i] == i / 32 * 100 + i % 32);
  }
  AsyncKernel waits;
  waits.body = "barrier.cluster.wait;";
  has(waits.fault(), "without barrier.cluster.arrive");
  waits.body = "barrier.cluster.arrive; barrier.cluster.arrive;";
  has(waits.fault(), "again before barrier.cluster.wait");
  waits.body = "mov.u32 %r0, 1; mapa.shared::cluster.u32 %r2, %s, %r0;";
  has(waits.fault(), "mapa to block 1 of a cluster of 1");
}

TEST_CASE("warpgroups trade registers", "[emulator]") {
  AsyncKernel kernel;
  kernel.threads = 256;
  kernel.directives = ".maxntid 256, 1, 1 .maxnreg 128\n";
  const auto trade = [](int dec, int inc) {
    return "setp.lt.u32 %p0, %t, 128;\n@%p0 bra LESS;\nsetmaxnreg.inc.sync.aligned.u32 " +
           std::to_string(inc) + ";\nbra END;\nLESS:\nsetmaxnreg.dec.sync.aligned.u32 " +
           std::to_string(dec) + ";\nEND:\nbar.sync 0;";
  };
  kernel.body = trade(40, 216);
  CHECK(kernel.fault().empty());
  kernel.body = trade(40, 224);
  has(kernel.fault(), "register budget");
  kernel.body = trade(40, 120);
  has(kernel.fault(), "has 128 already");
  kernel.body = trade(136, 216);
  has(kernel.fault(), "has only 128");
  kernel.body = trade(40, 216);
  replace(kernel.body, "%t, 128", "%t, 96");
  replace(kernel.body, "inc.sync.aligned.u32 216", "inc.sync.aligned.u32 128");
  has(kernel.fault(), "not all four warps");
  kernel.body = trade(20, 216);
  has(kernel.fault(), "24 to 256");
}

}  // namespace kiln::testing
