// Selects the pieces of query tiles that a CTA computes where CTAs may share the keys of a tile:
// QueryTiles' interface.
//
// Where pieces are known without a look at all lengths, known_pieces.cuh says which they are, else
// sequence_shares.cuh. Both have one walk, as a walk for each takes long to compile.
#pragma once
#include "/kiln/attention/sm90/known_pieces.cuh"
#include "/kiln/attention/sm90/sequence_shares.cuh"
#include "/kiln/attention/sm90/shape.cuh"

namespace kiln {

// The sizes of a tile, which kernels that compute know when they are compiled; and words of the
// scheduler warp, which has no register for them beside three math warpgroups (D64).
template <class Config>
struct SharedTileSize {
  static_assert(kKeptWords * 4 <= kAttentionScheduleBytes,
                "attention sm_90a: the words that a schedule keeps");
  __device__ __forceinline__ static constexpr int block_q() { return 64 * Config::kGroups; }
  __device__ __forceinline__ static constexpr int block_kv() { return Config::kBlockKv; }
  __device__ __forceinline__ static void keep(KeptWord word, u32 value) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) store_word(at(word), value);
    __syncwarp();
  }
  __device__ __forceinline__ static u32 kept(KeptWord word) { return load_word(at(word)); }

 private:
  __device__ __forceinline__ static u32 at(KeptWord word) {
    return AttentionSm90Shape<Config>::schedule() + static_cast<u32>(word) * 4;
  }
};

template <class Config, class Variant>
class SharedPieces {
 public:
  static constexpr bool kDraws = false;

  __device__ __forceinline__ SharedPieces(const AttentionVarlenParams& params,
                                          const Variant& variant)
      : known_(params, variant), shares_(params, variant) {}

  // Takes the next piece; false after the last.
  __device__ __forceinline__ bool has_tile() {
    return known_.serves() ? known_.take(taken_) : shares_.take(taken_);
  }
  // Requires: has_tile() has returned true.
  __device__ __forceinline__ const SequencePiece& tile() const { return taken_; }
  __device__ __forceinline__ void advance() const {}

 private:
  KnownPieces<SharedTileSize<Config>, Variant> known_;
  SequenceShares<SharedTileSize<Config>, Variant> shares_;
  SequencePiece taken_;
};

}  // namespace kiln
