// Prefill over a cache whose keys are dear to read: a quantised one, or one of small pages. Where
// many queries read each key, a launch ahead of attention copies the keys and values of all
// sequences to the call's workspace, in q's dtype and one behind the other, and attention reads
// these. Kernels that widen or gather keys themselves do so again for each query tile and head,
// which costs a tenth to a third of their speed.
#pragma once

#include <cstddef>
#include <vector>

#include "jit/attention/problem.h"

namespace kiln {

// A call that is to be computed so. Between the constructor and set_workspace(), the problem and
// its first step are those of attention over the copied keys; add_launch() completes the recipe.
class CopiedCall {
 public:
  // Whether that is faster, as far as the bounds of a call's lengths say, and its memory is small.
  static bool pays(const AttentionProblem& problem, int arch, bool may_use_workspace);

  // Makes the problem and its first step those of contiguous keys of q's dtype.
  explicit CopiedCall(AttentionProblem& problem);
  // Returns the first step as it was, for a step that reads the cache.
  const Step& before() const { return before_; }
  // Gives the first step the copied keys, behind the workspace that it has, and the problem its
  // traits. Called when the step has its kernel and its workspace.
  void set_workspace();
  // Adds the launch, behind all other steps.
  void add_launch(int arch);
  // Makes the problem and its first step again what they were.
  void undo();

 private:
  AttentionProblem& problem_;
  AttentionTraits traits_;
  Step before_;
  std::size_t begin_ = 0;
};

// The traits of calls that read copied keys, and whether calls with `traits` may be such.
AttentionTraits traits_of_copied(const AttentionTraits& traits);
bool may_copy(const AttentionTraits& traits, int arch);
// The kernel of the launch, which knows the dtypes alone.
Specialization key_copier(const AttentionTraits& call, int arch);
// The kernels that such calls have beside their others.
std::vector<Specialization> kernels_of_copied(const AttentionTraits& traits, int arch);

}  // namespace kiln
