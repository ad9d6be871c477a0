// What attention's kernels are specialised for, and the built-in options that are rows of data: a
// new one is a row here, its code in templates/attention/builtin_variants.cuh, and its place in the
// signatures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "jit/op/field.h"
#include "jit/op/specialization.h"
#include "kiln/attention.h"

namespace kiln {

struct AttentionProblem;

// causal_each: a flag in device memory says for each sequence whether it is causal, with or without
// a window. tree: a word for each query says which of its sequence's last keys it sees.
enum class Mask : std::uint8_t { none, causal, window, causal_each, tree };
inline constexpr Named kMaskNames[] = {{"none", Mask::none},
                                       {"causal", Mask::causal},
                                       {"window", Mask::window},
                                       {"causal_each", Mask::causal_each},
                                       {"tree", Mask::tree}};

// How the keys of a call's sequences are stored. Dense: all sequences have the same lengths, which
// the host knows. Ragged, paged: each has its own, in device memory.
enum class Storage : std::uint8_t { dense, ragged, paged };
inline constexpr Named kStorageNames[] = {
    {"dense", Storage::dense}, {"ragged", Storage::ragged}, {"paged", Storage::paged}};

// The bytes that kernels read or write at once of a row of q, k, v or out where these are aligned;
// of a quantised out, four elements.
inline constexpr int kAttentionVectorBytes = 16;
inline constexpr int kQuantizedOutputBytes = 4;

// Head dims are multiples of 8 up to the first, or the second for q, k and v alike: its tiles share
// the columns of v among warps.
inline constexpr int kMostHeadDim = 256, kWideHeadDim = 512;
constexpr bool may_meet(std::int64_t head_dim, std::int64_t head_dim_v) {
  return head_dim == head_dim_v || (head_dim <= kMostHeadDim && head_dim_v <= kMostHeadDim);
}

// As Traits.
struct AttentionTraits {
  DType q = DType::bf16, k = DType::bf16, v = DType::bf16, out = DType::bf16;
  Mask mask = Mask::none;
  bool softcap = false;
  bool alibi = false;
  bool aligned = true;  // q, k, v and out may be read and written by kAttentionVectorBytes at once
  DType sinks = DType::none;
  DType attn_mask = DType::none;  // boolean: hides logits; a float: is added to them
  bool mask_pairs = false;        // attn_mask is read two keys at a time, see reads_pairs()
  Storage storage = Storage::dense;
  std::uint16_t head_dim = 0;
  std::uint16_t head_dim_v = 0;
  bool spread = false;        // keys are spread over devices, and positions decide about something
  bool byte_queries = false;  // q has the dtype of k, of one byte; `q` is what is computed with
  // Keys and values are those of a quantised cache, which a launch ahead has turned into q's dtype:
  // their scales apply. See copy_keys.h.
  bool widened_ahead = false;
  std::uint8_t reserved[13] = {};
  Digest128 variant{};  // zero = none

  bool has_variant() const { return (variant[0] | variant[1]) != 0; }
  // What a row must serve: see code_of() in variant_arguments.h. Rows are chosen by the traits
  // alone, so the digest of a Variant says it.
  static constexpr std::uint64_t kIndexesByKey = 1, kMasks = 2, kBoundsRows = 4, kTilts = 8,
                                 kTiltsPast = 16, kBoundsElements = 32, kMasksAlone = 64,
                                 kFillsTiles = 128, kHasDistanceBias = 256, kKeepsLogits = 512,
                                 kReadsTiles = 1024;
  static constexpr std::uint64_t kCodeBits =
      kIndexesByKey | kMasks | kBoundsRows | kTilts | kTiltsPast | kBoundsElements | kMasksAlone |
      kFillsTiles | kHasDistanceBias | kKeepsLogits | kReadsTiles;
  bool variant_indexes_by_key() const { return (variant[1] & kIndexesByKey) != 0; }
  bool variant_masks() const { return (variant[1] & kMasks) != 0; }
  bool variant_bounds_rows() const { return (variant[1] & kBoundsRows) != 0; }
  bool variant_tilts() const { return (variant[1] & kTilts) != 0; }
  bool variant_bounds_elements() const { return (variant[1] & kBoundsElements) != 0; }
  bool variant_tilts_past() const { return (variant[1] & kTiltsPast) != 0; }
  bool variant_keeps_logits() const { return (variant[1] & kKeepsLogits) != 0; }
  // It changes no logits, or tilts them, and what it reads at a key leaves registers free.
  bool variant_masks_alone() const { return (variant[1] & kMasksAlone) != 0; }
  // Tiles are known to be shown whole.
  bool variant_fills_tiles() const { return (variant[1] & kFillsTiles) != 0; }
  // Tensors decide which tiles are skipped.
  bool variant_reads_blocks() const { return (variant[1] & kReadsTiles) != 0; }
  bool variant_reads_tiles() const { return (variant[1] & (kIndexesByKey | kReadsTiles)) != 0; }
  // It adds a bias by distance, which all keys far away have in common.
  bool variant_has_distance_bias() const { return (variant[1] & kHasDistanceBias) != 0; }
  void set_dtype(DType dtype) { q = k = v = out = dtype; }
  bool has_quantized_cache() const { return size_of(k) == 1; }
  bool has_scales() const { return has_quantized_cache() || widened_ahead; }
  bool has_quantized_output() const { return size_of(out) == 1; }
  bool operator==(const AttentionTraits&) const = default;
};
static_assert(is_traits<AttentionTraits>);

// Where a built-in option is evaluated: at every logit, before attn_mask and all masks, or at the
// end of a row.
enum class Hook : std::uint8_t { logits, row_finish };

// Rows of one hook are evaluated, and their run-time values packed, in the order of the table.
struct BuiltinVariant {
  Field field;  // of the traits: a flag, or a choice of dtypes
  Hook hook;
  // In the template's source. {} stands for the dtype; for a flag, whether the mask is causal.
  const char* type;
  // A number of the call's, of which 0 stands for none.
  float AttentionOptions::* number = nullptr;
  float most = std::numeric_limits<float>::max();
  // Else: checks the option, sets the trait, packs the values.
  void (*add)(const AttentionOptions& options, AttentionProblem& problem) = nullptr;
  std::uint8_t sample;  // of the trait: the kernel that compile tests walk
};

void add_alibi(const AttentionOptions& options, AttentionProblem& problem);
void add_sinks(const AttentionOptions& options, AttentionProblem& problem);

inline constexpr BuiltinVariant kBuiltinVariants[] = {
    {.field = {.name = "softcap",
               .kind = FieldKind::flag,
               .offset = offsetof(AttentionTraits, softcap),
               .otherwise = "false",
               .help = "the call has a softcap of the logits",
               .says = " softcap",
               .when = Says::when_set},
     .hook = Hook::logits,
     .type = "kiln::Softcap",
     .number = &AttentionOptions::softcap,
     // tanh has a relative error of up to 2^-16.4: at this cap that is 0.011 of the largest logits;
     // float16 rounds such logits by up to 0.25.
     .most = 1000.0f,
     .sample = 1},
    {.field = {.name = "alibi",
               .kind = FieldKind::flag,
               .offset = offsetof(AttentionTraits, alibi),
               .otherwise = "false",
               .help = "the call has ALiBi slopes",
               .says = " alibi",
               .when = Says::when_set},
     .hook = Hook::logits,
     .type = "kiln::Alibi<{}>",
     .add = add_alibi,
     .sample = 1},
    {.field = {.name = "sinks",
               .kind = FieldKind::choice,
               .offset = offsetof(AttentionTraits, sinks),
               .values = kFloatNames,
               .help = "dtype of the sinks; null = none",
               .says = " sinks",
               .when = Says::when_set,
               .null_if_unset = true},
     .hook = Hook::row_finish,
     .type = "kiln::Sinks<{}>",
     .add = add_sinks,
     .sample = static_cast<std::uint8_t>(DType::bf16)},
};

inline bool is_set(const BuiltinVariant& variant, const AttentionTraits& traits) {
  return byte_at(&traits, variant.field) != 0;
}
inline void set_byte(const BuiltinVariant& variant, AttentionTraits& traits, std::uint8_t byte) {
  reinterpret_cast<std::uint8_t*>(&traits)[variant.field.offset] = byte;
}

}  // namespace kiln
