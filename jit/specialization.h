// What is baked into one kernel: comparable and hashable as words, without strings or pointers.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kiln/kiln.h"

namespace kiln {

enum class Family : std::uint8_t { attention, gemm };
enum class Mask : std::uint8_t { none, causal, window };
enum class Major : std::uint8_t { k, mn };  // which dimension of a GEMM operand is contiguous
// How tensors may be read or written: by elements alone; by boxes of a tensor map, as bases and
// strides are multiples of 16 bytes; or also by whole vectors of 16 bytes, of which their rows
// consist.
enum class Access : std::uint8_t { elements, boxes, vectors };
// What a scale is a factor of: all outputs, or each row (scale_a) or column (scale_b) its own.
enum class Scale : std::uint8_t { none, tensor, vector };

using Words = std::array<std::uint64_t, 4>;

struct AttentionTraits {
  DType dtype = DType::bf16;
  Mask mask = Mask::none;
  bool softcap = false;
  bool alibi = false;
  DType sinks = DType::none;
  bool aligned = true;
  std::uint16_t head_dim = 0;
  std::uint16_t head_dim_v = 0;
  DType attn_mask = DType::none;  // boolean: hides logits; a float: is added to them
  bool mask_pairs = false;        // attn_mask is read two keys at a time, see reads_pairs()
  std::uint8_t reserved[4] = {};
  Digest128 variant{};  // zero = none

  bool operator==(const AttentionTraits&) const = default;
};

struct GemmTraits {
  DType input = DType::bf16;
  DType output = DType::bf16;
  DType bias = DType::none;
  DType residual = DType::none;
  Accumulator accumulator = Accumulator::f32;
  Major major_a = Major::k;
  Major major_b = Major::k;
  Activation activation = Activation::none;
  Access loads = Access::vectors;   // of a and b
  Access stores = Access::vectors;  // of out; `boxes` where bias or residual admit no vectors
  DType input_b = DType::none;      // none: like `input`, which is a's
  Scale scale_a = Scale::none;
  Scale scale_b = Scale::none;
  bool fast = false;       // f8 sums stay in the tensor cores
  Gate gate = Gate::none;  // not none: the activation is gated
  std::uint8_t reserved[1] = {};
  Digest128 epilogue{};  // of the user's expression; zero = none

  DType dtype_b() const { return input_b == DType::none ? input : input_b; }

  bool operator==(const GemmTraits&) const = default;
};

static_assert(sizeof(AttentionTraits) == sizeof(Words) && sizeof(GemmTraits) == sizeof(Words));
static_assert(std::has_unique_object_representations_v<AttentionTraits> &&
                  std::has_unique_object_representations_v<GemmTraits>,
              "traits are compared and hashed as words, so they must have no padding");

class Specialization {
 public:
  Specialization() = default;
  Specialization(int arch, int row, const AttentionTraits& traits)
      : Specialization(Family::attention, arch, row, std::bit_cast<Words>(traits)) {}
  Specialization(int arch, int row, const GemmTraits& traits)
      : Specialization(Family::gemm, arch, row, std::bit_cast<Words>(traits)) {}

  Family family() const { return static_cast<Family>(head_ & 0xff); }
  int arch() const { return static_cast<int>(head_ >> 8 & 0xff); }    // index into arch_table()
  int row() const { return static_cast<int>(head_ >> 16 & 0xffff); }  // of the config table
  // Requires: family() is the one named.
  AttentionTraits attention() const { return std::bit_cast<AttentionTraits>(traits_); }
  GemmTraits gemm() const { return std::bit_cast<GemmTraits>(traits_); }

  std::size_t hash() const {
    std::uint64_t h = head_ * 0x9e3779b97f4a7c15u;
    for (std::uint64_t word : traits_) {
      h ^= word;
      h *= 0xff51afd7ed558ccdu;
      h ^= h >> 32;
    }
    return h;
  }
  bool operator==(const Specialization&) const = default;

 private:
  Specialization(Family family, int arch, int row, const Words& traits)
      : head_(static_cast<std::uint64_t>(family) | static_cast<std::uint64_t>(arch) << 8 |
              static_cast<std::uint64_t>(row) << 16),
        traits_(traits) {}

  std::uint64_t head_ = 0;
  Words traits_{};
};

}  // namespace kiln
