// The closed tables of the norms' kernels, and the pure functions that pick a row. A row's reason
// stands beside it in table.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "jit/norm/problem.h"

namespace kiln {

// A row of norm(), one launch: a row of x is one group of threads, or a cluster of such.
struct NormConfig {
  int threads;                 // of a row, in each CTA of its cluster
  int vectors;                 // accesses of each thread
  int rows_per_block = 1;      // rows that a CTA computes side by side
  int cluster = 1;             // CTAs that share a row; more than 1: from sm_90 on
  int stages = 0;              // next rows on their way to shared memory, see stages_of()
  int residents = 1;           // CTAs that then share a multiprocessor and stay
  bool early_weights = false;  // loaded with x, and kept in registers meanwhile
  std::string_view reason;

  int accesses() const { return threads * vectors * cluster; }  // that a row of x may have
};

// A row of norm_partial() or norm_apply(), the two launches of a call: alike but for `launch`, 1 or
// 2, by which specs tell their kernels apart.
struct NormSplitConfig {
  int threads, vectors;
  int launch;
  std::string_view reason;

  int accesses() const { return threads * vectors; }  // that a CTA has of its row
};

std::span<const NormConfig> norm_configs();
std::span<const NormSplitConfig> norm_split_configs(int launch);
std::string tile_name(const NormConfig& config);  // "256x4", "128x1x16 rows", "512x4 cluster 4"
std::string tile_name(const NormSplitConfig& config);  // "128x2 split"

// The stages of a row's kernel for such traits: as many of the config's as fit the shared memory of
// the arch, and none where x is not read by vectors of 16 bytes. None: each row has its own
// threads.
int stages_of(const NormConfig& config, const NormTraits& traits, int arch);
int shared_bytes(const NormConfig& config, const NormTraits& traits, int arch);
// CTAs that share a multiprocessor where there are stages: the config's, or one less where the
// arch's compiler needs more registers than so many leave a thread.
int residents_of(const NormConfig& config, int arch);

// Every row that calls can ever use on an arch, whatever the sizes: what prewarming needs.
std::vector<int> norm_rows(int arch);
std::vector<int> norm_split_rows();

// The row for one call.
struct NormChoice {
  int row = -1;        // of one launch; -1: none is wide enough
  int split_row = -1;  // not -1: two launches
};
// By the columns, the dtype and the vector alone, so that a row of x has the same result in every
// batch; but where there are few rows of more than 2048 accesses of 16 bytes, which are 16384
// columns or 8192 in f32, and a workspace, many CTAs share each row.
NormChoice choose_norm(const NormTraits& traits, int arch, std::int64_t rows, std::int64_t columns,
                       bool may_split);

}  // namespace kiln
