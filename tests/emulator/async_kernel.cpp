#include "tests/emulator/async_kernel.h"

#include <cstring>

#include "runtime/emulator/machine/emulated_device.h"
#include "runtime/emulator/machine/faults.h"

namespace kiln::testing {

AsyncKernel::AsyncKernel() {
  // A gap behind each: some allocators, the thread sanitizer's among them, give neighbours, and
  // what runs out of one would be within the other.
  input.reserve(input.size() + 2048);
  output.reserve(output.size() + 2048);
  for (std::size_t i = 0; i < input.size(); ++i) input[i] = static_cast<std::uint32_t>(i * 3 + 7);
  for (std::uint32_t& word : output) word = kUntouched;
}

std::string AsyncKernel::ptx() const {
  return R"(.version 8.0
.target sm_90a
.address_size 64
)" + before +
         R"(.visible .entry kernel(.param .align 64 .b8 map_parameter[128], .param .u64 input,
    .param .u64 output)
)" + directives +
         R"({
  .reg .b32 %r<32>, %t, %rank, %s, %bar;
  .reg .b64 %d<16>, %in, %out, %map;
  .reg .f32 %f<16>;
  .reg .pred %p<8>;
  .shared .align 1024 .b8 memory[)" +
         std::to_string(shared) + R"(];
  .shared .align 8 .b8 barriers[64];
  ld.param.u64 %in, [input];
  ld.param.u64 %out, [output];
  mov.b64 %map, map_parameter;
  cvta.param.u64 %map, %map;
  mov.u32 %t, %tid.x;
  mov.u32 %rank, %cluster_ctarank;
  mov.u32 %s, memory;
  mov.u32 %bar, barriers;
)" + body +
         R"(
  ret;
}
)";
}

void AsyncKernel::run() {
  struct {
    runtime::TensorMap map;
    std::uint64_t input, output;
  } arguments{map, reinterpret_cast<std::uint64_t>(input.data()),
              reinterpret_cast<std::uint64_t>(output.data())};
  const std::array<runtime::MemorySpan, 2> spans{
      runtime::MemorySpan{arguments.input, input.size() * 4, false},
      runtime::MemorySpan{arguments.output, output.size() * 4, true}};
  const std::string text = ptx();
  runtime::emulator::Run launch;
  launch.ptx = text;
  launch.entry = "kernel";
  launch.shape.grid = {blocks, 1, 1};
  launch.shape.block = {threads, 1, 1};
  launch.shape.cluster = {cluster, 1, 1};
  launch.arguments = std::as_bytes(std::span(&arguments, 1));
  launch.spans = spans;
  launch.options = options;
  runtime::emulator::run(launch);
}

std::string AsyncKernel::fault() {
  try {
    run();
  } catch (const runtime::emulator::EmulatorError& error) {
    return error.what();
  }
  return {};
}

const std::string kInitOne = R"(
  setp.eq.u32 %p0, %t, 0;
  @%p0 mbarrier.init.shared.b64 [%bar], 1;
  @%p0 fence.mbarrier_init.release.cluster;
  bar.sync 0;
)";
const std::string kWaitOne = R"(
W:
  mbarrier.try_wait.parity.shared.b64 %p1, [%bar], 0;
  @!%p1 bra W;
)";
const std::string kWaitRead = "cp.async.bulk.wait_group.read 0;\n";
const std::string kDump = R"(
  mov.u32 %r21, %t;
DUMP:
  setp.ge.u32 %p7, %r21, %r20;
  @%p7 bra DUMPED;
  shl.b32 %r22, %r21, 2;
  add.u32 %r23, %s, %r22;
  ld.shared.u32 %r24, [%r23];
  cvt.u64.u32 %d10, %r22;
  add.u64 %d10, %out, %d10;
  st.global.u32 [%d10], %r24;
  add.u32 %r21, %r21, 32;
  bra DUMP;
DUMPED:
)";
std::string fill(int count) {
  return "mov.u32 %r21, %t;\nFILL:\nshl.b32 %r22, %r21, 2;\nadd.u32 %r23, %s, %r22;\n"
         "add.u32 %r24, %r21, 1;\nst.shared.u32 [%r23], %r24;\nadd.u32 %r21, %r21, 32;\n"
         "setp.lt.u32 %p7, %r21, " +
         std::to_string(count) +
         ";\n@%p7 bra FILL;\nfence.proxy.async.shared::cta;\nbar.sync 0;\n"
         "setp.eq.u32 %p0, %t, 0;\n";
}

}  // namespace kiln::testing
