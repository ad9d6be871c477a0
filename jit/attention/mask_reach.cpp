#include "jit/attention/mask_reach.h"

#include <algorithm>
#include <utility>

#include "jit/attention/mask_formula.h"
#include "jit/attention/mask_names.h"
#include "jit/attention/mask_terms.h"

namespace kiln {
namespace {

using O = Operation;

// Adds a term of a sum; false for one that only the device knows.
bool add_term(const VariantDefinition& d, const MaskTerms::Term& term, MaskReach::Bound& bound) {
  const int sign = term.negative ? -1 : 1;
  if (term.value->operation == O::literal) {
    bound.constant += sign * term.value->value;
    return true;
  }
  if (term.value->operation != O::name) return false;
  const auto is_named = [&](const VariantParam& param) {
    return param.name == term.value->text && param.dtype == DType::i32;
  };
  const auto at = std::ranges::find_if(d.params, is_named);
  if (at == d.params.end()) return false;
  bound.terms.push_back({static_cast<std::size_t>(at - d.params.begin()), sign});
  return true;
}

// Adds what a part of a conjunction says of q - kv; false if that is not all that it says.
bool add_part(const VariantDefinition& d, const Formula& f, MaskReach& reach) {
  if (f.kind != Formula::Kind::compare || f.comparison == O::differ) return false;
  if (f.left->type == ValueType::real || f.right->type == ValueType::real) return false;
  const MaskTerms all = difference(terms_of(f.left), terms_of(f.right));
  if (!all.has_distance() || (all.q != 1 && all.q != -1)) return false;
  // q - kv + the rest is compared with 0, or kv - q + the rest.
  const bool is_positive = all.q > 0;
  MaskTerms rest = is_positive ? difference({}, all) : all;
  MaskReach::Bound bound{.shift = rest.shift};
  for (const MaskTerms::Term& term : rest.terms) {
    if (!add_term(d, term, bound)) return false;
  }
  const bool is_less = f.comparison == O::less || f.comparison == O::at_most;
  const bool is_strict = f.comparison == O::less || f.comparison == O::more;
  if (is_strict) bound.constant += is_less == is_positive ? -1 : 1;
  bound.is_upper = is_less == is_positive;
  reach.bounds.push_back(bound);
  if (f.comparison != O::equal) return true;
  bound.is_upper = !bound.is_upper;
  reach.bounds.push_back(std::move(bound));
  return true;
}

}  // namespace

void MaskReach::add(const MaskReach& other, std::size_t params) {
  for (Bound bound : other.bounds) {
    for (Bound::Term& term : bound.terms) term.param += params;
    bounds.push_back(std::move(bound));
  }
  is_whole = is_whole && other.is_whole;
  bounded.insert(bounded.end(), other.bounded.begin(), other.bounded.end());
  uses.insert(uses.end(), other.uses.begin(), other.uses.end());
}

MaskReach reach_of(const VariantDefinition& d) {
  MaskReach reach{.is_whole = d.mask.empty() && d.file_text.empty(),
                  .bounded = {bounded_tensors(d)}};
  // A file may show more than the expression that it asks.
  if (d.mask.empty() || !d.file_text.empty()) return reach;
  const ParsedExpression parsed =
      parse_expression(d.mask, [&](std::string_view name) { return type_of_mask_name(d, name); });
  if (!parsed.tree) return reach;
  const Formula shows = formula_of(parsed.tree, false);
  if (shows.kind != Formula::Kind::all) {
    reach.is_whole = add_part(d, shows, reach);
    return reach;
  }
  reach.is_whole = true;
  for (const Formula& part : shows.parts) {
    if (!add_part(d, part, reach)) reach.is_whole = false;
  }
  return reach;
}

Distances distances_of(const MaskReach& reach, std::span<const double> values,
                       std::optional<std::int64_t> shift) {
  constexpr std::int64_t kOpen = std::int64_t{1} << 40;
  Distances all{-kOpen, kOpen, reach.is_whole};
  for (const MaskReach::Bound& bound : reach.bounds) {
    if (bound.shift != 0 && !shift) {
      all.are_all = false;
      continue;
    }
    std::int64_t number = bound.constant + bound.shift * shift.value_or(0);
    for (const MaskReach::Bound::Term& term : bound.terms) {
      number += term.sign * static_cast<std::int64_t>(values[term.param]);
    }
    if (bound.is_upper) {
      all.high = std::min(all.high, number);
    } else {
      all.low = std::max(all.low, number);
    }
  }
  return all;
}

}  // namespace kiln
