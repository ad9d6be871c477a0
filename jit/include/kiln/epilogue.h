// Epilogues of GEMM with run-time scalars and tensors. See docs/variants.md#epilogues-of-gemm.
//
//   kiln::EpilogueDefinition d;
//   d.name = "scaled";
//   d.params = {{"t", kiln::DType::f32}};
//   d.tensors = {{"s", kiln::DType::f32, {"n"}}};
//   d.value = "acc * s[col] + t";
//   kiln::Epilogue scaled(d);
//   auto bound = scaled.bind({1.5}, {s});
//   kiln::gemm(a, b, out, {.bound_epilogue = &bound});
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kiln/export.h"
#include "kiln/tensor.h"
#include "kiln/variant.h"

namespace KILN_PUBLIC kiln {

struct EpilogueDefinition {
  std::string name;  // a label; the identity is the content
  std::vector<VariantParam> params;
  // An expression reads an element by an index for each dimension, `s[col]` or `d[row, col]`. The
  // declared indices tell extents: m, n and batch of the output, or 1, which broadcasts; a whole
  // number; "*" for any. An index outside stands for the nearest one inside.
  std::vector<VariantTensor> tensors;
  // C++ expression of the output, from `acc` (float: the sum times alpha and the scales), `bias`,
  // `residual` (floats), `row`, `col`, `batch`, `m`, `n` (ints), parameters and tensors.
  std::string value;

  bool operator==(const EpilogueDefinition&) const = default;
};

class BoundEpilogue;

// Immutable. The constructor checks names and types (std::invalid_argument). The compiler checks
// the expression, and its messages point into it.
class Epilogue {
 public:
  explicit Epilogue(EpilogueDefinition definition);

  const EpilogueDefinition& definition() const { return *definition_; }
  const Digest128& digest() const { return digest_; }
  // Whether the expression has these names, so that a call must give them.
  bool names_bias() const { return names_bias_; }
  bool names_residual() const { return names_residual_; }
  // Takes values in the order of `params` and views in the order of `tensors`. Never compiles.
  BoundEpilogue bind(std::vector<double> values, std::vector<TensorView> tensors) const;

 private:
  std::shared_ptr<const EpilogueDefinition> definition_;
  Digest128 digest_{};
  bool names_bias_ = false, names_residual_ = false;
};

class BoundEpilogue {
 public:
  const Epilogue& epilogue() const { return epilogue_; }
  const std::vector<double>& values() const { return values_; }
  const std::vector<TensorView>& tensors() const { return tensors_; }

 private:
  friend class Epilogue;
  BoundEpilogue(Epilogue epilogue, std::vector<double> values, std::vector<TensorView> tensors)
      : epilogue_(std::move(epilogue)), values_(std::move(values)), tensors_(std::move(tensors)) {}
  Epilogue epilogue_;
  std::vector<double> values_;
  std::vector<TensorView> tensors_;
};

}  // namespace KILN_PUBLIC kiln
