// How the sm_90a GEMM divides its work and its shared memory.
#pragma once
#include "/kiln/base/layout.cuh"
#include "/kiln/gemm/gate.cuh"
#include "/kiln/gemm/params.h"
#include "/kiln/gemm/scales.cuh"
#include "/kiln/gemm/tile.cuh"
#include "/kiln/sm90/ring.cuh"
#include "/kiln/sm90/tensor_copy.cuh"
#include "/kiln/sm90/wgmma.cuh"

namespace kiln {

// The order of gates and partners in an operand's tile: halves has the gates in the first half,
// eights alternates between eight gates and their partners.
enum class Pairs { none, halves, eights };

// One operand's kExtent rows (of A) or columns (of B) times 128 bytes of K, in shared memory in the
// layout of wgmma.cuh. Each of kCtas CTAs of a cluster loads an equal part of it for all of them.
//
// kPairs is the order of gates and partners in it, if it has any. The tensor map selects their
// columns of b with a dimension of extent two: before the batch dimension or, for eights, before
// that of the groups of eight gates each.
template <class Element, Major kMajor, int kExtent, int kCtas, Pairs kPairs = Pairs::none>
struct OperandSlab {
  static constexpr bool kKMajor = kMajor == Major::k;
  static constexpr int kBlockK = 128 / static_cast<int>(sizeof(Element));
  static constexpr u32 kBytes = kExtent * 128;
  static constexpr u32 kBlockBytes = 64 * 128;   // of 64 rows, or of a block of MN-major columns
  static constexpr int kPart = kExtent / kCtas;  // rows that one CTA loads
  static_assert(kKMajor || sizeof(Element) == 2,
                "gemm sm_90a: only 16-bit operands may have K along their columns");
  static_assert(kKMajor || kPart % 64 == 0,
                "gemm sm_90a: a CTA loads whole blocks of 64 columns of an operand");
  static_assert(kPairs == Pairs::none || (kCtas == 1 && kExtent % (kKMajor ? 16 : 128) == 0),
                "gemm sm_90a: the gates of a tile must be whole swizzle atoms of its own CTA");
  static_assert(kPairs != Pairs::eights || kKMajor,
                "gemm sm_90a: groups of eight gates need K along the rows");

  // Called by one thread; loads this CTA's part of the slab at row `mn` and depth `k`, the
  // `part`-th of those of the CTAs from rank `first_cta` on. If there are pairs, `mn` counts pairs.
  // `count`: of the slab's rows, kExtent or those of a tail, whose boxes `map` then has; where K is
  // not contiguous, whole blocks of 64 instead.
  __device__ __forceinline__ static void load(u32 slab, const TensorMap& map, u32 barrier, int mn,
                                              int k, int batch, u32 part, u32 first_cta,
                                              int count) {
    const int first = kCtas == 1 ? 0 : static_cast<int>(part) * kPart;
    const u16 ctas = static_cast<u16>(((1 << kCtas) - 1) << first_cta);
    if constexpr (kPairs == Pairs::eights) {
      load_box(slab, map, barrier, k, 0, 0, mn / 8, batch);
    } else if constexpr (kPairs == Pairs::halves && kKMajor) {
      load_box(slab, map, barrier, k, mn, 0, batch);  // both halves
    } else if constexpr (kPairs == Pairs::halves) {
#pragma unroll
      for (int i = 0; i < kExtent; i += 64) {
        const int half = i / (kExtent / 2);
        load_box(slab + i * 128, map, barrier, mn + i % (kExtent / 2), k, half, batch);
      }
    } else if constexpr (kKMajor) {
      load_one(slab + first * 128, map, barrier, k, mn + first, batch, ctas);
    } else {
#pragma unroll
      for (int i = 0; i < kPart; i += 64) {
        if (kCtas == 1 && i >= count) break;
        load_one(slab + (first + i) * 128, map, barrier, mn + first + i, k, batch, ctas);
      }
    }
  }

 private:
  __device__ __forceinline__ static void load_one(u32 destination, const TensorMap& map,
                                                  u32 barrier, int x, int y, int z, u16 ctas) {
    if constexpr (kCtas == 1) {
      load_box(destination, map, barrier, x, y, z);
    } else {
      load_box_multicast(destination, map, barrier, x, y, z, ctas);
    }
  }
};

// Shared memory of a CTA:
//
//   | stage 0: rows, columns | stage 1 | ... | output slabs of each math group | bias |
//   barriers | scales of blocks of stage 0, 1, ... |
//
// A kernel with splits computes one tile: its partial sums, slabs and bias reuse stage memory. The
// barriers of the sums are behind those of the stages.
//
// kGroups math warpgroups share a tile: each computes kTilesM times 64 rows of it and all columns.
// In a ping-pong kernel each has its own tile instead, and they take turns on the tensor cores.
template <class Config>
struct Sm90Shape {
  using Input = typename Config::Input;
  using Output = typename Config::Output;
  static constexpr int kBlockM = Config::kBlockM, kBlockN = Config::kBlockN;
  static constexpr int kBlockK = 128 / static_cast<int>(sizeof(Input));
  static constexpr int kTileGroups = Config::kPingPong ? 1 : Config::kGroups;  // per tile
  static constexpr int kTilesM = kBlockM / (64 * kTileGroups);
  static constexpr int kThreads = (Config::kGroups + 1) * 128;
  static constexpr int kRegisters = kBlockN / 2;  // accumulators of a thread for 64 rows
  // If outputs are gated, a thread holds both sums of a pair. The first half of a tile's columns
  // are gates or, if it is transposed, its rows alternate between eight gates and their partners;
  // of the two rows of 16 that a thread has, the first is a gate.
  static constexpr bool kGated = Config::kGate != Gate::none;
  static constexpr Pairs kPairs = !kGated            ? Pairs::none
                                  : Config::kSwapped ? Pairs::eights
                                                     : Pairs::halves;
  static constexpr int kRowFactor = Config::kSwapped ? kGateFactor<Config> : 1;
  // kOutputN counts a tile's columns of the output, or its rows if swapped; kOutputRows counts the
  // rows, or columns if swapped, that 64 rows of the product are.
  static constexpr int kOutputN = kBlockN / (kGateFactor<Config> / kRowFactor);
  static constexpr int kOutputRows = 64 / kRowFactor;
  static constexpr int kPartner =
      Config::kSwapped ? 2 : kRegisters / 2;  // accumulators from a gate to its partner

  // The CTAs of a cluster lie along M, so they share the columns.
  using Rows =
      OperandSlab<Input, Config::kMajorRows, kBlockM, 1, Config::kSwapped ? kPairs : Pairs::none>;
  using Columns = OperandSlab<Input, Config::kMajorColumns, kBlockN, Config::kCluster,
                              Config::kSwapped ? Pairs::none : kPairs>;
  using StageRing = Ring<Config::kStages>;

  static constexpr u32 kStageBytes = Rows::kBytes + Columns::kBytes;
  // Whether CTAs of a cluster share a tile: see split.cuh.
  static constexpr bool kSumsInCluster = Config::kSplits && !Config::kApart;
  static constexpr u32 kOutputSlabBytes =
      !kSumsInCluster ? 64 * 128
      : !Config::kSwapped
          ? 64 * 64
          : gemm_sm90_transposed_rows(kBlockN, 64, true, true) * 64 * sizeof(Output);
  static constexpr u32 kStagesEnd = Config::kStages * kStageBytes;
  static constexpr int kGroupSlabs = gemm_sm90_slabs(Config::kGroups);
  static constexpr u32 kSlabBytes = Config::kGroups * kGroupSlabs * kOutputSlabBytes;
  static constexpr int kBiasCount = Config::kSwapped ? kTilesM * 64 : kBlockN;  // of a group
  static constexpr u32 kBiasBytes = has_bias_room<Config>() ? Config::kGroups * kBiasCount * 4 : 0;
  // With parts that meet in memory, a word for each group comes first (gemm.cuh).
  static constexpr u32 kOutputAt = Config::kSplits ? 1024 : kStagesEnd;
  static constexpr u32 kOutputEnd = kOutputAt + kSlabBytes + kBiasBytes;
  static constexpr u32 kBarriersAt = Config::kSplits ? kStagesEnd : kOutputEnd;
  static constexpr u32 kSumBarriersAt = kBarriersAt + StageRing::kBytes;
  static constexpr u32 kSumBarrierBytes = Config::kSplits ? 32 : 0;

  // A stage's scales of blocks: one for each run of so many columns, then of rows.
  static constexpr Scale kScaleRows = Config::kSwapped ? Config::kScaleB : Config::kScaleA;
  static constexpr Scale kScaleColumns = Config::kSwapped ? Config::kScaleA : Config::kScaleB;
  static constexpr int kRowRun = gemm_scale_run(kBlockM, kScaleRows == Scale::blocks);
  static constexpr int kColumnRun = gemm_scale_run(kBlockN, kScaleColumns == Scale::blocks);
  static constexpr int kScaledRows = kBlockM / kRowRun, kScaledColumns = kBlockN / kColumnRun;
  static constexpr int kScaleWords =
      kBlockScaled<Config> ? gemm_scale_words(kScaledColumns, kScaledRows) : 0;
  // A stage is full when its producer has arrived, and each thread that copies scales: of at most
  // five of them, since more addresses would spill, or three of bytes, which are in registers, too.
  static constexpr int kOneWarp = kByteScales<Config> ? 96 : 160;
  static constexpr int kTwoWarps = kByteScales<Config> ? 192 : 256;
  static constexpr int kScaleThreads = kScaleWords == 0           ? 0
                                       : kScaleWords <= kOneWarp  ? 32
                                       : kScaleWords <= kTwoWarps ? 64
                                                                  : 96;
  static constexpr u32 kProducerArrivals = 1 + kScaleThreads;
  static constexpr u32 kScalesAt = kSumBarriersAt + kSumBarrierBytes;

  static_assert(!kBlockScaled<Config> || (Config::kPromoted && !kGated && Config::kCluster == 1 &&
                                          !Config::kPingPong && !Config::kResidualBoxes),
                "gemm sm_90a: scales of blocks are for promoted sums that are not gated, without "
                "shared columns, turns or boxes of a residual");
  static_assert(Config::kStages >= 2 && Config::kStages <= 16,
                "gemm sm_90a: kStages must be 2 to 16");
  static_assert(kTilesM >= 1 && kBlockM == kTilesM * 64 * kTileGroups,
                "gemm sm_90a: kBlockM must be a multiple of 64 for each warpgroup of a tile");
  static_assert(kBlockN % 8 == 0 && kBlockN <= 256,
                "gemm sm_90a: kBlockN must be a multiple of 8 up to 256");
  static_assert(kOutputEnd <= kBarriersAt,
                "gemm sm_90a: a kernel with splits needs stages as large as its slabs");
  static_assert(kStageBytes % 1024 == 0, "gemm sm_90a: stages must be whole swizzle atoms");

  static constexpr u32 kSharedBytes = kScalesAt + Config::kStages * kScaleWords * 4;
  static_assert(kSharedBytes == gemm_sm90_shared_bytes(kBlockM, kBlockN, Config::kStages,
                                                       Config::kGroups,
                                                       has_bias_room<Config>() ? kBiasCount : 0,
                                                       Config::kSplits, kScaleWords),
                "gemm sm_90a: the host must ask for the shared memory that the kernel uses");
  static_assert(kSharedBytes <= 227 * 1024, "gemm sm_90a: shared memory is 227 KB");

  __device__ __forceinline__ static u32 base() {
    extern __shared__ __align__(1024) unsigned char swizzled_bytes[];
    return shared_address(swizzled_bytes);
  }
  __device__ __forceinline__ static u32 rows(u32 stage) { return base() + stage * kStageBytes; }
  __device__ __forceinline__ static u32 columns(u32 stage) { return rows(stage) + Rows::kBytes; }
  __device__ __forceinline__ static u32 scales(u32 stage) {
    return base() + kScalesAt + stage * kScaleWords * 4;
  }
  __device__ __forceinline__ static StageRing ring() { return {base() + kBarriersAt}; }
};

}  // namespace kiln
