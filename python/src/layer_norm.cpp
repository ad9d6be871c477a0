// jit.layer_norm and its explanation.
#include "generated/layer_norm.h"
#include "norm_call.h"

namespace kiln::python {

PyObject* layer_norm_entry(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  return norm_entry<LayerNormSignature>(
      args, count, keywords, [](auto& tensors, const NormOptions& options, void* stream) {
        layer_norm(tensors.x().view, tensors.weight().view, tensors.bias().view, tensors.out().view,
                   options, stream);
      });
}

PyObject* explain_layer_norm_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
                                   PyObject* keywords) {
  return explain_norm_entry<LayerNormSignature>(
      args, count, keywords, [](auto& tensors, const NormOptions& options) {
        return explain_layer_norm(tensors.x().view, tensors.weight().view, tensors.bias().view,
                                  tensors.out().view, options);
      });
}

}  // namespace kiln::python
