// Programmatic launches: what touches the memory of an earlier launch before griddepcontrol.wait is
// reported, and nothing else is.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/emulator/async/tensor_map.h"
#include "runtime/emulator/machine/emulated_device.h"
#include "runtime/emulator/machine/faults.h"
#include "tests/emulator/async_kernel.h"
#include "tests/support/catch.h"

namespace kiln::testing {
namespace {

using runtime::emulator::EmulatorError;

const std::string kWait = "griddepcontrol.wait;\n";
const std::string kSignal = "griddepcontrol.launch_dependents;\n";
const std::string kRead = "ld.global.u32 %r1, [%x];\n";
const std::string kWrite = "st.global.u32 [%x], %t;\n";

// Launches of one stream. A body sees %t (thread), %s (shared address of 4 KiB), %bar (of an
// mbarrier), %map (of a tensor map of x), %x and %y (global addresses of the thread's own words of
// two arrays) and %x0 (of x itself).
class Stream {
 public:
  std::vector<std::uint32_t> x = std::vector<std::uint32_t>(1024);
  std::vector<std::uint32_t> y = std::vector<std::uint32_t>(1024);
  unsigned threads = 32;
  void* stream = nullptr;
  bool precedes = false;  // whether a launch is told to precede a programmatic one

  // Its launches are recorded from the first programmatic one on.
  Stream() { dependent(kWait); }

  // Returns the report of the fault that it ends with, or nothing.
  std::string launch(const std::string& name, const std::string& body, bool programmatic = false) {
    const std::string ptx = text(name, body);
    const auto kernel = device.load(image(name, ptx));
    struct {
      runtime::TensorMap map;
      std::uint64_t x, y;
    } arguments{{}, address(x), address(y)};
    arguments.map =
        runtime::emulator::encode_emulated_tensor_map({.address = arguments.x,
                                                       .element = runtime::TensorMapElement::u32,
                                                       .rank = 1,
                                                       .dims = {1024},
                                                       .strides_bytes = {},
                                                       .box = {32},
                                                       .swizzle = runtime::TensorMapSwizzle::none});
    const std::vector<runtime::MemorySpan> spans{{arguments.x, x.size() * 4, true},
                                                 {arguments.y, y.size() * 4, true}};
    runtime::LaunchShape shape;
    shape.block = {threads, 1, 1};
    shape.programmatic = programmatic;
    shape.precedes_programmatic = precedes;
    try {
      device.launch(*kernel, shape, stream, std::as_bytes(std::span(&arguments, 1)), spans);
    } catch (const EmulatorError& error) {
      return error.what();
    }
    return {};
  }
  std::string dependent(const std::string& body) { return launch("dependent", body, true); }

  runtime::Device& device = runtime::emulated_device("sm_90a");

 private:
  static std::uint64_t address(const std::vector<std::uint32_t>& words) {
    return reinterpret_cast<std::uint64_t>(words.data());
  }
  static runtime::KernelImage image(const std::string& name, const std::string& ptx) {
    runtime::KernelImage made;
    made.ptx = ptx;
    made.entry = name;
    return made;
  }
  static std::string text(const std::string& name, const std::string& body) {
    return ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry " + name +
           R"((.param .align 64 .b8 map_parameter[128], .param .u64 x, .param .u64 y)
{
  .reg .b32 %r<8>, %t, %s, %bar;
  .reg .b64 %d<4>, %x, %x0, %y, %map;
  .reg .pred %p<4>;
  .shared .align 1024 .b8 memory[4096];
  .shared .align 8 .b8 barrier_word[8];
  mov.u32 %t, %tid.x;
  mov.u32 %s, memory;
  mov.u32 %bar, barrier_word;
  mov.b64 %map, map_parameter;
  cvta.param.u64 %map, %map;
  setp.eq.u32 %p0, %t, 0;
  ld.param.u64 %x0, [x];
  ld.param.u64 %y, [y];
  mad.wide.u32 %x, %t, 4, %x0;
  mad.wide.u32 %y, %t, 4, %y;
)" + body + "\nret;\n}\n";
  }
};

}  // namespace

TEST_CASE("a programmatic launch waits before it reads what the launch before wrote",
          "[emulator]") {
  Stream stream;
  CHECK(stream.launch("producer", kWrite + kSignal).empty());
  const std::string report = stream.dependent(kRead + kWait);
  has(report, "missing wait for a launch: read of 4 bytes at global address");
  has(report, "which the earlier launch of 'producer' writes: it may still be running");
  has(report, "has executed griddepcontrol.wait");
  has(report, "kernel dependent, block (0, 0, 0), warp 0, lane 0");
  has(report, "ld.global.u32 %r1, [%x]");

  SECTION("with the wait first") {
    stream.launch("producer", kWrite + kSignal);
    CHECK(stream.dependent(kWait + kRead + kWrite).empty());
  }
  SECTION("without the attribute") {
    stream.launch("producer", kWrite + kSignal);
    CHECK(stream.launch("dependent", kRead + kWrite).empty());
  }
  SECTION("where the launch before signals nothing, and the dependent one never waits") {
    stream.launch("producer", kWrite);
    CHECK_FALSE(stream.dependent(kRead).empty());
  }
  SECTION("as the first launch, and behind a launch that has ended with a fault") {
    CHECK(stream.dependent(kRead + kWrite).empty());
    stream.launch("producer", kWrite + "trap;");
    CHECK(stream.dependent(kRead).empty());
  }
  SECTION("behind a synchronisation, and on another stream") {
    stream.launch("producer", kWrite);
    stream.device.synchronize(nullptr);
    CHECK(stream.dependent(kRead).empty());
    stream.launch("producer", kWrite);
    stream.stream = &stream;
    CHECK(stream.dependent(kRead).empty());
  }
  SECTION("without checks") {
    stream.launch("producer", kWrite);
    runtime::emulator::Options options;
    options.checks = false;
    runtime::set_emulator_options(options);
    CHECK(stream.dependent(kRead).empty());
    runtime::set_emulator_options({});
  }
}

TEST_CASE("a programmatic launch waits before it writes what the launch before touched",
          "[emulator]") {
  Stream stream;
  stream.launch("producer", kRead);
  has(stream.dependent(kWrite), "write of 4 bytes");
  stream.launch("producer", kRead);
  has(stream.dependent("red.global.add.u32 [%x], 1;"), "the earlier launch of 'producer' reads");
  stream.launch("producer", kWrite);
  has(stream.dependent(kWrite), "the earlier launch of 'producer' writes");
  // What both only read, and what only this launch touches, needs no wait.
  stream.launch("producer", kRead);
  CHECK(stream.dependent(kRead + "st.global.u32 [%y], %t;\n" + kWait + kWrite).empty());
  // Byte by byte.
  stream.launch("producer", "st.global.u8 [%x+1], %t;");
  CHECK(stream.dependent("ld.global.u8 %r1, [%x];\nst.global.u16 [%x+2], %r1;").empty());
  stream.launch("producer", "st.global.u8 [%x+1], %t;");
  has(stream.dependent("ld.global.u16 %r1, [%x];"), "read of 2 bytes");
}

TEST_CASE("one thread may wait for those that it hands on to", "[emulator]") {
  Stream stream;
  stream.threads = 64;
  stream.launch("producer", kWrite);
  CHECK(stream.dependent("@%p0 " + kWait + "bar.sync 0;\n" + kRead).empty());
  stream.launch("producer", kWrite);
  has(stream.dependent("setp.lt.u32 %p1, %t, 32;\n@%p1 " + kWait + kRead), "warp 1");
  stream.threads = 32;
  stream.launch("producer", kWrite);
  has(stream.dependent("@%p0 " + kWait + kRead), "warp 0, lane 1");
  stream.launch("producer", kWrite);
  CHECK(stream.dependent("@%p0 " + kWait + "bar.warp.sync -1;\n" + kRead).empty());
}

TEST_CASE("asynchronous copies wait for the launch before, too", "[emulator]") {
  Stream stream;
  const std::string begin = R"(
  @%p0 mbarrier.init.shared.b64 [%bar], 1;
  @%p0 fence.mbarrier_init.release.cluster;
  @%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%bar], 128;
  mov.u32 %r2, 0;
)";
  const std::string end = R"(
W:
  mbarrier.try_wait.parity.shared.b64 %p1, [%bar], 0;
  @!%p1 bra W;
)";
  const std::string store_end = R"(
  @%p0 cp.async.bulk.commit_group;
  cp.async.bulk.wait_group 0;
)";
  const std::string fill =
      "mad.lo.u32 %r3, %t, 4, %s;\nst.shared.u32 [%r3], %t;\nfence.proxy.async;\nbar.sync 0;\n"
      "mov.u32 %r2, 0;\n";
  struct Copy {
    std::string before, copy, after;
    bool writes;
  };
  const std::vector<Copy> copies{
      {"mad.lo.u32 %r3, %t, 4, %s;\n", "cp.async.ca.shared.global [%r3], [%x], 4;\n",
       "cp.async.wait_all;\n", false},
      {begin,
       "@%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
       "[%s], [%x0], 128, [%bar];\n",
       end, false},
      {begin,
       "@%p0 cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
       "[%s], [%map, {%r2}], [%bar];\n",
       end, false},
      {fill, "@%p0 cp.async.bulk.global.shared::cta.bulk_group [%x0], [%s], 128;\n", store_end,
       true},
      {fill,
       "@%p0 cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%map, {%r2}], [%s];\n",
       store_end, true},
  };
  for (const Copy& copy : copies) {
    CAPTURE(copy.copy);
    stream.launch("producer", copy.writes ? kRead : kWrite);
    has(stream.dependent(copy.before + copy.copy + kWait + copy.after),
        copy.writes ? "missing wait for a launch: write of" : "missing wait for a launch: read of");
    stream.launch("producer", copy.writes ? kRead : kWrite);
    CHECK(stream.dependent(copy.before + kWait + copy.copy + copy.after).empty());
    // What a copy touches is recorded, too.
    CHECK(stream.launch("producer", copy.before + copy.copy + copy.after).empty());
    CHECK(stream.dependent(kWrite).find(copy.writes ? "writes" : "reads") != std::string::npos);
  }
  // Prefetches read nothing.
  stream.launch("producer", kWrite);
  CHECK(stream
            .dependent("mov.u32 %r2, 0;\nprefetch.global.L2 [%x];\n"
                       "cp.async.bulk.prefetch.L2.global [%x0], 128;\n"
                       "cp.async.bulk.prefetch.tensor.1d.L2.global.tile [%map, {%r2}];\n")
            .empty());
}

TEST_CASE("a launch before the launch before may still run, too", "[emulator]") {
  Stream stream;
  // The middle one lets the last begin before it has waited for the first.
  stream.launch("first", kWrite);
  CHECK(stream.launch("middle", kSignal + kWait, true).empty());
  has(stream.dependent(kRead), "the earlier launch of 'first' writes");
  stream.launch("first", kWrite);
  CHECK(stream.launch("middle", kWait + kSignal, true).empty());
  CHECK(stream.dependent(kRead).empty());
  stream.launch("first", kWrite);
  CHECK(stream.launch("middle", kSignal).empty());  // an ordinary launch: the first has ended
  CHECK(stream.dependent(kRead).empty());
}

TEST_CASE("a stream's launches are recorded from the first programmatic one on", "[emulator]") {
  Stream stream;
  int others[2];
  stream.stream = &others[0];
  stream.launch("producer", kWrite);
  CHECK(stream.dependent(kRead).empty());
  stream.launch("producer", kWrite);
  CHECK_FALSE(stream.dependent(kRead).empty());
  // Or from one that is known to precede it.
  stream.stream = &others[1];
  stream.precedes = true;
  stream.launch("producer", kWrite);
  CHECK_FALSE(stream.dependent(kRead).empty());
}

}  // namespace kiln::testing
