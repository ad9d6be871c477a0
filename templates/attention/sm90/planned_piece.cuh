// A plan tells a CTA that shares the keys of query tiles with others how many pieces it has, and up
// to kAttentionPlannedPieces of these. A CTA that has more finds them by itself.
//
//   an entry     words 0 and 1   2       3   4  5  6          7
//   of a piece   key             count   -   b  h  first_row  first_q
//                8      9        10      11                   12, 13         14, 15
//                len_q  first_k  len_kv  piece | pieces<<16   steps of keys  -
//
// Key and count are in the first of a CTA's entries alone.
#pragma once
#include "/kiln/attention/sm90/sequence_tile.cuh"
#include "/kiln/attention/varlen/plan_entry.cuh"

namespace kiln {

__device__ __forceinline__ u32 first_planned_piece() {
  return blockIdx.x * kAttentionPlannedPieces;
}

// Says whether the CTA's pieces are all in the call's plan. Requires: it has one.
__device__ __forceinline__ bool has_planned_pieces(const AttentionVarlenParams& p) {
  const uint4 head = __ldg(plan_entry_at(p, first_planned_piece()));
  check_plan_key(p, head);
  return head.z <= kAttentionPlannedPieces;
}

// Reads the `index`-th piece; returns whether there is one.
__device__ __forceinline__ bool load_planned_piece(const AttentionVarlenParams& p, u32 index,
                                                   SequencePiece& piece) {
  const u32 first = first_planned_piece();
  if (index >= __ldg(&plan_entry_at(p, first)->z)) return false;
  const PlanEntry entry = load_plan_entry(p, first + index);
  const uint4 place = entry.words[1], lengths = entry.words[2], steps = entry.words[3];
  piece.b = place.x, piece.h = place.y, piece.first_row = place.z, piece.first_q = place.w;
  piece.len_q = lengths.x, piece.first_k = lengths.y, piece.len_kv = lengths.z;
  piece.piece = lengths.w & 0xffff, piece.pieces = lengths.w >> 16;
  piece.steps = {static_cast<int>(steps.x), static_cast<int>(steps.y)};
  piece.h_kv = quotient(piece.h, p.group);
  piece.entry = entry_at(p, piece.b);
  piece.first_cta = blockIdx.x - piece.piece;
  return true;
}

// Called by one thread.
__device__ __forceinline__ void store_planned_piece(const AttentionVarlenParams& p, u32 index,
                                                    const SequencePiece& piece) {
  const auto word = [](int number) { return static_cast<u32>(number); };
  // A whole tile has no place among pieces.
  const u32 place = piece.pieces > 1 ? word(piece.piece) : 0;
  const PlanEntry entry{{{},
                         {word(piece.b), word(piece.h), word(piece.first_row), word(piece.first_q)},
                         {word(piece.len_q), word(piece.first_k), word(piece.len_kv),
                          place | word(piece.pieces) << 16},
                         {word(piece.steps.begin), word(piece.steps.end), 0, 0}}};
  store_plan_entry(p, first_planned_piece() + index, entry);
}
// Called by the same thread after all pieces.
__device__ __forceinline__ void store_planned_count(const AttentionVarlenParams& p, u32 count) {
  *plan_entry_at(p, first_planned_piece()) = {plan_key_word(p, 0), plan_key_word(p, 1), count, 0};
}

}  // namespace kiln
