// This part of MaskWriter writes masks that show each query one run of keys.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "jit/attention/mask_names.h"
#include "jit/attention/mask_text.h"
#include "jit/attention/mask_writer.h"

namespace kiln {
namespace {

using K = Formula::Kind;
using O = Operation;

}  // namespace

bool MaskWriter::bounds_rows(const Formula& formula) {
  const auto bound_here = [&](const Formula& f) { return bounds_rows(f); };
  switch (formula.kind) {
    case K::all:
      return std::ranges::all_of(formula.parts, bound_here);
    case K::any:
      // Runs that all begin at the first key are one run together.
      return shows_first_keys(formula) && std::ranges::all_of(formula.parts, bound_here);
    case K::compare:
      return formula.comparison != O::differ && bound(formula, "box").is_exact;
    default:
      return false;
  }
}

bool MaskWriter::shows_first_keys(const Formula& formula) {
  if (formula.kind == K::all || formula.kind == K::any) {
    return std::ranges::all_of(formula.parts,
                               [&](const Formula& f) { return shows_first_keys(f); });
  }
  if (formula.kind != K::compare) return false;
  const Bound bounds = bound(formula, "box");
  if (bounds.position == nullptr) return false;
  const std::string_view position = bounds.position;
  const O comparison = bounds.comparison;
  return (position == "kv" && (comparison == O::less || comparison == O::at_most)) ||
         (position == "distance" && (comparison == O::more || comparison == O::at_least));
}

std::string MaskWriter::number(const MaskTerms& terms, const std::string& box) {
  std::int64_t literals = 0;
  std::string sum;
  std::size_t names = 0;
  bool has_negative = false;
  for (const MaskTerms::Term& term : terms.terms) {
    if (term.value->operation == O::literal) {
      literals += term.negative ? -term.value->value : term.value->value;
      continue;
    }
    // Its interval is kiln::point(..) of an int, or of a wider element of a tensor.
    const std::string point = interval_of_name(d_, plain_name(term.value->text), box);
    const std::string value = "static_cast<int>" + point.substr(point.find('('));
    ++names;
    has_negative = has_negative || term.negative;
    sum += (term.negative ? " - " : " + ") + value;
  }
  for (int i = 0; i < std::abs(terms.shift); ++i) {
    sum +=
        std::string(terms.shift < 0 ? " - " : " + ") + "(" + box + ".len_kv - " + box + ".len_q)";
  }
  if (sum.empty() && std::abs(literals) < std::int64_t{1} << 30) return std::to_string(literals);
  const bool is_name = names == 1 && !has_negative && terms.shift == 0 && literals == 0;
  if (is_name) return call("near", sum.substr(3));
  return call("near", "kiln::i64{" + std::to_string(literals) + "}" + sum);
}

std::string MaskWriter::run_body(const Formula& formula) {
  const Run all = run(formula);
  const std::string begin = all.begin.empty() ? "0" : all.begin;
  const std::string end = all.end.empty() ? "row.len_kv" : all.end;
  const std::string run = "kiln::run_of_keys(row, " + begin + ", " + end + ")";
  if (all.condition.empty()) return "    return " + run + ";\n";
  return "    return " + all.condition + " ? " + run + " : kiln::Range{0, 0};\n";
}

MaskWriter::Run MaskWriter::run(const Formula& formula) {
  if (formula.kind == K::compare) return run_of_comparison(formula);
  const auto join = [](std::string& all, const std::string& one, const char* function) {
    if (!one.empty()) all = all.empty() ? one : call(function, all, one);
  };
  Run all;
  for (const Formula& part : formula.parts) {
    const Run one = run(part);
    join(all.begin, one.begin, "largest");
    join(all.end, one.end, formula.kind == K::all ? "least" : "largest");
    if (!one.condition.empty()) {
      all.condition =
          all.condition.empty() ? one.condition : in_brackets(" && ", all.condition, one.condition);
    }
  }
  return all;
}

MaskWriter::Run MaskWriter::run_of_comparison(const Formula& formula) {
  const Bound bounds = bound(formula, "row");
  const std::string_view position = bounds.position;
  O comparison = bounds.comparison;
  std::string key = bounds.number;
  if (position == "q") {
    const char* const sign = comparison == O::less       ? " < "
                             : comparison == O::at_most  ? " <= "
                             : comparison == O::more     ? " > "
                             : comparison == O::at_least ? " >= "
                                                         : " == ";
    return {.condition = in_brackets(sign, "row.q", key)};
  }
  if (position == "distance") {
    // q - kv < n is kv > q - n.
    key = in_brackets(" - ", "row.q", key);
    comparison = mirrored(comparison);
  }
  const std::string next = in_brackets(" + ", key, "1");
  switch (comparison) {
    case O::less:
      return {.end = key};
    case O::at_most:
      return {.end = next};
    case O::more:
      return {.begin = next};
    case O::at_least:
      return {.begin = key};
    default:
      return {.begin = key, .end = next};
  }
}

}  // namespace kiln
