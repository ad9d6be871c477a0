// A small problem for one shipped kernel, in host memory, run on the emulated device from any PTX.
// A kernel that is one of a call's launches runs among the others, which keep their own PTX.
#pragma once

#include <cstddef>
#include <deque>
#include <initializer_list>
#include <string>
#include <vector>

#include "jit/op/recipe.h"
#include "runtime/emulator/machine/options.h"

namespace kiln::testing {

class KernelCase {
 public:
  // Inputs of fixed pseudo-random numbers; several tiles in every direction, so that pipelines turn
  // over and edges are partial. `spec`: of any arch, without a user's texts. `size`, 0 to kSizes -
  // 1, moves the tile of K with which a GEMM's ring of stages ends, and in 1 and 2 CTAs share
  // tiles; attention has a positive scale and, if it can, keys split in two; a negative scale;
  // hardly any keys, so that tiles, or a split of sm_90a's three, are empty. The others: see
  // varlen_case.cpp, bounds_case.cpp, norm_case.cpp, merge_case.cpp, append_case.cpp,
  // moe_case.cpp and quantize_case.cpp.
  static constexpr int kSizes = 3;
  explicit KernelCase(const Specialization& spec, int size = 0);

  const Specialization& spec() const { return spec_; }
  const std::string& ptx() const { return ptx_; }  // as NVRTC made it

  // The outputs' bytes. Throws what the emulator throws.
  std::vector<std::byte> run(const std::string& ptx, const runtime::emulator::Options& options);

  // The largest error of the outputs against double precision, relative to what its dtype and the
  // arithmetic of the kernel allow: more than 1 is wrong. NaN counts as infinite.
  double error(const std::vector<std::byte>& bytes) const;

 private:
  struct Tensor {
    TensorView view;
    std::vector<std::byte> bytes;
    std::vector<float> values;  // in row-major order
  };
  // What a kernel writes, and what that should be.
  struct Output {
    Tensor* tensor;
    std::vector<double> expected;
    double tolerance;
  };
  // Unit in the last place of 1 of an output's dtype.
  static double epsilon(DType dtype);

  // [rows..., columns]; `transposed` swaps the last two dimensions in memory.
  Tensor& tensor(DType dtype, std::initializer_list<std::int64_t> shape, bool transposed = false);
  // An i32 tensor of these values.
  Tensor& integers(std::initializer_list<std::int64_t> shape, const std::vector<int>& values);
  void make_attention(int size);
  // `spec`: of the kernel that attends. `planned`: behind spec_, which makes its plan.
  // `copied_from`: the cache whose keys a launch ahead copies; a kernel that reads widened keys has
  // one of e4m3 if none is given.
  void make_varlen(const Specialization& spec, int size, bool planned = false,
                   DType copied_from = DType::none);
  void make_copy_keys(int size);
  void make_plan(int size);
  void make_bound_elements(int size);
  void make_gemm(int size);
  void make_norm(int size);
  void make_merge_states(int size);
  void make_moe_route(int size);
  void make_moe_permute(int size);
  void make_moe_unpermute(int size);
  void make_quantize(int size);
  void make_append_kv(int size);
  void make_append_sequences(int size);
  double error(const Output& output, const std::byte* bytes) const;

  Specialization spec_;
  std::string ptx_;
  RecipeKernels partners_{};  // by step; null for the kernel itself
  std::deque<LoadedKernel> loaded_;
  int ordinal_;
  std::deque<Tensor> tensors_;
  std::vector<Output> outputs_;
  Recipe recipe_;
  std::vector<std::byte> workspace_;
  std::uint64_t nonce_ = 0;     // of the last launch
  bool weights_ahead_ = false;  // of a GEMM: b is not written by the launch before
};

}  // namespace kiln::testing
