// jit.rms_norm and its explanation.
#include "generated/rms_norm.h"
#include "norm_call.h"

namespace kiln::python {

PyObject* rms_norm_entry(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  return norm_entry<RmsNormSignature>(
      args, count, keywords, [](auto& tensors, const NormOptions& options, void* stream) {
        rms_norm(tensors.x().view, tensors.weight().view, tensors.out().view, options, stream);
      });
}

PyObject* explain_rms_norm_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
                                 PyObject* keywords) {
  return explain_norm_entry<RmsNormSignature>(
      args, count, keywords, [](auto& tensors, const NormOptions& options) {
        return explain_rms_norm(tensors.x().view, tensors.weight().view, tensors.out().view,
                                options);
      });
}

}  // namespace kiln::python
