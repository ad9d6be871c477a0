// Attention variants: a change to the logits or the mask, written as expressions or as a template
// file, with run-time scalars and tensors. See docs/variants.md.
//
//   kiln::VariantDefinition d;
//   d.name = "capped";
//   d.params = {{"cap", kiln::DType::f32}};
//   d.logits = "cap * tanh(logit / cap)";
//   kiln::Variant v(d);
//   auto bound = v.bind({30.0}, {});
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kiln/export.h"
#include "kiln/tensor.h"

namespace KILN_PUBLIC kiln {

struct VariantParam {
  std::string name;
  DType dtype = DType::f32;  // f32 or i32

  bool operator==(const VariantParam&) const = default;
};

struct VariantTensor {
  std::string name;
  DType dtype = DType::f32;  // f32, f16, bf16, i32, i64, u8 or boolean
  // The indices of the element that is read: b, h, h_kv, row, q, kv. Where one is a whole number,
  // which is the extent of its dimension, or "*", for any extent, an expression gives all indices
  // itself: `table(h, kv - q)`.
  std::vector<std::string> indices;

  bool operator==(const VariantTensor&) const = default;
};

struct VariantDefinition {
  std::string name;  // a label; the identity is the content
  std::vector<VariantParam> params;
  std::vector<VariantTensor> tensors;
  std::string logits;     // C++ expression of the new logit; empty = unchanged
  std::string mask;       // C++ expression, true = visible; empty = all visible
  std::string file_text;  // text of a template file that defines `struct UserVariant`, instead of
                          // the expressions or, derived from `UserMask`, beside a mask
  std::string file_name;  // its label in messages; not part of the identity
};

using Digest128 = std::array<std::uint64_t, 2>;

class BoundVariant;
struct MaskReach;

inline constexpr std::size_t kMostVariants = 4;  // of a list

// Immutable. The constructor checks names and types (std::invalid_argument). The compiler checks
// the expressions, and its messages point into them.
class Variant {
 public:
  explicit Variant(VariantDefinition definition);
  // A list of 1 to kMostVariants variants as one: each changes the logits that the one before it
  // gives, and a key must be visible to all. Names are those of each variant alone.
  explicit Variant(const std::vector<Variant>& list);

  // A list has the definitions of all its variants, and others have one.
  using Definitions = std::vector<std::shared_ptr<const VariantDefinition>>;
  const Definitions& definitions() const { return definitions_; }
  const VariantDefinition& definition() const { return *definitions_.front(); }
  const Digest128& digest() const { return digest_; }
  // How far from themselves queries see, for the choice of a kernel.
  const MaskReach& reach() const { return *reach_; }
  // Takes values in the order of `params` and views in the order of `tensors`, of one definition
  // after the other. Never compiles.
  BoundVariant bind(std::vector<double> values, std::vector<TensorView> tensors) const;

 private:
  Definitions definitions_;
  Digest128 digest_{};
  std::shared_ptr<const MaskReach> reach_;
};

class BoundVariant {
 public:
  const Variant& variant() const { return variant_; }
  const std::vector<double>& values() const { return values_; }
  const std::vector<TensorView>& tensors() const { return tensors_; }

 private:
  friend class Variant;
  BoundVariant(Variant variant, std::vector<double> values, std::vector<TensorView> tensors)
      : variant_(std::move(variant)), values_(std::move(values)), tensors_(std::move(tensors)) {}
  Variant variant_;
  std::vector<double> values_;
  std::vector<TensorView> tensors_;
};

// A list of bound variants as one.
BoundVariant compose(const std::vector<BoundVariant>& list);

}  // namespace KILN_PUBLIC kiln
