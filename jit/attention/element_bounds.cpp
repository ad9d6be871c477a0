#include "jit/attention/element_bounds.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <map>

#include "jit/attention/family.h"
#include "jit/attention/mask_names.h"
#include "jit/attention/problem.h"
#include "jit/op/expression.h"
#include "jit/op/expression_tokens.h"
#include "jit/op/source_text.h"
#include "jit/op/user_values.h"
#include "templates/bound_elements/params.h"

namespace kiln {
namespace {

// With fewer queries, the launch would take as long as it saves.
constexpr int kLeastQueries = 64;
constexpr std::int64_t kMostBlocks = 1 << 24;  // of 64 elements, 128 MiB of bounds

bool is_position(std::string_view index) { return index == "q" || index == "kv" || index == "row"; }

// `indices`: of the dimensions in their order.
std::optional<BoundedElement> element_at(const std::vector<std::string>& indices) {
  BoundedElement element;
  int positions = 0, entries = 0;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const std::string index = plain_name(indices[i]);
    if (is_position(index)) {
      ++positions;
      element.tensor.position = static_cast<int>(i), element.position = index;
    } else if (index == "b") {
      ++entries;
      element.tensor.entry = static_cast<int>(i);
    } else if (is_number(index) && read_number(index).is_int) {
      element.tensor.places[i] = static_cast<int>(read_number(index).value);
    } else {
      return std::nullopt;
    }
  }
  if (positions != 1 || entries > 1) return std::nullopt;
  return element;
}

// The arguments of a call without brackets in them: "b", "kv" of "doc(b,kv)".
std::vector<std::string> arguments_of(std::string_view call) {
  std::vector<std::string> arguments(1);
  for (const char c : call.substr(call.find('(') + 1, call.size() - call.find('(') - 2)) {
    if (c == ',') {
      arguments.emplace_back();
    } else {
      arguments.back() += c;
    }
  }
  return arguments;
}

template <class Visit>
void visit_elements(const VariantDefinition& d, const Expression& e, Visit visit) {
  const auto element = e.operation == Operation::name ? bounded_element(d, e.text) : std::nullopt;
  if (element) visit(*element, e.text);
  for (const auto& operand : e.operands) visit_elements(d, *operand, visit);
}
// Calls visit(element, its text) for each element, in the order of the text.
template <class Visit>
void visit_mask(const VariantDefinition& d, Visit visit) {
  if (d.mask.empty()) return;
  const ParsedExpression parsed = parse_expression(
      d.mask, [&](std::string_view name) { return type_of_mask_element(d, name); });
  if (parsed.tree) visit_elements(d, *parsed.tree, visit);
}

bool is_of_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

std::string without_spaces(std::string text) {
  std::erase_if(text, [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; });
  return text;
}

// "doc (b, kv)": an identifier that begins at `from`, and what is in brackets after it, up to the
// first that closes.
std::string call_at(const std::string& text, std::size_t from) {
  std::size_t at = from;
  while (at < text.size() && is_of_name(text[at])) ++at;
  const std::size_t open = text.find_first_not_of(" \t\n", at);
  if (at == from || open == std::string::npos || text[open] != '(') return "";
  return text.substr(from, text.find(')', open) + 1 - from);
}

// Whether what follows the text is a member's name, as in "arguments.".
bool names_member(const std::string& text) {
  const std::string end = text.substr(0, text.find_last_not_of(" \t\n") + 1);
  return end.ends_with('.') || end.ends_with("->") || end.ends_with("::");
}

// A name that the mask does not have: `name`, perhaps with underscores behind it.
std::string free_name(const VariantDefinition& d, std::string name) {
  const auto is_taken = [&](const auto& one) { return one.name == name; };
  while (d.mask.find(name) != std::string::npos || std::ranges::any_of(d.params, is_taken) ||
         std::ranges::any_of(d.tensors, is_taken)) {
    name += '_';
  }
  return name;
}

// "doc_1" of doc(b, kv), "doc_1_at_0" of doc(0, kv).
std::string member_of(const VariantDefinition& d, const BoundedTensor& bounded) {
  const VariantTensor& tensor = d.tensors[bounded.tensor];
  std::string places;
  bool has_places = false;
  for (int i = 0; i < static_cast<int>(tensor.indices.size()); ++i) {
    has_places = has_places || bounded.has_place(i);
    if (bounded.has_place(i)) places += "_" + std::to_string(bounded.places[i]);
    if (i == bounded.entry) places += "_b";
  }
  return tensor.name + "_" + std::to_string(bounded.position) + (has_places ? "_at" + places : "");
}

BoundedElementType element_type(DType dtype) {
  switch (dtype) {
    case DType::i32:
      return BoundedElementType::i32;
    case DType::i64:
      return BoundedElementType::i64;
    case DType::u8:
      return BoundedElementType::u8;
    default:
      return BoundedElementType::boolean;
  }
}

}  // namespace

std::optional<BoundedElement> bounded_element(const VariantDefinition& d, std::string_view text) {
  const std::string_view name = text.substr(0, text.find('('));
  const bool is_call = name.size() != text.size();
  const auto at = std::ranges::find(d.tensors, name, &VariantTensor::name);
  if (at == d.tensors.end() || is_table(*at) != is_call || is_float(at->dtype)) return std::nullopt;
  const std::vector<std::string> indices = is_call ? arguments_of(text) : at->indices;
  if (indices.size() != at->indices.size()) return std::nullopt;
  auto element = element_at(indices);
  if (element) element->tensor.tensor = static_cast<std::size_t>(at - d.tensors.begin());
  return element;
}

std::vector<BoundedTensor> bounded_tensors(const VariantDefinition& d) {
  std::vector<BoundedTensor> list;
  visit_mask(d, [&](const BoundedElement& element, const std::string&) {
    if (std::ranges::find(list, element.tensor) == list.end()) list.push_back(element.tensor);
  });
  return list;
}

bool mask_reads_at_keys(const VariantDefinition& d) {
  bool reads = false;
  visit_mask(d, [&](const BoundedElement& element, const std::string&) {
    reads = reads || element.position == "kv";
  });
  return reads;
}

MaskReadAhead read_ahead(const VariantDefinition& d) {
  std::map<std::string, std::string> names;  // of the elements' texts
  MaskReadAhead result;
  visit_mask(d, [&](const BoundedElement& element, const std::string& text) {
    const VariantTensor& tensor = d.tensors[element.tensor.tensor];
    if (!is_table(tensor) || names.contains(text)) return;
    std::string name = free_name(d, tensor.name + "_at_" + element.position);
    const auto is_taken = [&](const auto& known) { return known.second == name; };
    while (std::ranges::any_of(names, is_taken)) name = free_name(d, name + "_");
    names[text] = name;
    result.statements += "    const auto " + name + " = " + text + ";\n";
  });
  for (std::size_t i = 0; i < d.mask.size();) {
    const std::string call = call_at(d.mask, i);
    const auto known = names.find(without_spaces(call));
    if (known != names.end() && !names_member(result.text)) {
      result.text += known->second, i += call.size();
      continue;
    }
    // All of an identifier, so that none is taken for its end.
    do {
      result.text += d.mask[i++];
    } while (i < d.mask.size() && is_of_name(d.mask[i - 1]) && is_of_name(d.mask[i]));
  }
  return result;
}

std::string bounds_members(const VariantDefinition& d, const std::vector<BoundedTensor>& tensors) {
  std::string members;
  for (const BoundedTensor& one : tensors) {
    members += "    kiln::ElementBounds " + member_of(d, one) + ";\n";
  }
  return members.empty() ? "" : "  struct {\n" + members + "  } element_bounds;\n";
}

std::string interval_of_element(const VariantDefinition& d, const BoundedElement& element,
                                const std::string& box) {
  const std::string positions = box + "." + element.position;
  return "element_bounds." + member_of(d, element.tensor) + ".at(" + box + ".b, " + positions +
         (element.position == "row" ? "())" : ")");
}

namespace {

// Where the element at the numbers, at position 0 of entry 0, lies, in elements; nothing where
// there is none. A number outside of its dimension stands for the nearest place, as a table's
// indices do.
std::optional<std::int64_t> first_element(const BoundedTensor& bounded, const TensorView& view) {
  std::int64_t first = 0;
  for (int i = 0; i < view.rank; ++i) {
    if (!bounded.has_place(i)) continue;
    if (view.shape[i] == 0) return std::nullopt;
    first += std::min<std::int64_t>(bounded.places[i], view.shape[i] - 1) * view.strides[i];
  }
  return first;
}

}  // namespace

void add_bounds_arguments(const BoundedTensor& bounded, const TensorView& view, int number,
                          AttentionProblem& problem) {
  CallArguments& arguments = problem.arguments();
  const std::int64_t length = view.shape[bounded.position];
  const std::int64_t entries = bounded.entry < 0 ? 1 : view.shape[bounded.entry];
  const std::size_t offset = arguments.size();
  // Tables may have other extents than the call.
  const bool is_usual = length > 0 && length <= kMostBlocks * kBoundedPositions &&
                        (entries == 1 || entries == problem.batch);
  const int blocks = is_usual ? bounded_blocks(static_cast<int>(length)) : 0;
  arguments.add_word(0);
  arguments.add_word(static_cast<std::uint32_t>(blocks));
  arguments.add_word(static_cast<std::uint32_t>(entries == 1 ? 0 : blocks));
  const auto first = first_element(bounded, view);
  if (!is_usual || !first || problem.bounded_count == problem.bounded.size()) return;
  problem.bounded[problem.bounded_count++] = {
      bounded, &view, offset, number, *first, static_cast<int>(entries), static_cast<int>(length)};
}

void add_bounds_launch(AttentionProblem& problem, const runtime::Device& device,
                       bool may_use_workspace) {
  if (problem.bounded_count == 0 || !may_use_workspace) return;
  if (problem.traits.storage != Storage::dense || problem.len_q < kLeastQueries) return;
  constexpr std::size_t kBytes = 8;  // of a block's bounds
  const std::size_t begin = (problem.recipe.workspace_bytes + 15) / 16 * 16;
  BoundElementsParams params{};
  std::int64_t blocks = 0;
  for (std::size_t i = 0; i < problem.bounded_count; ++i) {
    const BoundedArgument& one = problem.bounded[i];
    const TensorView& view = *one.view;
    const auto stride = [&](int dimension) -> long long {
      return dimension < 0 || view.shape[dimension] == 1 ? 0 : view.strides[dimension];
    };
    params.tensors[i] = {.elements = nullptr,
                         .first = one.first,
                         .entry_stride = stride(one.dimensions.entry),
                         .stride = stride(one.dimensions.position),
                         .length = one.length,
                         .first_block = static_cast<int>(blocks),
                         .type = element_type(view.dtype)};
    blocks += std::int64_t{bounded_blocks(one.length)} * one.entries;
    if (blocks > kMostBlocks) return;
  }
  params.count = static_cast<int>(problem.bounded_count);
  params.blocks = static_cast<int>(blocks);
  const std::size_t end = begin + static_cast<std::size_t>(blocks) * kBytes;

  CallArguments& reads = problem.arguments();
  if (reads.wants_workspace()) {
    reads.extend_workspace(end);
  } else {
    reads.want_workspace(problem.bounded[0].offset, begin, end - begin);
  }
  Step& step = problem.recipe.add();
  step.spec = element_bounder(arch_of(device));
  step.blocks = grid_of(bound_elements_ctas(blocks));
  step.prepares = true;
  step.arguments.set_params(params);
  for (std::size_t i = 0; i < problem.bounded_count; ++i) {
    const BoundedArgument& one = problem.bounded[i];
    const auto first = static_cast<std::size_t>(params.tensors[i].first_block);
    reads.add_workspace_pointer(one.offset, begin + first * kBytes);
    const std::size_t pointer = offsetof(BoundElementsParams, tensors) +
                                i * sizeof(BoundedTensorParams) +
                                offsetof(BoundedTensorParams, elements);
    step.arguments.set_value(pointer, one.view->data);
    step.arguments.add_pointer(pointer, *one.view, /*written=*/false, 1, one.number);
  }
  step.arguments.want_workspace(offsetof(BoundElementsParams, bounds), begin, end - begin);
  problem.recipe.workspace_bytes = end;
}

namespace {

std::string render_bounder(const Specialization&, const UserTexts&) {
  SourceText text;
  text << "#include \"/kiln/bound_elements/bound_elements.cuh\"\n\n"
       << "extern \"C\" __global__ void __launch_bounds__(kiln::kBoundElementsThreads)\n"
       << kEntryName << "(const __grid_constant__ kiln::BoundElementsParams args) {\n"
       << "  kiln::bound_elements(args);\n}\n";
  return text.str();
}

constexpr int kBounderRow = 0;  // of a table without properties

constexpr Template kBounderTemplates[] = {
    {.family = &kBoundElements,
     .path = "bounds",
     .file = "bound_elements/bound_elements.cuh",
     .means = "a warp for each 64 elements",
     .row_fields = {},
     .row = [](int) -> const void* { return &kBounderRow; },
     .tile = [](int) { return std::string("warp"); },
     .reason = [](int) { return std::string_view("a warp reads 64 elements at once"); },
     .footprint = [](const Specialization&) { return Footprint{kBoundElementsThreads, 0}; },
     .render = render_bounder}};

std::vector<Specialization> bounder_kernels(const Traits&, int arch, Kernels) {
  return {element_bounder(arch)};
}

}  // namespace

Specialization element_bounder(int arch) {
  return Specialization(kBounderTemplates[0], arch, kBounderRow, Traits{});
}

constinit const Family kBoundElements = {
    .name = "bound_elements",
    .title = "bounds of a mask's elements",
    .templates = kBounderTemplates,
    .fields = {},
    .kernels = bounder_kernels,
    .samples = [](int arch) { return std::vector<Specialization>{element_bounder(arch)}; }};

}  // namespace kiln
