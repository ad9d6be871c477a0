#include "/kiln/attention/flash_attention.cuh"

struct Config {
  using Element = kiln::bf16;
  static constexpr int kHeadDim = 128;
  static constexpr int kHeadDimV = 128;
  static constexpr int kBlockQ = 64;
  static constexpr int kBlockKv = 64;
  static constexpr int kWarps = 4, kTeams = 1, kPartners = 1, kStages = 1;
  static constexpr bool kPacked = false, kSplits = false;
  static constexpr bool kAligned = true;
};
#include "/kiln/attention/mask_box.cuh"

namespace user_variant_0 {
namespace kiln {
using namespace ::kiln;
using VariantDefaults = DefaultHooks<struct Own>;
}  // namespace kiln
struct UserVariant : kiln::VariantDefaults {
  struct {
    kiln::VariantTable<kiln::i64, 1> bucket;
  } arguments;
  static constexpr bool kTransformsLogits = true;
  static constexpr bool kMasks = false;
  __device__ __forceinline__ float logits(float logit, const kiln::Position& at) const {
    [[maybe_unused]] const int b = at.b, h = at.h, h_kv = at.h_kv, row = at.row,
                               q = at.q, kv = at.kv, len_q = at.len_q,
                               len_kv = at.len_kv;
    [[maybe_unused]] const auto& bucket = arguments.bucket;
    return
#line 1 "variant 0 logits"
(
#line 1 "variant 0 logits"
logit + bucket(kv - q)
);
#line 1 "kernel.cu"
  }
};
}  // namespace user_variant_0
namespace user_variant_1 {
namespace kiln {
using namespace ::kiln;
using VariantDefaults = DefaultHooks<struct Own>;
}  // namespace kiln
struct UserVariant : kiln::VariantDefaults {
  struct {
    kiln::VariantTable<int, 2> doc;
  } arguments;
  struct {
    kiln::ElementBounds doc_1;
  } element_bounds;
  static constexpr bool kTransformsLogits = false;
  static constexpr bool kMasks = true;
  __device__ __forceinline__ bool keep(const kiln::Position& at) const {
    [[maybe_unused]] const int b = at.b, h = at.h, h_kv = at.h_kv, row = at.row,
                               q = at.q, kv = at.kv, len_q = at.len_q,
                               len_kv = at.len_kv;
    [[maybe_unused]] const auto& doc = arguments.doc;
    return
#line 1 "variant 1 mask"
(
#line 1 "variant 1 mask"
kv % 2 == 0 && doc(b, q) == doc(b, kv)
);
#line 1 "kernel.cu"
  }
  static constexpr bool kTilesBySequence = true;
  static constexpr bool kRangeFollowsKeep = false;
  __device__ __forceinline__ bool may_show(const kiln::MaskBox& box) const {
    return (kiln::may_be_equal(kiln::remainder(box.kv, kiln::point(2)), kiln::point(0)) && kiln::may_be_equal(element_bounds.doc_1.at(box.b, box.q), element_bounds.doc_1.at(box.b, box.kv)));
  }
  __device__ __forceinline__ bool may_hide(const kiln::MaskBox& box) const {
    return (kiln::may_differ(kiln::remainder(box.kv, kiln::point(2)), kiln::point(0)) || kiln::may_differ(element_bounds.doc_1.at(box.b, box.q), element_bounds.doc_1.at(box.b, box.kv)));
  }
  __device__ __forceinline__ kiln::Tile tile(const kiln::TileRows& rows, int kv_first,
                                             int kv_last) const {
    return kiln::tile_of(*this, rows, kv_first, kv_last);
  }
  static constexpr bool kSearchesKeys = true;
  __device__ __forceinline__ kiln::Interval keys_within(const kiln::MaskBox& box) const {
    return box.kv;
  }
  __device__ __forceinline__ kiln::Range kv_range(const kiln::TileRows& rows) const {
    return kiln::compared_range_of(*this, rows);
  }
};
}  // namespace user_variant_1
using Variant = kiln::Variants<user_variant_0::UserVariant, user_variant_1::UserVariant>;
static_assert(sizeof(Variant) == Variant::kBytes || Variant::kBytes == 0, "the values of a list of variants must follow one another: derive each from kiln::VariantDefaults");

extern "C" __global__ void __launch_bounds__(Config::kWarps * 32, 1)
kiln_kernel(const __grid_constant__ kiln::AttentionArgs<Variant> args) {
  kiln::flash_attention<Config, Variant>(args);
}
