// Operands in registers: how a warp's lanes share a matrix. The same for mma.sync and for the 16
// rows that each warp of a wgmma owns.
//
// A register holds 32 / bits elements, neighbours in k; four lanes side by side cover one chunk of
// k, the warp's eight quads cover eight rows (of A) or columns (of B). A's registers go over its
// halves of eight rows first, then over the chunks of k.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "runtime/emulator/machine/machine.h"
#include "runtime/emulator/matrix/elements.h"

namespace kiln::runtime::emulator {

inline constexpr int kQuads = 8;

template <Element kElement>
struct Fragments {
  using Value = ElementValue<kElement>;
  static constexpr int kBits = kElements[static_cast<std::size_t>(kElement)].bits;
  static constexpr int kPerRegister = 32 / kBits;
  static constexpr int kChunk = 4 * kPerRegister;

  // To [8 * halves][k].
  static void load_a(const Warp& warp, std::span<const Ref> refs, int halves, int k, Value* a) {
    for (int chunk = 0; chunk < k / kChunk; ++chunk) {
      for (int half = 0; half < halves; ++half) {
        const std::uint32_t* bits = warp.u32(refs[static_cast<std::size_t>(chunk * halves + half)]);
        for (int quad = 0; quad < kQuads; ++quad) {
          Value* out = a + (half * kQuads + quad) * k + chunk * kChunk;
          for (int i = 0; i < kChunk; ++i) {
            out[i] = element_value<kElement>(bits[quad * 4 + i / kPerRegister] >>
                                             (i % kPerRegister * kBits));
          }
        }
      }
    }
  }

  // To [k][8].
  static void load_b(const Warp& warp, std::span<const Ref> refs, int k, Value* b) {
    for (int chunk = 0; chunk < k / kChunk; ++chunk) {
      const std::uint32_t* bits = warp.u32(refs[static_cast<std::size_t>(chunk)]);
      for (int i = 0; i < kChunk; ++i) {
        Value* out = b + (chunk * kChunk + i) * kQuads;
        for (int quad = 0; quad < kQuads; ++quad) {
          out[quad] = element_value<kElement>(bits[quad * 4 + i / kPerRegister] >>
                                              (i % kPerRegister * kBits));
        }
      }
    }
  }
};

// Accumulators: [8 * halves][columns]. Lane 4 * q + t holds of every eight columns 2t and 2t + 1,
// in rows q and q + 8. Of 32 bits, register (column / 8 * halves + half) * 2 + e is column 2t + e;
// of f16, register column / 8 * halves + half holds both.
struct AccumulatorShape {
  int halves, columns;
};
template <class Value>
void load_accumulators(const Warp& warp, std::span<const Ref> refs, AccumulatorShape shape,
                       Value* c) {
  for (int r = 0; r < static_cast<int>(refs.size()); ++r) {
    const std::uint32_t* bits = warp.u32(refs[static_cast<std::size_t>(r)]);
    const int block = r / 2, row = block % shape.halves * kQuads;
    Value* out = c + row * shape.columns + block / shape.halves * 8 + r % 2;
    for (int lane = 0; lane < kLanes; ++lane) {
      out[lane / 4 * shape.columns + lane % 4 * 2] = std::bit_cast<Value>(bits[lane]);
    }
  }
}
template <class Value>
void store_accumulators(Warp& warp, std::span<const Ref> refs, AccumulatorShape shape,
                        const Value* c) {
  for (int r = 0; r < static_cast<int>(refs.size()); ++r) {
    if (refs[static_cast<std::size_t>(r)] == kNoRef) continue;
    std::uint32_t* bits = warp.u32_out(refs[static_cast<std::size_t>(r)]);
    const int block = r / 2, row = block % shape.halves * kQuads;
    const Value* in = c + row * shape.columns + block / shape.halves * 8 + r % 2;
    for (int lane = 0; lane < kLanes; ++lane) {
      bits[lane] = std::bit_cast<std::uint32_t>(in[lane / 4 * shape.columns + lane % 4 * 2]);
    }
  }
}
inline void load_accumulators_f16(const Warp& warp, std::span<const Ref> refs,
                                  AccumulatorShape shape, float* c) {
  for (int r = 0; r < static_cast<int>(refs.size()); ++r) {
    const std::uint32_t* bits = warp.u32(refs[static_cast<std::size_t>(r)]);
    float* out = c + r % shape.halves * kQuads * shape.columns + r / shape.halves * 8;
    for (int lane = 0; lane < kLanes; ++lane) {
      float* pair = out + lane / 4 * shape.columns + lane % 4 * 2;
      pair[0] = real_element<Element::f16>(bits[lane]);
      pair[1] = real_element<Element::f16>(bits[lane] >> 16);
    }
  }
}
inline void store_accumulators_f16(Warp& warp, std::span<const Ref> refs, AccumulatorShape shape,
                                   const float* c) {
  for (int r = 0; r < static_cast<int>(refs.size()); ++r) {
    if (refs[static_cast<std::size_t>(r)] == kNoRef) continue;
    std::uint32_t* bits = warp.u32_out(refs[static_cast<std::size_t>(r)]);
    const float* in = c + r % shape.halves * kQuads * shape.columns + r / shape.halves * 8;
    for (int lane = 0; lane < kLanes; ++lane) {
      const float* pair = in + lane / 4 * shape.columns + lane % 4 * 2;
      bits[lane] = f16_bits(pair[0]) | f16_bits(pair[1]) << 16;
    }
  }
}

}  // namespace kiln::runtime::emulator
