// Context parallelism: the keys of a sequence are spread over the devices of a group.
#pragma once

#include "jit/attention/problem.h"
#include "jit/attention/sequence_tensors.h"
#include "kiln/varlen.h"

namespace kiln {

// Whether the arguments go together and with the others. The problem's batch is known.
void check_context(const ContextParallel& context, const SequenceTensors& sequences,
                   const AttentionOptions& options, const AttentionProblem& problem);
void set_context(const ContextParallel& context, AttentionVarlenParams& params);

// Whether positions decide about anything in calls of these traits; where nothing does, the kernel
// need not know that keys are spread.
bool sees_positions(const AttentionTraits& traits);
// The same, where the problem is complete.
bool is_spread(const ContextParallel& context, const AttentionProblem& problem);

}  // namespace kiln
