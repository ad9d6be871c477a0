// A small problem for one shipped kernel, in host memory, run on the emulated device from any PTX.
#pragma once

#include <cstddef>
#include <deque>
#include <initializer_list>
#include <string>
#include <vector>

#include "jit/calls.h"
#include "jit/problem.h"
#include "jit/specialization.h"
#include "runtime/emulator/machine/options.h"

namespace kiln::testing {

class KernelCase {
 public:
  // Inputs of fixed pseudo-random numbers; several tiles in every direction, so that pipelines turn
  // over and edges are partial. `spec`: of sm_90, without a user's texts. `size`, 0 to kSizes - 1,
  // moves the tile of K with which a GEMM's ring of stages ends, and in 1 and 2 CTAs share tiles;
  // attention has a positive scale and, if it can, keys split in two; a negative scale; hardly any
  // keys, so that tiles are empty.
  static constexpr int kSizes = 3;
  explicit KernelCase(const Specialization& spec, int size = 0);

  const Specialization& spec() const { return spec_; }
  const std::string& ptx() const { return ptx_; }  // as NVRTC made it

  // The output's bytes. Throws what the emulator throws.
  std::vector<std::byte> run(const std::string& ptx, const runtime::emulator::Options& options);

  // The largest error of an output against double precision, relative to what its dtype and the
  // arithmetic of the kernel allow: more than 1 is wrong. NaN counts as infinite.
  double error(const std::vector<std::byte>& output) const;

 private:
  struct Tensor {
    TensorView view;
    std::vector<std::byte> bytes;
    std::vector<float> values;  // in row-major order
  };
  // [rows..., columns]; `transposed` swaps the last two dimensions in memory.
  Tensor& tensor(DType dtype, std::initializer_list<std::int64_t> shape, bool transposed = false);
  void make_attention(int size);
  void make_gemm(int size);

  Specialization spec_;
  std::string ptx_;
  int ordinal_;
  std::deque<Tensor> tensors_;
  Tensor* output_ = nullptr;
  std::vector<double> expected_;
  double tolerance_ = 0;
  AttentionProblem attention_;
  GemmProblem gemm_;
  LaunchChoice choice_;
  std::vector<std::byte> workspace_;
};

}  // namespace kiln::testing
