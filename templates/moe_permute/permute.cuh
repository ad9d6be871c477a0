// Sorts rows by experts: a counting sort, whose order is that of the pairs, and copies of the rows.
// A rendered kernel calls one of these with a Config of
//   Index      the dtype of the experts: int or i64
//   kAccess    bytes of an access: 1, 2, 4, 8 or 16; it divides rows, their distances and addresses
//   kOverlaps  sm_90 and later: moe_permute is a programmatic dependent launch after moe_count
// moe_count(params) counts the pairs of CTAs' tokens. moe_permute(params) sorts them and
// copies their rows. Where params.counts is null it is the only launch: each CTA then counts all
// pairs itself, which takes less time than another launch if they are few. Both launches have a CTA
// of kPermuteThreads threads for each params.tokens_each tokens. Atomic additions are of whole
// numbers, whose order does not show.
#pragma once
#include "/kiln/base/lanes.cuh"
#include "/kiln/base/launches.cuh"
#include "/kiln/base/pack.cuh"
#include "/kiln/moe_permute/params.h"

namespace kiln {

inline constexpr int kPermuteWarps = kPermuteThreads / 32;

// Returns the expert of a pair, or -1.
template <class Config>
__device__ __forceinline__ int expert_of(const PermuteParams& p, u32 pair) {
  const u32 token = pair / static_cast<u32>(p.top_k);
  const u32 k = pair - token * static_cast<u32>(p.top_k);
  const i64 expert = __ldg(static_cast<const typename Config::Index*>(p.experts) +
                           token * p.experts_at.token + k * p.experts_at.k);
  return expert >= 0 && expert < p.num_experts ? static_cast<int>(expert) : -1;
}

// The pairs of a CTA.
struct PairRange {
  u32 begin, end;

  __device__ __forceinline__ PairRange(const PermuteParams& p, u32 cta) {
    const i64 all = static_cast<i64>(p.tokens) * p.top_k;
    const i64 each = static_cast<i64>(p.tokens_each) * p.top_k;
    begin = static_cast<u32>(min(cta * each, all));
    end = static_cast<u32>(min((cta + 1) * each, all));
  }
};

// CTAs in a run: moe_count's numbers go on from the first of each run to its last. moe_permute then
// reads one number per run and expert; one per CTA would be 256 KB for 256 CTAs and 256 experts. In
// return, a CTA counts the pairs of up to this many CTAs.
inline constexpr u32 kRunBlocks = 8;

// Calls `of(pair, expert)` for the thread's pairs from `begin` to `end` that have an expert. Eight
// loads of a thread are under way: in a loop with a condition for each, every one waits for the one
// before.
template <class Config, class Of>
__device__ __forceinline__ void each_expert(const PermuteParams& p, u32 begin, u32 end, Of of) {
  constexpr int kBatch = 8;
  for (u32 first = begin + threadIdx.x; first < end; first += kBatch * kPermuteThreads) {
    int experts[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      experts[i] = expert_of<Config>(p, min(first + i * kPermuteThreads, end - 1));
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const u32 pair = first + i * kPermuteThreads;
      if (pair < end && experts[i] >= 0) of(pair, experts[i]);
    }
  }
}

// The counts of CTA i become the pairs of it and of the CTAs before it in its run.
template <class Config>
__device__ __forceinline__ void moe_count(const PermuteParams& p) {
  __shared__ u32 counts[kMostSortedExperts];
  let_dependents_begin<Config::kOverlaps>();
  counts[threadIdx.x] = 0;
  __syncthreads();
  const u32 begin = PairRange(p, blockIdx.x - blockIdx.x % kRunBlocks).begin;
  each_expert<Config>(p, begin, PairRange(p, blockIdx.x).end,
                      [&](u32, int expert) { atomicAdd(counts + expert, 1u); });
  __syncthreads();
  if (static_cast<int>(threadIdx.x) < p.num_experts) {
    p.counts[static_cast<i64>(blockIdx.x) * p.num_experts + threadIdx.x] = counts[threadIdx.x];
  }
}

// The shared memory of moe_permute.
struct SortMemory {
  u32 totals[kMostSortedExperts];  // the pairs of each expert; then where its next row lies
  u32 before[kMostSortedExperts];  // those of the CTAs before this one
  u16 of_warps[kPermuteWarps][kMostSortedExperts];  // a pass's pairs of the warps before each
  int rows[kPermuteThreads];                        // where a pass's pairs go, or -1
  u32 warp_sums[kPermuteWarps];
};

// Fills totals and before.
template <class Config>
__device__ __forceinline__ void count_pairs(const PermuteParams& p, const PairRange& range,
                                            SortMemory& memory) {
  memory.totals[threadIdx.x] = memory.before[threadIdx.x] = 0;
  __syncthreads();
  if (p.counts == nullptr) {
    const u32 all = static_cast<u32>(p.tokens) * static_cast<u32>(p.top_k);
    each_expert<Config>(p, 0, all, [&](u32 pair, int expert) {
      atomicAdd(memory.totals + expert, 1u);
      if (pair < range.begin) atomicAdd(memory.before + expert, 1u);
    });
  } else {
    // kPermuteThreads / experts threads share an expert; each adds up its counts of some runs.
    const u32 experts = p.num_experts, rows = kPermuteThreads / experts;
    const u32 expert = threadIdx.x % experts, row = threadIdx.x / experts;
    // The last CTA of a run has the count of the whole run. The CTA before this one has that of the
    // part of this CTA's run that comes first.
    u32 total = 0, before = 0;
    constexpr int kBatch = 8;
    const u32 step = rows * kRunBlocks, ends = row < rows ? gridDim.x : 0;
    for (u32 first = row * kRunBlocks; first < ends; first += kBatch * step) {
      u32 counts[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const u32 last = min(first + i * step + kRunBlocks, gridDim.x) - 1;
        counts[i] = __ldcg(p.counts + last * experts + expert);
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (first + i * step >= gridDim.x) break;
        total += counts[i];
        before += first + i * step + kRunBlocks <= blockIdx.x ? counts[i] : 0;
      }
    }
    if (row == 0 && blockIdx.x % kRunBlocks != 0) {
      before += __ldcg(p.counts + (blockIdx.x - 1) * experts + expert);
    }
    atomicAdd(memory.totals + expert, total);
    atomicAdd(memory.before + expert, before);
  }
  __syncthreads();
}

// Each thread has an expert. Returns where the CTA's first row of it lies, and where its rows end.
__device__ __forceinline__ uint2 scan_experts(SortMemory& memory) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const u32 total = memory.totals[threadIdx.x];
  u32 sum = sum_up_to_lane(total);
  if (lane == 31) memory.warp_sums[warp] = sum;
  __syncthreads();
  for (int i = 0; i < warp; ++i) sum += memory.warp_sums[i];
  return {sum - total + memory.before[threadIdx.x], sum};
}

// Finds the rows of one pass's pairs, of which each thread has one. `next`: where the next row of
// the thread's expert lies.
template <class Config>
__device__ __forceinline__ void place_pairs(const PermuteParams& p, u32 pair, u32 end, u32& next,
                                            SortMemory& memory) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const bool has_expert = static_cast<int>(threadIdx.x) < p.num_experts;
  if (has_expert) {
    memory.totals[threadIdx.x] = next;
#pragma unroll
    for (int i = 0; i < kPermuteWarps; ++i) memory.of_warps[i][threadIdx.x] = 0;
  }
  const int expert = pair < end ? expert_of<Config>(p, pair) : -1;
  __syncthreads();
  const u32 same = __match_any_sync(~0u, expert), earlier = same & ((1u << lane) - 1);
  if (expert >= 0 && earlier == 0) {
    memory.of_warps[warp][expert] = static_cast<u16>(__popc(same));
  }
  __syncthreads();
  if (has_expert) {
    u32 sum = 0;
#pragma unroll
    for (int i = 0; i < kPermuteWarps; ++i) {
      const u32 count = memory.of_warps[i][threadIdx.x];
      memory.of_warps[i][threadIdx.x] = static_cast<u16>(sum);
      sum += count;
    }
    next += sum;
  }
  __syncthreads();
  int row = -1;
  if (expert >= 0) {
    row = static_cast<int>(memory.totals[expert] + memory.of_warps[warp][expert] + __popc(earlier));
  }
  memory.rows[threadIdx.x] = row;
  if (pair < end) {
    const u32 token = pair / static_cast<u32>(p.top_k);
    const u32 k = pair - token * static_cast<u32>(p.top_k);
    p.inverse[token * p.inverse_at.token + k * p.inverse_at.k] = row;
  }
  __syncthreads();
}

// One access of a row, which a thread holds between its load and its stores.
template <int kBytes>
struct RowPiece {
  u32 words[ceil_div(kBytes, 4)];

  __device__ __forceinline__ void load(const u8* from, bool exists) {
#pragma unroll
    for (u32& word : words) word = 0;
    if constexpr (kBytes == 1) {
      if (exists) words[0] = *from;
    } else {
      load_once<kBytes>(words, from, exists);
    }
  }
  __device__ __forceinline__ void store(u8* to) const {
    if constexpr (kBytes == 1) {
      *to = static_cast<u8>(words[0]);
    } else {
      store_words<kBytes>(to, words);
    }
  }
};

// Copies the rows of a pass's tokens, each read once and written for each of its experts. A warp
// has a part of a row at a time.
template <class Config>
__device__ __forceinline__ void copy_rows(const PermuteParams& p, u32 first_token, u32 tokens,
                                          const SortMemory& memory) {
  constexpr int kAccess = Config::kAccess, kAccesses = 4;
  constexpr u32 kPart = 32 * kAccess * kAccesses;
  const u32 parts = (static_cast<u32>(p.row_bytes) + kPart - 1) / kPart;
  for (u32 i = threadIdx.x / 32; i < tokens * parts; i += kPermuteWarps) {
    const u32 token = i / parts;
    const int first = (i - token * parts) * kPart + threadIdx.x % 32 * kAccess;
    const u8* const from =
        static_cast<const u8*>(p.x) + (static_cast<i64>(first_token + token) * p.x_row + first);
    RowPiece<kAccess> pieces[kAccesses];
#pragma unroll
    for (int j = 0; j < kAccesses; ++j) {
      const int at = j * 32 * kAccess;
      pieces[j].load(from + at, first + at < p.row_bytes);
    }
    for (int k = 0; k < p.top_k; ++k) {
      const int row = memory.rows[token * p.top_k + k];
      if (row < 0) continue;
      u8* const to = static_cast<u8*>(p.out) + (row * p.out_row + first);
#pragma unroll
      for (int j = 0; j < kAccesses; ++j) {
        const int at = j * 32 * kAccess;
        if (first + at < p.row_bytes) pieces[j].store(to + at);
      }
    }
  }
}

template <class Config>
__device__ __forceinline__ void moe_permute(const PermuteParams& p) {
  static_assert(kMostSortedExperts == kPermuteThreads, "moe_permute: a thread has an expert");
  __shared__ SortMemory memory;
  const PairRange range(p, blockIdx.x);
  wait_for_launches<Config::kOverlaps>();
  count_pairs<Config>(p, range, memory);
  const uint2 rows = scan_experts(memory);
  if (blockIdx.x == 0 && static_cast<int>(threadIdx.x) < p.num_experts) {
    p.offsets[threadIdx.x * p.offsets_stride] = static_cast<int>(rows.y);
  }
  u32 next = rows.x;
  const u32 tokens_of_pass = kPermuteThreads / static_cast<u32>(p.top_k);
  const u32 pairs_of_pass = tokens_of_pass * p.top_k;
  const u32 first_token = blockIdx.x * p.tokens_each;
  u32 done = 0;  // tokens
  for (u32 begin = range.begin; begin < range.end; begin += pairs_of_pass) {
    const u32 end = min(begin + pairs_of_pass, range.end);
    place_pairs<Config>(p, begin + threadIdx.x, end, next, memory);
    copy_rows<Config>(p, first_token + done, (end - begin) / static_cast<u32>(p.top_k), memory);
    done += tokens_of_pass;
  }
}

}  // namespace kiln
