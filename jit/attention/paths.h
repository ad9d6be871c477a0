// The ways to compute attention, as rows: what a call and the list of its kernels need to know of
// each beside its Template. An arch's own kernel is a row of each in family.cpp and a folder here.
#pragma once

#include <span>
#include <vector>

#include "jit/attention/problem.h"

namespace kiln {

struct AttentionPath {
  const Template* kernel;
  // Every row that calls of these traits can use on an arch; none where it does not serve them.
  std::vector<int> (*rows)(const AttentionTraits& traits, int arch);
  // Completes the recipe, or returns false and leaves the call as it is to the next path.
  bool (*resolve)(AttentionProblem& problem, const runtime::Device& device, bool may_split);
};

// In the order in which they are asked; one of them serves each call.
std::span<const AttentionPath> attention_paths();

// The kernels of all paths.
std::vector<Specialization> attention_kernels(const AttentionTraits& traits, int arch);
// The same, those of calls whose keys are copied ahead, and those that compute dense calls as
// sequences: see may_copy(), may_be_sequences().
std::vector<Specialization> kernels_of_calls(const AttentionTraits& traits, int arch);

// The paths choose their rows here; defined in sm90_choice.cpp,
// sm90_varlen_choice.cpp, choice.cpp and varlen_choice.cpp.
bool resolve_attention_sm90(AttentionProblem& problem, const runtime::Device& device,
                            bool may_split);
bool resolve_portable(AttentionProblem& problem, const runtime::Device& device, bool may_split);
// Completes a step where sequences have lengths of their own; false if it is none for sm_90a.
bool fill_varlen_sm90(Step& step, const AttentionProblem& problem, const runtime::Device& device,
                      bool may_split, std::size_t& workspace);
// A dense call of few queries of grouped heads may be computed as sequences of one length: query
// tiles then have rows of all heads that share a KV head, and CTAs equal shares of them. So are
// calls without options but causal, as the arguments of others have no place of their own there.
bool may_be_sequences(const AttentionTraits& traits);
// Every row that they can use, of their traits with Storage::ragged.
std::vector<int> rows_as_sequences(const AttentionTraits& traits, int arch);
// Completes the recipe so where that takes less time than a launch of `cost`; else returns false.
bool resolve_as_sequences(AttentionProblem& problem, const runtime::Device& device, double cost);
std::vector<int> varlen_rows(const AttentionTraits& traits, int arch);
bool resolve_varlen(AttentionProblem& problem, const runtime::Device& device, bool may_split);

}  // namespace kiln
