// Calls of the operations that tests change one argument of: what their checks bake, or the error.
#pragma once

#include <stdexcept>
#include <string>

#include "jit/attention/problem.h"
#include "jit/gemm/problem.h"

namespace kiln::testing {

// Device memory that is never touched: 16-byte aligned addresses.
inline void* const kMemory = reinterpret_cast<void*>(0x10000);

// A tensor that is read; all of them are at one place.
inline TensorView half(std::initializer_list<std::int64_t> shape, DType dtype = DType::bf16) {
  TensorView view;
  view.data = kMemory;
  view.dtype = dtype;
  for (std::int64_t size : shape) view.shape[view.rank++] = size;
  std::int64_t stride = 1;
  for (int i = view.rank - 1; i >= 0; --i) {
    view.strides[i] = stride;
    stride *= view.shape[i];
  }
  return view;
}

// A tensor that is written, far from the others. `number`: of a second one, 1.
inline TensorView result(std::initializer_list<std::int64_t> shape, DType dtype = DType::bf16,
                         std::uintptr_t number = 0) {
  TensorView view = half(shape, dtype);
  view.data = reinterpret_cast<void*>((number + 1) << 60);
  return view;
}

struct Attention {
  TensorView q = half({2, 5, 8, 64}), k = half({2, 7, 4, 64}), v = half({2, 7, 4, 32});
  TensorView out = result({2, 5, 8, 32}), lse;
  AttentionOptions options;
  AttentionProblem problem;

  AttentionTraits check() {
    problem = AttentionProblem();
    check_attention(q, k, v, out, lse, options, problem);
    return problem.traits;
  }
  std::string error() {
    try {
      check();
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return "";
  }
};

struct Gemm {
  TensorView a = half({6, 16}), b = half({16, 8}), out = result({6, 8});
  GemmOptions options;
  GemmProblem problem;

  GemmTraits check() {
    problem = GemmProblem();
    check_gemm(a, b, out, options, problem);
    return problem.traits;
  }
  std::string error() {
    try {
      check();
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return "";
  }
};

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace kiln::testing
