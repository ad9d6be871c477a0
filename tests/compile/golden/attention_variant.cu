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

struct UserVariant : kiln::VariantDefaults {
  struct {
    kiln::Slot<float> strength;
    kiln::Slot<int> reach;
    kiln::VariantTensor<kiln::bf16, 3> bias;
  } arguments;
  static constexpr bool kTransformsLogits = true;
  static constexpr bool kMasks = true;
  __device__ __forceinline__ float logits(float logit, const kiln::Position& at) const {
    [[maybe_unused]] const int b = at.b, h = at.h, h_kv = at.h_kv, row = at.row,
                               q = at.q, kv = at.kv, len_q = at.len_q,
                               len_kv = at.len_kv;
    [[maybe_unused]] const float strength = arguments.strength.value;
    [[maybe_unused]] const int reach = arguments.reach.value;
    [[maybe_unused]] const float bias = kiln::to_float(arguments.bias.read(at.h, at.row, at.kv));
    return
#line 1 "variant logits"
(
#line 1 "variant logits"
logit + strength * bias
);
#line 1 "kernel.cu"
  }
  __device__ __forceinline__ bool keep(const kiln::Position& at) const {
    [[maybe_unused]] const int b = at.b, h = at.h, h_kv = at.h_kv, row = at.row,
                               q = at.q, kv = at.kv, len_q = at.len_q,
                               len_kv = at.len_kv;
    [[maybe_unused]] const float strength = arguments.strength.value;
    [[maybe_unused]] const int reach = arguments.reach.value;
    [[maybe_unused]] const float bias = kiln::to_float(arguments.bias.read(at.h, at.row, at.kv));
    return
#line 1 "variant mask"
(
#line 1 "variant mask"
q - kv < reach
);
#line 1 "kernel.cu"
  }
  static constexpr bool kTilesBySequence = true;
  static constexpr bool kRangeFollowsKeep = true;
  __device__ __forceinline__ bool may_show(const kiln::MaskBox& box) const {
    return kiln::may_be_less(box.distance, kiln::point(kiln::near(static_cast<int>(arguments.reach.value))));
  }
  __device__ __forceinline__ bool may_hide(const kiln::MaskBox& box) const {
    return kiln::may_be_at_most(kiln::point(kiln::near(static_cast<int>(arguments.reach.value))), box.distance);
  }
  __device__ __forceinline__ kiln::Tile tile(const kiln::TileRows& rows, int kv_first,
                                             int kv_last) const {
    return kiln::tile_of(*this, rows, kv_first, kv_last);
  }
  __device__ __forceinline__ kiln::Interval keys_within(const kiln::MaskBox& box) const {
    kiln::MaskBox left1 = box;
    kiln::keep_less(left1.distance, kiln::point(kiln::near(static_cast<int>(arguments.reach.value))));
    const kiln::Interval keys2 = left1.keys();
    return keys2;
  }
  __device__ __forceinline__ kiln::Range kv_range(const kiln::TileRows& rows) const {
    return kiln::range_of(*this, rows);
  }
  static constexpr bool kMasksByRange = true;
  __device__ __forceinline__ kiln::Range visible(const kiln::Position& row) const {
    return kiln::run_of_keys(row, ((row.q - kiln::near(static_cast<int>(arguments.reach.value))) + 1), row.len_kv);
  }
};
using Variant = kiln::Variants<kiln::Causal, UserVariant>;

extern "C" __global__ void __launch_bounds__(Config::kWarps * 32, 1)
kiln_kernel(const __grid_constant__ kiln::AttentionArgs<Variant> args) {
  kiln::flash_attention<Config, Variant>(args);
}
