// PTX as other compilers and libraries write it, where it differs from what NVRTC makes of Kiln's
// templates: each case was refused, or reported, though ptxas and the hardware take it.
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "runtime/emulator/async/tensor_map.h"
#include "tests/emulator/async_kernel.h"
#include "tests/support/catch.h"

namespace kiln::testing {
namespace {

using runtime::TensorMapElement;
using runtime::TensorMapSpec;
using runtime::TensorMapSwizzle;

// All elements of A and B are 1, so that their layout does not matter: each sum is 16. The
// accumulators begin with 5.
AsyncKernel product(const std::string& scale_d) {
  AsyncKernel kernel;
  kernel.threads = 128;
  kernel.body = R"(
  mov.u32 %r1, 0x3c003c00;
  shl.b32 %r2, %t, 4;
  add.u32 %r2, %s, %r2;
  st.shared.v4.b32 [%r2], {%r1, %r1, %r1, %r1};
  fence.proxy.async.shared::cta;
  bar.sync 0;
  shr.u32 %r3, %s, 4;
  cvt.u64.u32 %d0, %r3;
  or.b64 %d0, %d0, 0x1000080000;
  mov.f32 %f0, 0f40A00000;
  mov.f32 %f1, %f0;
  mov.f32 %f2, %f0;
  mov.f32 %f3, %f0;
  setp.eq.u32 %p1, %s, %s;
  wgmma.fence.sync.aligned;
  wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %d0, %d0, )" +
                scale_d + R"(, 1, 1, 0, 0;
  wgmma.commit_group.sync.aligned;
  wgmma.wait_group.sync.aligned 0;
  cvt.rzi.u32.f32 %r4, %f3;
  mad.wide.u32 %d1, %t, 4, %out;
  st.global.u32 [%d1], %r4;
)";
  return kernel;
}

}  // namespace

TEST_CASE("wgmma takes scale-d as a predicate, negated too, and as a literal", "[emulator]") {
  for (const auto& [scale_d, want] :
       {std::pair{"%p1", 21u}, std::pair{"!%p1", 16u}, std::pair{"1", 21u}, std::pair{"0", 16u}}) {
    CAPTURE(scale_d);
    AsyncKernel kernel = product(scale_d);
    kernel.run();
    for (std::size_t i = 0; i < 128; ++i) CHECK(kernel.output[i] == want);
  }
  has(product("2").fault(), "scale-d must be 0 or 1");
  has(product("%r1").fault(), "expected a predicate");
}

TEST_CASE("ldmatrix and stmatrix take their modifiers in any order", "[emulator]") {
  const std::string body = fill(128) + R"(
  shl.b32 %r0, %t, 4;
  add.u32 %r0, %s, %r0;
  ldmatrix.sync.aligned.LOAD.shared.b16 {%r1, %r2, %r3, %r4}, [%r0];
  stmatrix.sync.aligned.STORE.shared.b16 [%r0+1024], {%r1, %r2, %r3, %r4};
  bar.sync 0;
  add.u32 %s, %s, 1024;
  mov.u32 %r20, 128;
)" + kDump;
  const std::array<const char*, 3> orders{"m8n8.x4.trans", "x4.m8n8.trans", "x4.trans.m8n8"};
  for (const std::string load : orders) {
    for (const std::string store : orders) {
      CAPTURE(load, store);
      AsyncKernel kernel;
      kernel.body = body;
      replace(kernel.body, "LOAD", load);
      replace(kernel.body, "STORE", store);
      kernel.run();
      for (std::size_t i = 0; i < 128; ++i) CHECK(kernel.output[i] == i + 1);
    }
  }
  for (const std::string wrong : {"x4", "m8n8", "x3.m8n8", "x4.m8n8.x2"}) {
    AsyncKernel kernel;
    kernel.body = body;
    replace(kernel.body, "LOAD", wrong);
    has(kernel.fault(), "unknown instruction");
  }
}

TEST_CASE("a kernel pays for the shared variables that it names", "[emulator]") {
  AsyncKernel kernel;
  kernel.before = R"(
.shared .align 16 .b8 of_the_other[200000];
.shared .align 16 .b8 of_the_function[100];
.entry other() { .reg .b32 %r; mov.u32 %r, 1; st.shared.u32 [of_the_other], %r; ret; }
.func called() { .reg .b32 %r; mov.u32 %r, 9; st.shared.u32 [of_the_function+96], %r; ret; }
)";
  const std::string size = "mov.u32 %r1, %total_smem_size;\nst.global.u32 [%out], %r1;\n";
  kernel.body = size;
  kernel.run();
  CHECK(kernel.output[0] == 16384 + 128);  // memory and barriers
  kernel.body = "call called;\n" + size;
  kernel.run();
  CHECK(kernel.output[0] == 1024 + 16384 + 128);  // `memory` is aligned to 1024
  kernel.body = "mov.u32 %r2, of_the_other;\n" + size;
  kernel.run();
  CHECK(kernel.output[0] == 200704 + 16384 + 128);
  kernel.before += ".shared .b8 too_much[20000];\n";
  kernel.body = "mov.u32 %r2, of_the_other;\nld.shared.u8 %r2, [too_much+4];\n" + size;
  has(kernel.fault(), "bytes of shared memory a block");
}

TEST_CASE("registers of the driver and of the reserved shared memory are read", "[emulator]") {
  AsyncKernel kernel;
  const std::array<std::pair<std::string, std::uint32_t>, 8> registers{{
      {"envreg0", 0},
      {"envreg2", 0},
      {"envreg31", 0},
      {"reserved_smem_offset_begin", 0},
      {"reserved_smem_offset_end", 1024},
      {"reserved_smem_offset_cap", 1024},
      {"reserved_smem_offset_0", 0},
      {"reserved_smem_offset_1", 512},
  }};
  std::size_t at = 0;
  for (const auto& [name, value] : registers) {
    kernel.body += "mov.u32 %r1, %" + name + ";\nst.global.u32 [%out+" + std::to_string(at++ * 4) +
                   "], %r1;\n";
  }
  kernel.run();
  for (std::size_t i = 0; i < registers.size(); ++i) {
    CAPTURE(registers[i].first);
    CHECK(kernel.output[i] == registers[i].second);
  }
  for (const std::string name :
       {"envreg32", "envreg", "envreg02", "envregs", "reserved_smem_offset_2"}) {
    kernel.body = "mov.u32 %r1, %" + name + ";\n";
    has(kernel.fault(), name);
  }
}

TEST_CASE("the proxy fence may stand behind the barrier", "[emulator]") {
  const std::string store = R"(
  @%p0 cp.async.bulk.global.shared::cta.bulk_group [%out], [%s], 1024;
  @%p0 cp.async.bulk.commit_group;
)" + kWaitRead;
  const std::string fence = "fence.proxy.async.shared::cta;\n";
  AsyncKernel kernel;
  kernel.threads = GENERATE(32u, 128u);
  std::string unfenced = fill(256);
  replace(unfenced, fence, "");
  replace(unfenced, "%r21, %r21, 32", "%r21, %r21, " + std::to_string(kernel.threads));
  const auto run = [&](const std::string& body) {
    kernel.body = body;
    const std::string report = kernel.fault();
    if (report.empty()) {
      for (std::size_t i = 0; i < 256; ++i) CHECK(kernel.output[i] == i + 1);
    }
    return report;
  };
  // By the issuing thread, by everyone, and by one warp that hands on to the issuer.
  CHECK(run(unfenced + "@%p0 " + fence + store).empty());
  CHECK(run(unfenced + fence + store).empty());
  CHECK(
      run(unfenced + "setp.ge.u32 %p2, %t, 96;\n@%p2 " + fence + "bar.sync 0;\n" + store).empty() ==
      (kernel.threads == 128));
  // What the fence's thread does not know of, the fence does not cover.
  has(run("setp.eq.u32 %p0, %t, 0;\n@%p0 " + fence + unfenced + store), "missing proxy fence");
  has(run(unfenced + store), "missing proxy fence");
}

// The pattern of a ring of stages: thread 0 of a warpgroup says that the stage is free, as soon as
// it itself has read it.
TEST_CASE("one arrival for a warpgroup is reported unless a barrier precedes it", "[emulator]") {
  AsyncKernel kernel;
  kernel.threads = 160;
  kernel.body = R"(
  setp.eq.u32 %p0, %t, 0;
  setp.eq.u32 %p1, %t, 128;
  @%p0 mbarrier.init.shared.b64 [%bar], 1;
  @%p0 mbarrier.init.shared.b64 [%bar+8], 1;
  @%p0 fence.mbarrier_init.release.cluster;
  bar.sync 0;
  setp.ge.u32 %p2, %t, 128;
  @%p2 bra PRODUCER;
FULL:
  mbarrier.try_wait.parity.shared.b64 %p3, [%bar], 0;
  @!%p3 bra FULL;
  shl.b32 %r1, %t, 2;
  add.u32 %r1, %s, %r1;
  ld.shared.u32 %r2, [%r1];
  mad.wide.u32 %d1, %t, 4, %out;
  st.global.u32 [%d1], %r2;
  // here
  @%p0 mbarrier.arrive.shared.b64 _, [%bar+8];
  bra DONE;
PRODUCER:
  @!%p1 bra DONE;
  mbarrier.arrive.expect_tx.shared.b64 _, [%bar], 512;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%s], [%in], 512, [%bar];
FREE:
  mbarrier.try_wait.parity.shared.b64 %p3, [%bar+8], 0;
  @!%p3 bra FREE;
  mbarrier.arrive.expect_tx.shared.b64 _, [%bar], 512;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%s], [%in+512], 512, [%bar];
LANDED:
  mbarrier.try_wait.parity.shared.b64 %p3, [%bar], 1;
  @!%p3 bra LANDED;
DONE:
)";
  const std::string report = kernel.fault();
  has(report, "race on shared memory");
  has(report, "read by warp");
  has(report, "written by an asynchronous operation of warp 4");
  replace(kernel.body, "// here", "bar.sync 1, 128;");
  kernel.run();
  for (std::size_t i = 0; i < 128; ++i) CHECK(kernel.output[i] == kernel.input[i]);
}

namespace {

// Stores a box of 8 rows of 32 words at column 32, row 24 of a tensor of 30 rows of 60 words: 28
// columns of six rows lie inside. Thread t writes chunk t % 7 of row t / 7, and no others.
AsyncKernel corner(bool swizzles, int threads_that_write) {
  AsyncKernel kernel;
  kernel.threads = 64;
  kernel.body = "setp.ge.u32 %p1, %t, " + std::to_string(threads_that_write) + R"(;
  setp.eq.u32 %p0, %t, 0;
  @%p1 bra WRITTEN;
  div.u32 %r1, %t, 7;
  rem.u32 %r2, %t, 7;
  mad.lo.u32 %r3, %r1, 32, 1;
  mad.lo.u32 %r3, %r2, 4, %r3;
)" + std::string(swizzles ? "xor.b32 %r2, %r2, %r1;\n" : "") +
                R"(
  shl.b32 %r4, %r1, 7;
  mad.lo.u32 %r4, %r2, 16, %r4;
  add.u32 %r4, %s, %r4;
  add.u32 %r5, %r3, 1;
  add.u32 %r6, %r3, 2;
  add.u32 %r7, %r3, 3;
  st.shared.v4.u32 [%r4], {%r3, %r5, %r6, %r7};
WRITTEN:
  fence.proxy.async.shared::cta;
  bar.sync 0;
  mov.b32 %r8, 32;
  mov.b32 %r9, 24;
  @%p0 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%map, {%r8, %r9}], [%s];
  @%p0 cp.async.bulk.commit_group;
)" + kWaitRead;
  return kernel;
}

}  // namespace

TEST_CASE("a tensor store does not read what lies outside of the tensor", "[emulator]") {
  const bool swizzles = GENERATE(false, true);
  AsyncKernel kernel = corner(swizzles, 42);
  TensorMapSpec spec{.address = reinterpret_cast<std::uint64_t>(kernel.output.data()),
                     .element = TensorMapElement::u32,
                     .rank = 2,
                     .dims = {60, 30},
                     .strides_bytes = {256},
                     .box = {32, 8},
                     .swizzle = swizzles ? TensorMapSwizzle::b128 : TensorMapSwizzle::none};
  kernel.map = runtime::emulator::encode_emulated_tensor_map(spec);
  kernel.run();
  int wrong = 0;
  for (std::uint32_t i = 0; i < 4096; ++i) {
    const std::uint32_t x = i % 64, y = i / 64;
    const bool stored = x >= 32 && x < 60 && y >= 24 && y < 30;
    const std::uint32_t want = (y - 24) * 32 + (x - 32) + 1;
    wrong += kernel.output[i] != (stored ? want : AsyncKernel::kUntouched);
  }
  CHECK(wrong == 0);
  AsyncKernel missing = corner(swizzles, 41);
  spec.address = reinterpret_cast<std::uint64_t>(missing.output.data());
  missing.map = runtime::emulator::encode_emulated_tensor_map(spec);
  has(missing.fault(), "nobody has written it");
}

}  // namespace kiln::testing
