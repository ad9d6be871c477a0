// What jit.flash_attention_varlen and jit.flash_attention_with_kvcache have in common.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "arguments.h"
#include "attention_options.h"
#include "errors.h"
#include "kiln/kiln.h"
#include "options.h"
#include "output.h"
#include "tensor.h"
#include "traced.h"
#include "variant.h"

namespace kiln::python {

// A whole number that may be left out.
template <class Signature>
std::int64_t count_argument(const std::array<PyObject*, Signature::kSlots>& slots,
                            typename Signature::Slot slot, std::int64_t otherwise = 0) {
  return slots[slot] == nullptr ? otherwise
                                : int64_argument(slots[slot], subject_of<Signature>(slot));
}

// Reads what is no tensor and what calls and their plans have in common; a causal that is a flag is
// then no tensor.
template <class Signature, class Tensors, class Options>
void read_sequence_numbers(const std::array<PyObject*, Signature::kSlots>& slots, Tensors& tensors,
                           Options& options, std::shared_ptr<const BoundVariant>& composed) {
  const auto subject = [](typename Signature::Slot slot) { return subject_of<Signature>(slot); };
  AttentionOptions& attention = options.attention;
  read_numbers<Signature>(slots, attention);
  if (!is_no_flag(slots[Signature::kCausal])) {
    attention.causal = bool_argument(slots[Signature::kCausal], false, subject(Signature::kCausal));
    tensors.causal().object = nullptr;
  }
  read_window(slots[Signature::kWindow], subject(Signature::kWindow), attention);
  attention.variant =
      variant_argument(slots[Signature::kVariant], subject(Signature::kVariant), composed);
  options.num_splits = count_argument<Signature>(slots, Signature::kNumSplits);
  options.context.world = count_argument<Signature>(slots, Signature::kCpWorld, 1);
  options.context.rank = count_argument<Signature>(slots, Signature::kCpRank);
  options.context.interleave = count_argument<Signature>(slots, Signature::kCpInterleave, 1);
}

// One call, read from its Python arguments. Options are VarlenOptions or KvCacheOptions.
template <class OwnSignature, class Options>
struct SequencesCall {
  using Signature = OwnSignature;
  using Slots = std::array<PyObject*, Signature::kSlots>;

  typename Signature::template Tensors<TensorArgument> tensors;
  Options options;
  TensorIntake intake;
  bool returns_lse = false;
  std::shared_ptr<const BoundVariant> composed;

  SequencesCall(const Slots& slots, HostArrays host_arrays)
      : tensors(tensors_of<Signature>(slots)), intake(Signature::kOp, host_arrays) {
    AttentionOptions& attention = options.attention;
    read_sequence_numbers<Signature>(slots, tensors, options, composed);
    returns_lse =
        bool_argument(slots[Signature::kReturnLse], false, subject(Signature::kReturnLse));
    if constexpr (requires { tensors.k_new(); }) {
      tensors.k_cache().written = tensors.v_cache().written = tensors.k_new().given();
    }
    intake.read(tensors.all);
    if (intake.staged() != nullptr && attention.variant && !attention.variant->tensors().empty()) {
      throw_type(subject(Signature::kVariant),
                 "keeps tensors of a GPU, whose streams NumPy arrays are not ordered with; pass "
                 "all tensors on the GPU too, for example with cupy.asarray(x)");
    }
    options.block_table = tensors.block_table().view;
    options.kv_indptr = tensors.kv_indptr().view;
    options.kv_indices = tensors.kv_indices().view;
    options.causal_each = tensors.causal().view;
    options.tree_mask = tensors.tree_mask().view;
    options.context.seqused_k_total = tensors.cp_seqused_k_total().view;
    attention.q_scale = tensors.q_scale().view;
    attention.k_scale = tensors.k_scale().view;
    attention.v_scale = tensors.v_scale().view;
    options.out_scale = tensors.out_scale().view;
    options.plan = tensors.plan().view;
    attention.sinks = tensors.sinks().view;
    attention.alibi_slopes = tensors.alibi_slopes().view;
  }

  static Subject subject(typename Signature::Slot slot) { return subject_of<Signature>(slot); }
};

// Runs a call with results that are the caller's or new. `run` takes the call.
template <class Call, class Out, class Lse, class Run>
PyObject* compute_call(Call& call, Out&& out_shape, Lse&& lse_shape, Run&& run) {
  auto& [tensors, options, intake, returns_lse, composed] = call;
  const TensorArgument& q = tensors.q();
  py::object out = given_or_new(intake, q, tensors.out(), out_shape);
  py::object lse;
  if (returns_lse || tensors.lse().given()) {
    lse = given_or_new(intake, q, tensors.lse(), lse_shape);
  }
  CallWorkspace workspace(Call::Signature::kOp, q, intake);
  options.attention.workspace = workspace.callback();
  run(call);
  intake.finish();
  if (!returns_lse) return out.release().ptr();
  return PyTuple_Pack(2, out.ptr(), lse.ptr());
}

template <class Call, class Out, class Lse, class Explain>
PyObject* explain_call(Call& call, Out&& out_shape, Lse&& lse_shape, Explain&& explain) {
  set_default_view(call.intake, call.tensors.out(), out_shape);
  if (call.returns_lse) set_default_view(call.intake, call.tensors.lse(), lse_shape);
  return py::str(explain(call)).release().ptr();
}

}  // namespace kiln::python
