// jit.flash_attention_varlen: its arguments, its outputs, its call.
#include "generated/flash_attention_varlen.h"

#include "varlen_call.h"

namespace kiln::python {
namespace {

struct VarlenCall : SequencesCall<FlashAttentionVarlenSignature, VarlenOptions> {
  VarlenCall(const Slots& slots, HostArrays host_arrays) : SequencesCall(slots, host_arrays) {
    options.cu_seqlens_q = tensors.cu_seqlens_q().view;
    options.cu_seqlens_k = tensors.cu_seqlens_k().view;
    options.seqused_k = tensors.seqused_k().view;
    options.max_seqlen_q = count_argument<Signature>(slots, Signature::kMaxSeqlenQ);
    options.max_seqlen_k = count_argument<Signature>(slots, Signature::kMaxSeqlenK);
  }
};

}  // namespace

PyObject* flash_attention_varlen_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
                                       PyObject* keywords) {
  using Signature = VarlenCall::Signature;
  return guarded_or_traced(Signature::kOp, args, count, keywords, [&]() -> PyObject* {
    VarlenCall call(slots_of<Signature>(args, count, keywords), HostArrays::copied);
    const auto& tensors = call.tensors;
    return compute_call(
        call,
        [&] {
          return flash_attention_varlen_output(tensors.q().view, tensors.v().view,
                                               out_dtype_of(call.options.out_scale));
        },
        [&] { return flash_attention_varlen_lse_output(tensors.q().view); },
        [](VarlenCall& c) {
          flash_attention_varlen(c.tensors.q().view, c.tensors.k().view, c.tensors.v().view,
                                 c.tensors.out().view, c.tensors.lse().view, c.options,
                                 c.intake.stream());
        });
  });
}

PyObject* explain_flash_attention_varlen_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
                                               PyObject* keywords) {
  return guarded([&]() -> PyObject* {
    VarlenCall call(slots_of<VarlenCall::Signature>(args, count, keywords), HostArrays::shown);
    const auto& tensors = call.tensors;
    return explain_call(
        call,
        [&] {
          return flash_attention_varlen_output(tensors.q().view, tensors.v().view,
                                               out_dtype_of(call.options.out_scale));
        },
        [&] { return flash_attention_varlen_lse_output(tensors.q().view); },
        [](VarlenCall& c) {
          return explain_flash_attention_varlen(c.tensors.q().view, c.tensors.k().view,
                                                c.tensors.v().view, c.tensors.out().view,
                                                c.tensors.lse().view, c.options);
        });
  });
}

}  // namespace kiln::python
