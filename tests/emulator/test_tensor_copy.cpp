// Tensor copies: boxes, bounds, swizzles, multicasts, reductions, and what misuse reports.
#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "runtime/emulator/async/tensor_map.h"
#include "tests/emulator/async_kernel.h"
#include "tests/support/catch.h"

namespace kiln::testing {

using runtime::TensorMapElement;
using runtime::TensorMapSpec;
using runtime::TensorMapSwizzle;

namespace {

// The input as rows of 64 words' worth of 16-bit elements, 128 a row: 32 rows of 256 bytes.
TensorMapSpec matrix(const std::vector<std::uint32_t>& words) {
  return {.address = reinterpret_cast<std::uint64_t>(words.data()),
          .element = TensorMapElement::u16,
          .rank = 2,
          .dims = {128, 32},
          .strides_bytes = {256},
          .box = {64, 16},
          .swizzle = TensorMapSwizzle::none};
}

AsyncKernel tensor_load(int x, int y) {
  AsyncKernel kernel;
  kernel.body = kInitOne + "mov.b32 %r1, " + std::to_string(x) + ";\nmov.b32 %r2, " +
                std::to_string(y) + R"(;
  @%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%bar], 2048;
  @%p0 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%s], [%map, {%r1, %r2}], [%bar];
)" + kWaitOne + "mov.u32 %r20, 512;\n" +
                kDump;
  return kernel;
}

// What a box of 16 rows of 64 elements must hold: word w of row r, or zero.
std::uint32_t element_of(const AsyncKernel& kernel, int column, int row) {
  if (column < 0 || column >= 128 || row < 0 || row >= 32) return 0;
  const std::uint32_t word = kernel.input[static_cast<std::size_t>(row * 64 + column / 2)];
  return column % 2 != 0 ? word >> 16 : word & 0xffff;
}

}  // namespace

TEST_CASE("tensor loads: boxes, bounds and swizzles", "[emulator]") {
  struct Place {
    int x, y;
  };
  for (const Place at : {Place{0, 0}, {64, 16}, {32, 8}, {96, 25}, {-16, -3}, {16, 40}}) {
    for (const TensorMapSwizzle swizzle : {TensorMapSwizzle::none, TensorMapSwizzle::b128}) {
      CAPTURE(at.x, at.y);
      AsyncKernel kernel = tensor_load(at.x, at.y);
      for (std::size_t i = 0; i < kernel.input.size(); ++i) {
        kernel.input[i] = static_cast<std::uint32_t>(i * 0x9e3779b1u);
      }
      TensorMapSpec spec = matrix(kernel.input);
      spec.swizzle = swizzle;
      kernel.map = runtime::emulator::encode_emulated_tensor_map(spec);
      kernel.run();
      int wrong = 0;
      for (int row = 0; row < 16; ++row) {
        for (int word = 0; word < 32; ++word) {
          const std::uint32_t want = element_of(kernel, at.x + 2 * word, at.y + row) |
                                     element_of(kernel, at.x + 2 * word + 1, at.y + row) << 16;
          const int placed = swizzle == TensorMapSwizzle::none ? word : word ^ (row % 8 * 4);
          wrong += kernel.output[static_cast<std::size_t>(row * 32 + placed)] != want;
        }
      }
      CHECK(wrong == 0);
    }
  }
}

// As an H200 was seen to place them: rows are as far apart as the span is wide.
TEST_CASE("swizzles and rows that do not fill their span", "[emulator]") {
  for (const auto& [swizzle, span] :
       {std::pair{TensorMapSwizzle::b32, 32}, std::pair{TensorMapSwizzle::b64, 64},
        std::pair{TensorMapSwizzle::b128, 128}}) {
    for (int inner = 16; inner <= span; inner += 16) {
      CAPTURE(span, inner);
      AsyncKernel kernel = tensor_load(0, 0);
      kernel.options.checks = false;  // what lies between the rows is dumped, too
      TensorMapSpec spec = matrix(kernel.input);
      spec.swizzle = swizzle;
      spec.box = {static_cast<std::uint32_t>(inner / 2), 32};
      kernel.map = runtime::emulator::encode_emulated_tensor_map(spec);
      replace(kernel.body, "[%bar], 2048", "[%bar], " + std::to_string(inner * 32));
      replace(kernel.body, "%r20, 512", "%r20, " + std::to_string(span * 8));
      kernel.run();
      int wrong = 0;
      for (int at = 0; at < span * 32; at += 4) {
        const int place = at ^ ((at >> 7 & (span / 16 - 1)) << 4);
        const int row = at / span, word = at % span / 4;
        const bool filled = word * 4 < inner;
        wrong += (kernel.output[static_cast<std::size_t>(place / 4)] ==
                  kernel.input[static_cast<std::size_t>(row * 64 + word)]) != filled;
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("the tf32 type rounds what it loads", "[emulator]") {
  AsyncKernel kernel = tensor_load(0, 0);
  const std::array<std::uint32_t, 8> values{0x3f800001, 0x3f801000, 0x3f801001, 0x3f803000,
                                            0x7f800001, 0x00000001, 0xbf800fff, 0x3f801fff};
  const std::array<std::uint32_t, 8> want{0x3f800000, 0x3f800000, 0x3f802000, 0x3f804000,
                                          0x7fffe000, 0x00000000, 0xbf800000, 0x3f802000};
  std::copy(values.begin(), values.end(), kernel.input.begin());
  TensorMapSpec spec = matrix(kernel.input);
  spec.element = TensorMapElement::tf32;
  spec.dims = {64, 32};
  spec.box = {32, 16};
  kernel.map = runtime::emulator::encode_emulated_tensor_map(spec);
  kernel.run();
  CHECK(std::equal(want.begin(), want.end(), kernel.output.begin()));
}

TEST_CASE("a tensor store drops what lies outside; reductions add", "[emulator]") {
  AsyncKernel kernel;
  TensorMapSpec spec = matrix(kernel.output);
  spec.element = TensorMapElement::u32;
  spec.dims = {60, 30};
  spec.box = {32, 8};
  spec.strides_bytes = {256};
  for (const bool reduces : {false, true}) {
    spec.swizzle = TensorMapSwizzle::none;
    kernel.map = runtime::emulator::encode_emulated_tensor_map(spec);
    kernel.body = fill(256) + "mov.b32 %r1, 40; mov.b32 %r2, -2;\n@%p0 " +
                  std::string(reduces ? "cp.reduce" : "cp") +
                  ".async.bulk.tensor.2d.global.shared::cta" + (reduces ? ".add" : "") +
                  ".tile.bulk_group [%map, {%r1, %r2}], [%s];\n"
                  "@%p0 cp.async.bulk.commit_group;\n" +
                  kWaitRead;
    kernel.output.assign(4096, 1000);
    kernel.run();
    int wrong = 0;
    for (std::uint32_t i = 0; i < 4096; ++i) {
      const std::uint32_t x = i % 64, y = i / 64;
      const bool stored = x >= 40 && x < 60 && y < 6;
      const std::uint32_t value = (y + 2) * 32 + (x - 40) + 1;
      wrong += kernel.output[i] != (stored ? value + (reduces ? 1000 : 0) : 1000);
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("a multicast lands in every block of its mask", "[emulator]") {
  AsyncKernel kernel = tensor_load(64, 3);
  kernel.blocks = kernel.cluster = 2;
  kernel.map = runtime::emulator::encode_emulated_tensor_map(matrix(kernel.input));
  // Each block issues half of the rows to both.
  kernel.body = kInitOne + R"(
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  shl.b32 %r2, %rank, 4;
  shl.b32 %r3, %rank, 11;
  add.u32 %r3, %s, %r3;
  mov.b32 %r1, 64;
  @%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%bar], 4096;
  .reg .b16 %h;
  mov.b16 %h, 3;
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  @%p0 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r3], [%map, {%r1, %r2}], [%bar], %h;
)" + kWaitOne + R"(
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  mov.u32 %r20, 1024;
  shl.b32 %r4, %rank, 12;
  cvt.u64.u32 %d1, %r4;
  add.u64 %out, %out, %d1;
)" + kDump;
  for (const std::uint64_t seed : {0, 5, 6}) {
    kernel.options.seed = seed;
    kernel.run();
    int wrong = 0;
    for (std::size_t i = 0; i < 2048; ++i) {
      const std::size_t row = i % 1024 / 32, word = i % 32;
      wrong += kernel.output[i] != kernel.input[row * 64 + 32 + word];
    }
    CHECK(wrong == 0);
  }
  replace(kernel.body, "mov.b16 %h, 3;", "mov.b16 %h, 5;");
  has(kernel.fault(), "a multicast to the blocks 0x5 of a cluster of 2");
}

TEST_CASE("misuse of tensor maps is told", "[emulator]") {
  AsyncKernel kernel = tensor_load(0, 0);
  has(kernel.fault(), "is no tensor map");
  TensorMapSpec spec = matrix(kernel.input);
  kernel.map = runtime::emulator::encode_emulated_tensor_map(spec);
  replace(kernel.body, "[%s], [%map", "[%s+64], [%map");
  has(kernel.fault(), "must be a multiple of 128");
  replace(kernel.body, "[%s+64], [%map", "[%s], [%map");
  ++kernel.map.words[3];
  has(kernel.fault(), "is no tensor map");
  spec.dims = {128, 64, 2};
  spec.strides_bytes = {256, 256};
  spec.rank = 3;
  spec.box = {64, 16, 1};
  kernel.map = runtime::emulator::encode_emulated_tensor_map(spec);
  has(kernel.fault(), "2 dimensions by a tensor map of 3");
  spec.rank = 2;
  spec.dims = {128, 1 << 20};
  kernel.map = runtime::emulator::encode_emulated_tensor_map(spec);
  replace(kernel.body, "mov.b32 %r2, 0", "mov.b32 %r2, 60");
  has(kernel.fault(), "out-of-bounds");
  spec.strides_bytes = {100};
  CHECK_THROWS_AS(runtime::emulator::encode_emulated_tensor_map(spec), std::invalid_argument);
}

TEST_CASE("tensor maps survive their encoding and tensormap.replace", "[emulator]") {
  AsyncKernel kernel;
  TensorMapSpec spec = matrix(kernel.input);
  spec.rank = 5;
  spec.dims = {128, 2, std::uint64_t{1} << 32, 4, 5};
  spec.strides_bytes = {256, 512, (std::uint64_t{1} << 40) - 16, 64};
  spec.box = {64, 2, 256, 4, 5};
  spec.swizzle = TensorMapSwizzle::b128;
  const auto back = runtime::emulator::decode_emulated_tensor_map(
      runtime::emulator::encode_emulated_tensor_map(spec));
  REQUIRE(back.has_value());
  CHECK(back->address == spec.address);
  CHECK(back->element == spec.element);
  CHECK(back->rank == 5);
  CHECK(back->dims == spec.dims);
  CHECK(back->strides_bytes == spec.strides_bytes);
  CHECK(back->box == spec.box);
  CHECK(back->swizzle == spec.swizzle);

  // A map in global memory, moved on by one row.
  kernel = tensor_load(0, 0);
  const runtime::TensorMap map =
      runtime::emulator::encode_emulated_tensor_map(matrix(kernel.input));
  kernel.output.resize(8192);
  const auto base = reinterpret_cast<std::uintptr_t>(kernel.output.data());
  const std::size_t at = ((base + 16384 + 63) / 64 * 64 - base) / 4;
  std::memcpy(kernel.output.data() + at, &map, sizeof map);
  kernel.body = "add.u64 %map, %out, " + std::to_string(at * 4) + R"(;
  add.u64 %d0, %in, 256;
  setp.eq.u32 %p0, %t, 0;
  @%p0 tensormap.replace.tile.global_address.global.b1024.b64 [%map], %d0;
)" + kernel.body;
  kernel.run();
  CHECK(kernel.output[0] == kernel.input[64]);
  CHECK(kernel.output[511] == kernel.input[64 * 16 + 31]);
}

namespace {

// Loads rows 3 to 10 and columns 32 to 63 of the input, as words in rows of 64, by a map that the
// kernel makes: in shared memory, then copied to the second half of the output.
AsyncKernel device_made_map() {
  AsyncKernel kernel;
  kernel.output.resize(8192 + 32);
  const auto base = reinterpret_cast<std::uintptr_t>(kernel.output.data());
  const std::size_t at = (base + 16384 + 127) / 128 * 128 - base;
  kernel.body = "add.u64 %map, %out, " + std::to_string(at) + R"(;
  add.u32 %r10, %s, 8192;
  shl.b32 %r1, %t, 2;
  add.u32 %r1, %r10, %r1;
  mov.u32 %r2, 0;
  st.shared.u32 [%r1], %r2;
  bar.warp.sync -1;
  setp.eq.u32 %p0, %t, 0;
  @!%p0 bra MADE;
  mov.u32 %r3, 64;
  mov.u64 %d1, 256;
  tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r10], %in;
  tensormap.replace.tile.rank.shared::cta.b1024.b32 [%r10], 1;
  tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%r10], 0, 32;
  tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%r10], 1, 8;
  tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r10], 0, %r3;
  tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r10], 1, 32;
  tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%r10], 0, %d1;
  tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%r10], 0, 1;
  tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%r10], 1, 1;
  tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%r10], 7;
  tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [%r10], 0;
  tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%r10], 3;
  tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%r10], 0;
MADE:
  bar.warp.sync -1;
  tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned
      [%map], [%r10], 128;
  fence.proxy.tensormap::generic.acquire.gpu [%map], 128;
)" + kInitOne + R"(
  mov.b32 %r1, 32;
  mov.b32 %r2, 3;
  @%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%bar], 1024;
  @%p0 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
      [%s], [%map, {%r1, %r2}], [%bar];
)" + kWaitOne + "mov.u32 %r20, 256;\n" +
                kDump;
  return kernel;
}

}  // namespace

TEST_CASE("a kernel makes a tensor map", "[emulator]") {
  AsyncKernel kernel = device_made_map();
  kernel.run();
  int wrong = 0;
  for (std::size_t i = 0; i < 256; ++i) {
    const std::size_t row = i / 32, word = i % 32;
    wrong += kernel.output[row * 32 + (word ^ (row % 8 * 4))] !=
             kernel.input[(row + 3) * 64 + 32 + word];
  }
  CHECK(wrong == 0);
  // It is the map that the host would have made.
  const runtime::TensorMap want = runtime::emulator::encode_emulated_tensor_map(
      {.address = reinterpret_cast<std::uint64_t>(kernel.input.data()),
       .element = TensorMapElement::f32,
       .rank = 2,
       .dims = {64, 32},
       .strides_bytes = {256},
       .box = {32, 8},
       .swizzle = TensorMapSwizzle::b128});
  const std::span<const std::byte> bytes = std::as_bytes(std::span(kernel.output));
  const std::span<const std::byte> map = std::as_bytes(std::span(&want, 1));
  CHECK(std::search(bytes.begin(), bytes.end(), map.begin(), map.end()) != bytes.end());
}

TEST_CASE("misuse of tensormap.replace and cp_fenceproxy is told", "[emulator]") {
  AsyncKernel kernel = device_made_map();
  const std::string body = kernel.body;
  const auto report = [&](const std::string& what, const std::string& with) {
    kernel.body = body;
    replace(kernel.body, what, with);
    return kernel.fault();
  };
  has(report("elemtype.shared::cta.b1024.b32 [%r10], 7",
             "elemtype.shared::cta.b1024.b32 [%r10], 9"),
      "at most the swizzle's 128 bytes");
  has(report("[%r10], 0, %d1", "[%r10], 0, 100"), "must be a multiple of 16");
  has(report("[%r10], 1, 1;", "[%r10], 1, 2;"), "element strides of 1 only, not 2");
  has(report("mov.u32 %r2, 0;", "mov.u32 %r2, 1;"), "is no tensor map, and not zeros");
  has(report("st.shared.u32 [%r1], %r2;", ""), "nobody has written it");
  has(report("[%r10], 128;", "[%r10], 64;"), "the size must be 128");
  has(report("add.u32 %r10, %s, 8192;", "add.u32 %r10, %s, 8256;"), "must be a multiple of 128");
  has(report("tensormap.cp_fenceproxy", "@%p0 tensormap.cp_fenceproxy"), "divergence");
  for (const auto& [what, with] :
       {std::pair{"swizzle_mode.shared::cta.b1024.b32 [%r10], 3",
                  "swizzle_mode.shared::cta.b1024.b32 [%r10], 4"},
        std::pair{"elemtype.shared::cta.b1024.b32 [%r10], 7",
                  "elemtype.shared::cta.b1024.b32 [%r10], 8"},
        std::pair{"fill_mode.shared::cta.b1024.b32 [%r10], 0",
                  "fill_mode.shared::cta.b1024.b32 [%r10], 1"},
        std::pair{"global_dim.shared::cta.b1024.b32 [%r10], 1",
                  "global_dim.shared::cta.b1024.b64 [%r10], 1"},
        std::pair{"tensormap::generic.release.gpu.sync", "tensormap::generic.release.sync"}}) {
    CAPTURE(with);
    has(report(what, with), "unknown instruction");
  }
}

}  // namespace kiln::testing
