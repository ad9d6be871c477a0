// Elements of tensors in a mask, such as documents' numbers, over intervals of positions. A launch
// ahead of attention writes the least and the greatest of each 64 elements, and the mask's kernel
// reads them: templates/attention/element_bounds.cuh.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jit/op/specialization.h"
#include "kiln/tensor.h"
#include "kiln/variant.h"
#include "runtime/device.h"

namespace kiln {

struct AttentionProblem;

// A tensor of bools or ints that a mask reads at a query's or at a key's position and, perhaps, at
// the batch entry. Other dimensions have numbers: 0 of `doc(0, kv)`.
struct BoundedTensor {
  std::size_t tensor = 0;              // among the definition's
  int position = 0;                    // the dimension of positions
  int entry = -1;                      // of batch entries; -1: all share the elements
  std::array<int, kMaxRank> places{};  // the numbers
  bool has_place(int dimension) const { return dimension != position && dimension != entry; }
  bool operator==(const BoundedTensor&) const = default;
};

// An element as a mask writes it: `doc`, of a tensor that is declared as [b, kv], or `doc(b, kv)`,
// of a table.
struct BoundedElement {
  BoundedTensor tensor;
  std::string position;  // "q", "kv" or "row"
};

// Returns nothing for other texts.
std::optional<BoundedElement> bounded_element(const VariantDefinition& definition,
                                              std::string_view text);

// The tensors of the elements that the mask has, each once, in the order of the text.
std::vector<BoundedTensor> bounded_tensors(const VariantDefinition& definition);

// Whether the mask has an element at a key's position.
bool mask_reads_at_keys(const VariantDefinition& definition);

// Device code: the mask's text, in which a name stands for each element of a table; and statements
// that define these names. So the elements of all keys are under way together, and each is read
// once for all rows, where conditions would have it read for each pair.
struct MaskReadAhead {
  std::string statements, text;
};
MaskReadAhead read_ahead(const VariantDefinition& definition);

// Device code: the members of the variant's struct that hold where the bounds lie; and an element's
// interval over a MaskBox `box`.
std::string bounds_members(const VariantDefinition& definition,
                           const std::vector<BoundedTensor>& tensors);
std::string interval_of_element(const VariantDefinition& definition, const BoundedElement& element,
                                const std::string& box);
// How many words of the argument block the members of one tensor fill.
inline constexpr std::size_t kBoundsWords = 3;

// Appends these words for one tensor of a call, as yet without bounds, and notes the tensor in the
// problem, as far as there is room. `number`: the tensor's place among the call's.
void add_bounds_arguments(const BoundedTensor& bounded, const TensorView& view, int number,
                          AttentionProblem& problem);

// Adds the launch that computes the bounds to a resolved problem, if its kernel is to read them.
void add_bounds_launch(AttentionProblem& problem, const runtime::Device& device,
                       bool may_use_workspace);

// The kernel of this launch.
Specialization element_bounder(int arch);

}  // namespace kiln
