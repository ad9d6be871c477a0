// jit.flash_attention_with_kvcache: its arguments, its outputs, its call.
#include "generated/flash_attention_with_kvcache.h"

#include "varlen_call.h"

namespace kiln::python {
namespace {

struct KvCacheCall : SequencesCall<FlashAttentionWithKvcacheSignature, KvCacheOptions> {
  KvCacheCall(const Slots& slots, HostArrays host_arrays) : SequencesCall(slots, host_arrays) {
    options.cache_seqlens = tensors.cache_seqlens().view;
  }
};

}  // namespace

PyObject* flash_attention_with_kvcache_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
                                             PyObject* keywords) {
  using Signature = KvCacheCall::Signature;
  return guarded_or_traced(Signature::kOp, args, count, keywords, [&]() -> PyObject* {
    KvCacheCall call(slots_of<Signature>(args, count, keywords), HostArrays::copied);
    const auto& tensors = call.tensors;
    return compute_call(
        call,
        [&] {
          return flash_attention_with_kvcache_output(tensors.q().view, tensors.v_cache().view);
        },
        [&] { return flash_attention_with_kvcache_lse_output(tensors.q().view); },
        [](KvCacheCall& c) {
          flash_attention_with_kvcache(c.tensors.q().view, c.tensors.k_cache().view,
                                       c.tensors.v_cache().view, c.tensors.out().view,
                                       c.tensors.lse().view, c.options, c.intake.stream());
        });
  });
}

PyObject* explain_flash_attention_with_kvcache_entry(PyObject*, PyObject* const* args,
                                                     Py_ssize_t count, PyObject* keywords) {
  return guarded([&]() -> PyObject* {
    KvCacheCall call(slots_of<KvCacheCall::Signature>(args, count, keywords), HostArrays::shown);
    const auto& tensors = call.tensors;
    return explain_call(
        call,
        [&] {
          return flash_attention_with_kvcache_output(tensors.q().view, tensors.v_cache().view);
        },
        [&] { return flash_attention_with_kvcache_lse_output(tensors.q().view); },
        [](KvCacheCall& c) {
          return explain_flash_attention_with_kvcache(
              c.tensors.q().view, c.tensors.k_cache().view, c.tensors.v_cache().view,
              c.tensors.out().view, c.tensors.lse().view, c.options);
        });
  });
}

}  // namespace kiln::python
