// jit.flash_attention_with_kvcache: its arguments, its outputs, its call.
#include "generated/flash_attention_with_kvcache.h"

#include "varlen_call.h"

namespace kiln::python {
namespace {

struct KvCacheCall : SequencesCall<FlashAttentionWithKvcacheSignature, KvCacheOptions> {
  KvCacheCall(const Slots& slots, HostArrays host_arrays) : SequencesCall(slots, host_arrays) {
    options.cache_seqlens = tensors.cache_seqlens().view;
    options.cache_batch_idx = tensors.cache_batch_idx().view;
    options.cache_leftpad = tensors.cache_leftpad().view;
    options.k_new = tensors.k_new().view;
    options.v_new = tensors.v_new().view;
    options.rotary_cos = tensors.rotary_cos().view;
    options.rotary_sin = tensors.rotary_sin().view;
    options.rotary_interleaved = bool_argument(slots[Signature::kRotaryInterleaved], true,
                                               subject(Signature::kRotaryInterleaved));
  }
};

// A call that writes to the caches takes no arrays of the host to a GPU and back: all of a cache
// would travel for the few rows that are new.
HostArrays host_arrays_of(const KvCacheCall::Slots& slots) {
  return is_given(slots[KvCacheCall::Signature::kKNew]) ? HostArrays::refused : HostArrays::copied;
}

}  // namespace

PyObject* flash_attention_with_kvcache_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
                                             PyObject* keywords) {
  using Signature = KvCacheCall::Signature;
  return guarded_or_traced(Signature::kOp, args, count, keywords, [&]() -> PyObject* {
    const auto slots = slots_of<Signature>(args, count, keywords);
    KvCacheCall call(slots, host_arrays_of(slots));
    const auto& tensors = call.tensors;
    return compute_call(
        call,
        [&] {
          return flash_attention_with_kvcache_output(tensors.q().view, tensors.v_cache().view,
                                                     out_dtype_of(call.options.out_scale));
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
          return flash_attention_with_kvcache_output(tensors.q().view, tensors.v_cache().view,
                                                     out_dtype_of(call.options.out_scale));
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
