#include "tests/emulated/async_kernel.h"

#include <cstring>

#include "runtime/emulator/emulated_device.h"
#include "runtime/emulator/faults.h"

namespace kiln::testing {

AsyncKernel::AsyncKernel() {
  for (std::size_t i = 0; i < input.size(); ++i) input[i] = static_cast<std::uint32_t>(i * 3 + 7);
  for (std::uint32_t& word : output) word = kUntouched;
}

std::string AsyncKernel::ptx() const {
  return R"(.version 8.0
.target sm_90a
.address_size 64
.visible .entry kernel(.param .align 64 .b8 map_parameter[128], .param .u64 input,
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

}  // namespace kiln::testing
