#include "kiln/variant.h"

#include <algorithm>
#include <optional>

#include "jit/attention/element_bounds.h"
#include "jit/attention/logit_cap.h"
#include "jit/attention/logit_tilt.h"
#include "jit/attention/mask_reach.h"
#include "jit/attention/mask_source.h"
#include "jit/attention/variant_arguments.h"
#include "jit/op/checks.h"
#include "jit/op/digest.h"
#include "jit/op/user_text.h"
#include "jit/op/user_values.h"

namespace kiln {
namespace {

// The words of a call's arguments that the built-in options leave to variants.
constexpr std::size_t kMostWords = 280;
const char* const kIndices[] = {"b", "h", "h_kv", "row", "q", "kv"};
const char* const kReserved[] = {"logit", "q",     "row",    "kv", "b",    "h",
                                 "h_kv",  "len_q", "len_kv", "at", "kiln", "arguments"};

UserDeclarations declarations_of(const VariantDefinition& d) {
  return {"Variant", d.name, d.params, d.tensors, kReserved, kIndices, "b, h, h_kv, row, q, kv"};
}

[[noreturn]] void refuse(const VariantDefinition& d, const std::string& what) {
  refuse_declaration(declarations_of(d), what);
}

void check_file(const VariantDefinition& d) {
  if (d.file_text.find('\0') != std::string::npos) refuse(d, "a template file must be text");
  if (reads_foreign_files(d.file_text)) {
    refuse(d,
           "a template file may include only Kiln's own files, as #include \"/kiln/...\", may not "
           "ask for files with __has_include, and may not join tokens (##) if it has #if or #elif");
  }
}

bool has(const VariantDefinition& d, const char* in_file) {
  return d.file_text.find(in_file) != std::string::npos;
}

bool derives_from(const VariantDefinition& d, const char* base) {
  const std::string head = "struct UserVariant : ";
  return has(d, (head + base + " {").c_str());
}

// Whether a file's struct derives from that of a mask's expression: see user_variant().
bool asks_expression(const VariantDefinition& d) {
  return d.logits.empty() && derives_from(d, "UserMask");
}

void check_definition(const VariantDefinition& d) {
  for (const std::string* text : {&d.name, &d.logits, &d.mask, &d.file_text, &d.file_name}) {
    if (!is_utf8(*text)) {
      throw std::invalid_argument("Variant: its name, expressions and files must be UTF-8 text");
    }
  }
  check_declarations(declarations_of(d));
  const bool expressions = !d.logits.empty() || !d.mask.empty();
  if (expressions && !d.file_text.empty() && !asks_expression(d)) {
    refuse(d, "give expressions or a file, not both");
  }
  if (!expressions && d.file_text.empty()) {
    refuse(d, "changes nothing: give logits=, mask= or a template file");
  }
  check_file(d);
  for (const std::string* text : {&d.logits, &d.mask}) {
    if (!is_plain_expression(*text)) {
      refuse(d, "an expression must be one line without preprocessor directives");
    }
  }
}

// Says what the kernel does with its tensors.
Use use_of_tensors(const VariantDefinition& d) {
  return has(d, "kTakesMaxima = true") ? Use::written : Use::read;
}

std::int64_t extent_of(const std::string& index, const AttentionProblem& problem) {
  if (index == "b") return problem.batch;
  if (index == "h") return problem.heads;
  if (index == "h_kv") return problem.heads_kv;
  if (index == "row") return problem.len_q;
  return problem.len_kv;  // q counts positions among the keys, kv the keys
}

void add_tensor(const VariantDefinition& d, const VariantTensor& declared, const TensorView& view,
                Use use, AttentionProblem& problem) {
  const Subject subject{"flash_attention's variant", declared.name.c_str()};
  check_bound_tensor(subject, declared, view, problem);
  for (int i = 0; i < view.rank; ++i) {
    const std::string& index = declared.indices[static_cast<std::size_t>(i)];
    if (is_free_index(index)) {
      check_free_dimension(subject, index, view, i);
      continue;
    }
    const std::int64_t extent = extent_of(index, problem);
    if (index == "q" && problem.len_q > problem.len_kv) {
      refuse(d, "tensor '" + declared.name +
                    "' is indexed by q, which is negative for the first "
                    "rows when len_q > len_kv; index it by row");
    }
    if (view.shape[i] != extent && view.shape[i] != 1) {
      throw_value(subject, "must have size " + std::to_string(extent) + " (or 1) in dimension " +
                               std::to_string(i) + " (" + index + "), got " + shape_text(view));
    }
  }
  if (use == Use::written) check_written(subject, view);
  add_bound_tensor(subject.name, view, is_table(declared), problem, use);
}

void set_code(Digest128& digest, std::uint64_t code) {
  digest[1] = (digest[1] & ~AttentionTraits::kCodeBits) | code;
}

}  // namespace

std::size_t argument_words(const VariantDefinition& d) {
  std::size_t words = d.params.size();
  for (const VariantTensor& tensor : d.tensors) {
    words += 1 + tensor.indices.size() * (is_table(tensor) ? 2 : 1);
  }
  return words;
}

bool may_index_by_key(const VariantDefinition& d) {
  // A file says for itself what the kernel reads of it.
  if (!d.file_text.empty()) {
    return d.file_text.find("kIndexesByKey = false") == std::string::npos;
  }
  // An expression may also read a tensor at indices of its own, as a member of `arguments`.
  if (!d.tensors.empty() && (d.logits + d.mask).find("arguments") != std::string::npos) return true;
  // Code that tilts logits reads tensors at heads, and a cap's factors are read at numbers.
  const bool is_known = tilt_of(d).is_known() || cap_of(d).is_known();
  return std::any_of(d.tensors.begin(), d.tensors.end(), [&](const VariantTensor& tensor) {
    if (is_known && d.mask.find(tensor.name) == std::string::npos) return false;
    return is_table(tensor) || std::ranges::find(tensor.indices, "kv") != tensor.indices.end();
  });
}

// A file that derives its struct from another may inherit what it does not mention.
bool keeps_logits(const VariantDefinition& d) {
  if (d.file_text.empty()) return d.logits.empty();
  return (derives_from(d, "kiln::VariantDefaults") || asks_expression(d)) &&
         !has(d, "kTransformsLogits");
}

bool may_mask(const VariantDefinition& d) { return !d.mask.empty() || has(d, "kMasks"); }

// Whether nothing but a mask reads at keys, and few values at a time.
bool masks_alone(const VariantDefinition& d, bool tilts) {
  constexpr std::size_t kMostTensors = 2;
  if (d.file_text.empty()) return (d.logits.empty() || tilts) && d.tensors.size() <= kMostTensors;
  return has(d, "kTransformsLogits = false") || !has(d, "kTransformsLogits");
}

// A file whose tile() is worth a search has large regions of either kind.
bool fills_tiles(const VariantDefinition& d) {
  if (!may_mask(d)) return true;
  if (d.file_text.empty()) return mask_source(d).fills;
  return has(d, "kSearchesKeys = true") || has(d, "kFillsTiles = true");
}

std::uint64_t code_of(const VariantDefinition& d) {
  using Traits = AttentionTraits;
  const bool by_key = may_index_by_key(d);
  const bool masks = may_mask(d), keeps = keeps_logits(d);
  const LogitTilt tilt = tilt_of(d);
  const bool tilts = tilt.is_known();
  const bool bounds_rows =
      (keeps || tilts) && (!masks || (d.file_text.empty() && mask_source(d).bounds_rows));
  return (by_key ? Traits::kIndexesByKey : 0) | (masks ? Traits::kMasks : 0) |
         (bounds_rows && !by_key ? Traits::kBoundsRows : 0) | (tilts ? Traits::kTilts : 0) |
         (tilt.of_past ? Traits::kTiltsPast : 0) |
         (bounded_tensors(d).empty() ? 0 : Traits::kBoundsElements) |
         (masks_alone(d, tilts) ? Traits::kMasksAlone : 0) |
         (fills_tiles(d) ? Traits::kFillsTiles : 0) |
         (has(d, "kHasDistanceBias = true") ? Traits::kHasDistanceBias : 0) |
         (keeps ? Traits::kKeepsLogits : 0) |
         (has(d, "kFillsTiles = true") ? Traits::kReadsTiles : 0);
}

void add_reach(const BoundVariant& bound, AttentionProblem& problem) {
  if (!problem.traits.variant_masks()) return;
  const MaskReach& reach = bound.variant().reach();
  const std::int64_t len_q = problem.len_q;
  std::optional<std::int64_t> shift;
  if (problem.traits.storage == Storage::dense) shift = problem.len_kv - len_q;
  const Distances distances = distances_of(reach, bound.values(), shift);
  // Behind the last query there is no key.
  const std::int64_t low =
      std::max(distances.low, problem.traits.mask == Mask::causal ? 0 : 1 - len_q);
  const std::int64_t keys = std::max<std::int64_t>(distances.high - low + 1, 1);
  problem.keys = static_cast<int>(std::min<std::int64_t>(problem.keys, keys));
  // Nearly a triangle, unless the window hides its far corner.
  problem.may_be_even = !distances.are_all || low < -len_q / 8;
}

const VariantTensor* tensor_indexed_by(const Variant& variant, std::string_view index) {
  for (const auto& definition : variant.definitions()) {
    for (const VariantTensor& tensor : definition->tensors) {
      if (std::ranges::find(tensor.indices, index) != tensor.indices.end()) return &tensor;
    }
  }
  return nullptr;
}

Variant::Variant(VariantDefinition definition) {
  check_definition(definition);
  digest_ = digest_of({{"signature", signature_of(declarations_of(definition))},
                       {"logits", definition.logits},
                       {"mask", definition.mask},
                       {"file", definition.file_text}});
  set_code(digest_, code_of(definition));
  MaskReach reach = reach_of(definition);
  reach.uses = {use_of_tensors(definition)};
  reach_ = std::make_shared<const MaskReach>(std::move(reach));
  definitions_ = {std::make_shared<const VariantDefinition>(std::move(definition))};
}

Variant::Variant(const std::vector<Variant>& list) {
  std::string digests;
  std::uint64_t any = 0, all = AttentionTraits::kCodeBits;
  MaskReach reach;
  std::size_t words = 0, params = 0, tilting = 0, biased = 0, keeping = 0;
  for (const Variant& one : list) {
    definitions_.insert(definitions_.end(), one.definitions_.begin(), one.definitions_.end());
    for (const std::uint64_t half : one.digest_) digests += std::to_string(half) + ";";
    const std::uint64_t code = one.digest_[1] & AttentionTraits::kCodeBits;
    any |= code;
    all &= code;
    tilting += (code & AttentionTraits::kTilts) != 0 ? 1 : 0;
    biased += (code & AttentionTraits::kHasDistanceBias) != 0 ? 1 : 0;
    keeping += (code & AttentionTraits::kKeepsLogits) != 0 ? 1 : 0;
    reach.add(*one.reach_, params);
    for (const auto& definition : one.definitions_) params += definition->params.size();
  }
  if (definitions_.empty() || definitions_.size() > kMostVariants) {
    throw std::invalid_argument("Variant: a list must have 1 to 4 variants, got " +
                                std::to_string(definitions_.size()));
  }
  for (const auto& definition : definitions_) words += argument_words(*definition);
  for (const auto& bounded : reach.bounded) words += kBoundsWords * bounded.size();
  if (words > kMostWords) {
    throw std::invalid_argument("Variant: the parameters and tensors of a list take " +
                                std::to_string(8 * words) + " bytes of a kernel's arguments, and " +
                                std::to_string(8 * kMostWords) +
                                " are free; put several values into one tensor");
  }
  digest_ = list.size() == 1 ? list[0].digest_ : digest_of({{"list", digests}});
  constexpr std::uint64_t kOfAll = AttentionTraits::kBoundsRows | AttentionTraits::kMasksAlone |
                                   AttentionTraits::kFillsTiles | AttentionTraits::kKeepsLogits;
  // A list tilts logits if some do, or adds one bias by distance, and the others leave them alone.
  const std::uint64_t tilts = tilting + keeping == list.size() ? 0 : AttentionTraits::kTilts;
  const std::uint64_t is_biased =
      biased == 1 && keeping + 1 == list.size() ? 0 : AttentionTraits::kHasDistanceBias;
  set_code(digest_, (any & ~kOfAll & ~tilts & ~is_biased) | (all & kOfAll));
  reach_ = std::make_shared<const MaskReach>(std::move(reach));
}

BoundVariant Variant::bind(std::vector<double> values, std::vector<TensorView> tensors) const {
  std::vector<const VariantParam*> params;
  std::size_t tensor_count = 0;
  for (const auto& definition : definitions_) {
    for (const VariantParam& param : definition->params) params.push_back(&param);
    tensor_count += definition->tensors.size();
  }
  if (values.size() != params.size() || tensors.size() != tensor_count) {
    refuse(definition(), "takes " + std::to_string(params.size()) + " parameters and " +
                             std::to_string(tensor_count) + " tensors, got " +
                             std::to_string(values.size()) + " and " +
                             std::to_string(tensors.size()));
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    check_param_value(declarations_of(definition()), *params[i], values[i]);
  }
  return BoundVariant(*this, std::move(values), std::move(tensors));
}

BoundVariant compose(const std::vector<BoundVariant>& list) {
  std::vector<Variant> variants;
  std::vector<double> values;
  std::vector<TensorView> tensors;
  for (const BoundVariant& one : list) {
    variants.push_back(one.variant());
    values.insert(values.end(), one.values().begin(), one.values().end());
    tensors.insert(tensors.end(), one.tensors().begin(), one.tensors().end());
  }
  return Variant(variants).bind(std::move(values), std::move(tensors));
}

void add_variant_arguments(const BoundVariant& bound, AttentionProblem& problem) {
  const double* value = bound.values().data();
  const TensorView* tensor = bound.tensors().data();
  const MaskReach& reach = bound.variant().reach();
  const std::vector<BoundedTensor>* bounded = reach.bounded.data();
  const Use* use = reach.uses.data();
  CallArguments& arguments = problem.arguments();
  for (const auto& definition : bound.variant().definitions()) {
    for (const VariantParam& param : definition->params) {
      add_param(param, *value++, arguments);
    }
    const auto first = static_cast<int>(problem.tensors.all().size());
    const TensorView* const views = tensor;
    for (const VariantTensor& declared : definition->tensors) {
      add_tensor(*definition, declared, *tensor++, *use, problem);
    }
    ++use;
    for (const BoundedTensor& one : *bounded++) {
      add_bounds_arguments(one, views[one.tensor], first + static_cast<int>(one.tensor), problem);
    }
  }
}

}  // namespace kiln
