// These functions estimate what the rows of the sm_90a kernels cost where sequences have lengths of
// their own. The host knows bounds of the lengths, how many queries there are in all, and how many
// keys there are if these are packed.
#pragma once
#include "jit/attention/sm90_rows.h"

namespace kiln {

// Whether all sequences have as many queries as the bound says.
bool have_equal_queries(const AttentionProblem& problem);
// Whether another launch computes all sequences but one, see varlen_choice.cpp.
bool decodes_others(const AttentionProblem& problem, const AttentionSm90Config& config);
// Whether long and short tiles, as a triangle has, even out the multiprocessors' work.
bool evens_out(const AttentionProblem& problem);
bool is_triangle(const AttentionProblem& problem);
// Whether there is one causal sequence, of which CTAs draw the tiles of the most keys first. With
// heads of 64 columns, the rule for all triangles chooses no worse.
bool is_drawn_triangle(const AttentionProblem& problem);
// Whether sequences differ: they have far fewer queries, or keys, than if each had as many as it
// may have. A single one with far fewer keys has a loose bound.
bool is_mixed(const AttentionProblem& problem);
// Whether tiles take times of their own: those of several mixed sequences of many rows.
bool has_mixed_tiles(const AttentionProblem& problem);

// The query tiles of a row have rows of one head of the call, or of all that share a KV head.
struct TileForm {
  int heads = 1, queries = 0;  // rows of a tile: queries of each head
  std::int64_t columns = 0;    // tiles of the same queries
  std::int64_t tiles = 0;      // of all sequences, see queries_of_others()

  TileForm(const AttentionProblem& problem, int tile_heads, const AttentionSm90Config& config);
};

// Rows of all heads where that makes fewer tiles: few queries of one head fill no tile.
TileForm form_of(const AttentionProblem& problem, const AttentionSm90Config& config, int sm_count);
// The query tiles of a row, in rounds of the multiprocessors.
double rounds_of(const AttentionProblem& problem, const AttentionSm90Config& config, int sm_count);
// A key costs a row so many products of rows.
double rows_of(const AttentionSm90Config& config);

// How the tiles of a launch of one sequence are cut, see sm90/known_pieces.cuh.
struct AloneCut {
  std::int64_t whole = 0;   // the first tiles, which are not: so many for each CTA
  std::int64_t pieces = 0;  // of each of the others, at most; 0: see sm90/sequence_shares.cuh
  double rounds = 0;        // that take as long as the longest CTA
};

// Cuts the tiles that fill no round, as if all had the same keys. Other launches have equal shares
// of all tiles, and so have those where that serves better; sequence_shares.cuh decides likewise
// for several sequences.
AloneCut cut_alone(const AttentionProblem& problem, const AttentionSm90Config& config,
                   const TileForm& form, int sm_count);

// The time of a row's whole tiles, and of shares of its tiles, which are cut one by one or end to
// end: in products of rows and keys of a multiprocessor.
double cost_of_whole(const AttentionProblem& problem, int row, int sm_count);
double cost_of_shares(const AttentionProblem& problem, int row, int sm_count);

}  // namespace kiln
