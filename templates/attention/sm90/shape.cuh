// How the sm_90a attention kernel divides its shared memory.
//
//   | Q stages | K stages | V stages | output rows, or bytes of keys or values, or none
//   | factors of rows, or the logits' growth and places of keys, or none | barriers | walk
//   | schedule |
//
// A tile of rows is stored as slabs, [rows][128 bytes], in the copy engine's 128-byte swizzle, so
// it is an operand of wgmma as it is. Columns past the head dim are zeros in the last slab. Each
// math warpgroup owns 64 rows of Q and of the output.
#pragma once
#include "/kiln/attention/arguments.cuh"
#include "/kiln/attention/cache.cuh"
#include "/kiln/base/frag.cuh"
#include "/kiln/base/layout.cuh"
#include "/kiln/sm90/ring.cuh"
#include "/kiln/sm90/tensor_copy.cuh"
#include "/kiln/sm90/warpgroup.cuh"
#include "/kiln/sm90/wgmma.cuh"

namespace kiln {

template <class Config>
struct AttentionSm90Shape {
  using Element = typename Config::Element;
  using Keys = KeysOf<Config>;
  // Bytes are multiplied by bytes, for which two warps transpose the values: see transpose.cuh.
  static constexpr bool kMultipliesBytes = sizeof(typename Keys::Query) == 1;
  static constexpr u32 kTransposingWarps = 2;
  // A warpgroup widens the elements of a quantised cache: see convert.cuh.
  static constexpr bool kConverts = Keys::kQuantized && !kMultipliesBytes;
  static constexpr u32 kConvertingWarps = 4;
  static constexpr AttentionFactors kFactors = kMultipliesBytes ? AttentionFactors::bytes
                                               : kConverts      ? AttentionFactors::widened
                                                                : AttentionFactors::halves;
  // As wgmma takes them.
  using Key = conditional<kConverts, f16, typename Keys::Element>;
  using Weight = conditional<kMultipliesBytes, f8_e4m3, Key>;
  // Two warps gather the keys and values of pages of few rows; from larger ones the copy engine
  // brings boxes, whose pages one warp looks up for the keys and another one for the values.
  static constexpr bool kCopiesPages = Config::Storage::kPaged && !kConverts && !kMultipliesBytes;
  static constexpr u32 kGatheringWarps = kAttentionGatheringWarps;
  // Queries must be f16 then too: see scaled_queries.cuh.
  static constexpr bool kScalesQueries = kConverts && !is_same<Element, f16>;
  static constexpr u32 kScalingWarps = 2;
  static constexpr int kGroups = Config::kGroups;
  static constexpr int kBlockQ = 64 * kGroups, kBlockKv = Config::kBlockKv;
  static constexpr int kSlabColumns = 128 / sizeof(Key);
  static constexpr int kSlabs = ceil_div(Config::kHeadDim, kSlabColumns);
  static constexpr int kSlabsV = ceil_div(Config::kHeadDimV, kSlabColumns);
  static_assert(sizeof(Element) == 2, "attention sm_90a: Element must be kiln::f16 or kiln::bf16");
  static_assert(Config::kHeadDim % 8 == 0 && Config::kHeadDim <= 256 &&
                    Config::kHeadDimV % 8 == 0 && Config::kHeadDimV <= 256,
                "attention sm_90a: head dims must be multiples of 8 up to 256");
  static_assert(kGroups >= 1 && kGroups <= 3, "attention sm_90a: 1 to 3 math warpgroups");
  static_assert(kBlockKv % (32 / sizeof(Key)) == 0 && kBlockKv <= 256,
                "attention sm_90a: kBlockKv must be a multiple of 16, or 32 for bytes, up to 256");

  using ScoreMap = FragMap<1, kBlockKv / 8>;
  using OutMap = FragMap<1, Config::kHeadDimV / 8>;

  // Weights are the A operand of the second product, two or four to a register.
  static constexpr int kWeightRegisters = kBlockKv * sizeof(Weight) / 8;

  static constexpr u32 kQSlabBytes = kBlockQ * 128, kKvSlabBytes = kBlockKv * 128;
  static constexpr u32 kQBytes = kSlabs * kQSlabBytes;
  static constexpr u32 kKBytes = kSlabs * kKvSlabBytes;
  // Transposed, a row of V has 128 keys, and there is one for each column.
  static constexpr u32 kVSlabBytes =
      kMultipliesBytes ? round_up(Config::kHeadDimV, 16) * 128 : kKvSlabBytes;
  static constexpr u32 kVBytes =
      (kMultipliesBytes ? ceil_div(kBlockKv, 128) : kSlabsV) * kVSlabBytes;
  static constexpr u32 kOutBytes = kSlabsV * kQSlabBytes;
  static_assert(!Keys::kQuantized || !Config::kStagedOutput,
                "attention sm_90a: outputs from registers");
  __device__ __forceinline__ static constexpr int raw_row_bytes(int dim) {
    return attention_sm90_raw_row_bytes(dim);
  }
  static constexpr u32 kRawKBytes = kConverts ? kBlockKv * raw_row_bytes(Config::kHeadDim) : 0;
  static constexpr u32 kRawVStageBytes = kSlabsV * kKvSlabBytes;
  static constexpr u32 kRawVBytes = kConverts          ? kBlockKv * raw_row_bytes(Config::kHeadDimV)
                                    : kMultipliesBytes ? kAttentionRawStages * kRawVStageBytes
                                                       : 0;

  using QRing = Ring<Config::kQStages>;
  using KvRing = Ring<Config::kStages>;
  using RawRing = Ring<kAttentionRawStages>;
  using WalkRing = Ring<kAttentionWalkStages>;

  static constexpr u32 kKAt = Config::kQStages * kQBytes;
  static constexpr u32 kVAt = kKAt + Config::kStages * kKBytes;
  static constexpr u32 kOutAt = kVAt + Config::kStages * kVBytes;
  static constexpr u32 kRawAt = kOutAt + (Config::kStagedOutput ? kOutBytes : 0);
  static constexpr u32 kFactorsAt = kRawAt + kRawKBytes + kRawVBytes;
  static constexpr u32 kGrowthAt = kFactorsAt + (kConverts ? Config::kQStages * kBlockQ * 4 : 0);
  static constexpr u32 kPlacesAt =
      kGrowthAt + (Config::kTilts ? Config::kQStages * 8 * kAttentionTiltBytes : 0);
  static constexpr u32 kBarriersAt =
      kPlacesAt + (Config::kTilts ? kBlockKv * kAttentionTiltBytes : 0);
  static constexpr u32 kKRingAt = kBarriersAt + QRing::kBytes;
  static constexpr u32 kVRingAt = kKRingAt + KvRing::kBytes;
  static constexpr u32 kWalkRingAt = kVRingAt + KvRing::kBytes;
  static constexpr u32 kLandedAt = kWalkRingAt + WalkRing::kBytes;  // see load.cuh
  static constexpr u32 kRawRingAt = kLandedAt + 16;
  static constexpr u32 kGatheredAt = kRawRingAt + (kMultipliesBytes ? RawRing::kBytes : 0);
  static constexpr u32 kWalkAt =
      kGatheredAt + (kFactors == AttentionFactors::halves ? KvRing::kBytes : 0);
  static constexpr u32 kScheduleAt = kWalkAt + kAttentionWalkStages * kAttentionWalkBytes;
  static constexpr u32 kUsedBytes = kScheduleAt + kAttentionScheduleBytes;
  static constexpr u32 kSharedBytes = attention_sm90_shared_bytes(
      Config::kHeadDim, Config::kHeadDimV, kBlockQ, kBlockKv, Config::kStages, Config::kQStages,
      Config::kStagedOutput, kFactors, Config::kTilts);
  static_assert(Config::kTilts ? kUsedBytes <= kSharedBytes : kUsedBytes == kSharedBytes,
                "attention sm_90a: the host must ask for the shared memory that the kernel uses");
  static_assert(kSharedBytes <= kAttentionSm90MostShared,
                "attention sm_90a: shared memory is 227 KB");

  __device__ __forceinline__ static u32 base() {
    extern __shared__ __align__(1024) unsigned char swizzled_bytes[];
    return shared_address(swizzled_bytes);
  }
  __device__ __forceinline__ static u32 q(u32 stage) { return base() + stage * kQBytes; }
  __device__ __forceinline__ static u32 k(u32 stage) { return base() + kKAt + stage * kKBytes; }
  __device__ __forceinline__ static u32 v(u32 stage) { return base() + kVAt + stage * kVBytes; }
  __device__ __forceinline__ static u32 row_factors(u32 q_stage) {
    return base() + kFactorsAt + q_stage * kBlockQ * 4;
  }
  __device__ __forceinline__ static u32 places() { return base() + kPlacesAt; }
  __device__ __forceinline__ static u32 growth(u32 q_stage) {
    return base() + kGrowthAt + q_stage * 8 * kAttentionTiltBytes;
  }
  __device__ __forceinline__ static u32 raw_k() { return base() + kRawAt; }
  __device__ __forceinline__ static u32 raw_v() { return base() + kRawAt + kRawKBytes; }
  __device__ __forceinline__ static u32 raw_v(u32 stage) {
    return raw_v() + stage * kRawVStageBytes;
  }
  __device__ __forceinline__ static u32 walk(u32 stage) {
    return base() + kWalkAt + stage * kAttentionWalkBytes;
  }
  __device__ __forceinline__ static u32 schedule() { return base() + kScheduleAt; }
  // Two barriers say that boxes have landed which a warp changes before they are announced. Where
  // queries are scaled there is one for each stage of Q, for which the scaling warps wait; else one
  // of Q and one of V, for which the copying warp waits before it clears rows.
  static_assert(Config::kQStages <= 2, "attention sm_90a: one or two stages of Q");
  __device__ __forceinline__ static u32 landed_q(u32 stage) {
    return base() + kLandedAt + stage * 8;
  }
  __device__ __forceinline__ static u32 landed_v() { return landed_q(1); }
  // At these, threads arrive when rows of keys, or of values, that they have copied are there.
  __device__ __forceinline__ static u32 gathered_k(u32 stage) {
    return base() + kGatheredAt + stage * 8;
  }
  __device__ __forceinline__ static u32 gathered_v(u32 stage) {
    return gathered_k(Config::kStages + stage);
  }
  __device__ __forceinline__ static QRing q_ring() { return {base() + kBarriersAt}; }
  __device__ __forceinline__ static KvRing k_ring() { return {base() + kKRingAt}; }
  __device__ __forceinline__ static KvRing v_ring() { return {base() + kVRingAt}; }
  __device__ __forceinline__ static RawRing raw_ring() { return {base() + kRawRingAt}; }
  // The copy engine brings values here: those that other warps transpose have stages of their own.
  using LoadedVRing = conditional<kMultipliesBytes, RawRing, KvRing>;
  __device__ __forceinline__ static LoadedVRing loaded_v_ring() {
    if constexpr (kMultipliesBytes)
      return raw_ring();
    else
      return v_ring();
  }
  __device__ __forceinline__ static u32 loaded_v() { return kMultipliesBytes ? raw_v(0) : v(0); }
  __device__ __forceinline__ static WalkRing walk_ring() { return {base() + kWalkRingAt}; }

  // Called by one thread, which then calls fence_barrier_init(). Keys and values are announced by
  // the thread that asks the copy engine for them, by each warp that converts or transposes some,
  // or by one warp for those that gather.
  __device__ __forceinline__ static void init_barriers(bool gathers) {
    constexpr u32 kMathWarps = 4 * kGroups;
    constexpr u32 kKeyWarps = kConverts ? kConvertingWarps : 1;
    constexpr u32 kValueWarps = kMultipliesBytes ? kTransposingWarps : kKeyWarps;
    constexpr bool kOneWarpCopies = !kCopiesPages && !kConverts && !kMultipliesBytes;
    q_ring().init(kMathWarps, kScalesQueries ? kScalingWarps : 1);
    k_ring().init(kMathWarps, kKeyWarps);
    v_ring().init(kMathWarps, kValueWarps);
    if constexpr (kMultipliesBytes) raw_ring().init(kTransposingWarps);
    const u32 other_warps = kOneWarpCopies ? 0 : gathers ? kGatheringWarps : kValueWarps;
    walk_ring().init(kMathWarps + 1 + other_warps + (kScalesQueries ? kScalingWarps : 0));
    if constexpr (kCopiesPages) {
      for (u32 stage = 0; stage < 2 * Config::kStages; ++stage) {
        init_barrier(gathered_k(stage), kGatheringWarps * 32);
      }
    }
    if constexpr (!Config::Storage::kEndsInZeros || kScalesQueries) init_barrier(landed_q(0), 1);
    init_barrier(landed_q(1), 1);
  }
};

}  // namespace kiln
