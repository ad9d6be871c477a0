#include "tests/emulator/earlier_launch.h"

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace kiln::testing {
namespace {

// A launch of CTAs that each rewrite a part of memory with what it holds: an address and bytes.
constexpr std::string_view kRewrite = R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry rewrite(.param .align 8 .b8 parts[512])
{
  .reg .b64 %d<5>;
  .reg .b32 %r;
  .reg .pred %p;
  mov.b64 %d0, parts;
  mov.u32 %r, %ctaid.x;
  mad.wide.u32 %d0, %r, 16, %d0;
  ld.param.u64 %d1, [%d0];
  ld.param.u64 %d2, [%d0+8];
  mov.u32 %r, %tid.x;
  cvt.u64.u32 %d3, %r;
LOOP:
  setp.ge.u64 %p, %d3, %d2;
  @%p bra END;
  add.u64 %d4, %d1, %d3;
  ld.global.u8 %r, [%d4];
  st.global.u8 [%d4], %r;
  add.u64 %d3, %d3, 1024;
  bra LOOP;
END:
  ret;
}
)";

}  // namespace

void launch_earlier(runtime::Device& device, std::span<const runtime::MemorySpan> spans) {
  const auto kernel = device.load({{}, kRewrite, "rewrite", 0});
  std::array<std::uint64_t, 64> parts{};
  std::vector<runtime::MemorySpan> written;
  for (runtime::MemorySpan span : spans) {
    parts[written.size() * 2] = span.address, parts[written.size() * 2 + 1] = span.bytes;
    span.written = true;
    written.push_back(span);
  }
  runtime::LaunchShape shape;
  shape.grid[0] = static_cast<unsigned>(written.size());
  shape.block[0] = 1024;
  shape.precedes_programmatic = true;
  device.launch(*kernel, shape, nullptr, std::as_bytes(std::span(parts)), written);
}

}  // namespace kiln::testing
