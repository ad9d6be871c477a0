// Interned strings that the hot path looks up.
#pragma once

#include <pybind11/pybind11.h>

namespace kiln::python {

struct Names {
  PyObject* requires_grad = PyUnicode_InternFromString("requires_grad");
  PyObject* variant = PyUnicode_InternFromString("variant");
  // A BlockMask and its lists have these attributes.
  PyObject* kv_num_blocks = PyUnicode_InternFromString("kv_num_blocks");
  PyObject* kv_indices = PyUnicode_InternFromString("kv_indices");
  PyObject* full_kv_num_blocks = PyUnicode_InternFromString("full_kv_num_blocks");
  PyObject* full_kv_indices = PyUnicode_InternFromString("full_kv_indices");
  PyObject* block_size = PyUnicode_InternFromString("BLOCK_SIZE");
  PyObject* version = PyUnicode_InternFromString("_version");
};

inline const Names& names() {
  static const Names instance;
  return instance;
}

}  // namespace kiln::python
