#include "jit/attention/mask_source.h"

#include <algorithm>
#include <memory>

#include "jit/attention/element_bounds.h"
#include "jit/attention/mask_formula.h"
#include "jit/attention/mask_names.h"
#include "jit/attention/mask_writer.h"
#include "jit/op/source_text.h"

namespace kiln {
namespace {

void collect_unread(const VariantDefinition& d, const Expression& e,
                    std::vector<std::string>& unread) {
  std::string what;
  if (e.operation == Operation::unknown) {
    what = "'" + e.text + "'";
  } else if (e.operation == Operation::name) {
    what = why_unknown(d, plain_name(e.text));
  }
  if (!what.empty() && std::ranges::find(unread, what) == unread.end()) unread.push_back(what);
  for (const ExpressionPointer& operand : e.operands) collect_unread(d, *operand, unread);
}

std::string of_box(const char* type_and_name, const std::string& body) {
  return std::string("  __device__ __forceinline__ ") + type_and_name +
         "(const kiln::MaskBox& box) const {\n" + body + "  }\n";
}

std::string visible_of(const std::string& body) {
  return "  __device__ __forceinline__ kiln::Range visible(const kiln::Position& row) const {\n" +
         body + "  }\n";
}

ExpressionPointer joined(const std::vector<ExpressionPointer>& conditions) {
  ExpressionPointer all = conditions.front();
  for (std::size_t i = 1; i < conditions.size(); ++i) {
    all = std::make_shared<const Expression>(Expression{.operation = Operation::both,
                                                        .type = ValueType::boolean,
                                                        .operands = {all, conditions[i]}});
  }
  return all;
}

void collect_conditions(const ExpressionPointer& e, std::vector<ExpressionPointer>& conditions) {
  if (e->operation != Operation::both) return conditions.push_back(e);
  for (const ExpressionPointer& operand : e->operands) collect_conditions(operand, conditions);
}

// Some conditions of a conjunction may bound the keys of a row, as a causal one does. Where the
// others hide nothing that these show, the tile is masked by their runs of keys.
std::string runs_beside_others(const VariantDefinition& d, const ExpressionPointer& mask) {
  std::vector<ExpressionPointer> conditions, runs, others;
  collect_conditions(mask, conditions);
  for (const ExpressionPointer& one : conditions) {
    const bool bounds = is_read_whole(one) && MaskWriter(d).bounds_rows(formula_of(one, false));
    (bounds ? runs : others).push_back(one);
  }
  if (runs.empty() || others.empty()) return "";
  const ExpressionPointer rest = joined(others), shown = joined(runs);
  if (formula_of(rest, true).kind == Formula::Kind::unknown) return "";
  const auto hidden = std::make_shared<const Expression>(
      Expression{.operation = Operation::invert, .type = ValueType::boolean, .operands = {rest}});
  const Formula asks = formula_of(joined({shown, hidden}), false);
  return "  static constexpr bool kShowsRuns = true;\n" +
         of_box("bool may_ask", MaskWriter(d).body(asks)) +
         "  __device__ __forceinline__ bool asks_keep(const kiln::TileRows& rows, int kv_first,\n"
         "                                            int kv_last) const {\n"
         "    return may_ask(kiln::box_of(rows, kv_first, kv_last));\n  }\n" +
         visible_of(MaskWriter(d).run_body(formula_of(shown, false)));
}

}  // namespace

MaskSource mask_source(const VariantDefinition& d) {
  MaskSource source;
  const ParsedExpression parsed = parse_expression(
      d.mask, [&](std::string_view name) { return type_of_mask_element(d, name); });
  if (!parsed.tree) {
    source.unread.push_back("anything from " + parsed.fault + " on");
    return source;
  }
  collect_unread(d, *parsed.tree, source.unread);
  const Formula shows = formula_of(parsed.tree, false), hides = formula_of(parsed.tree, true);
  source.skips = shows.kind != Formula::Kind::unknown;
  source.fills = hides.kind != Formula::Kind::unknown;
  if (!source.skips && !source.fills) return source;
  // Comparisons alone bound the keys where elements are read, as the bounds of elements of many
  // keys take a load for each 64. That is cheap enough to ask again, and what a range hides of a
  // tile then needs no keep().
  const bool reads_elements = !bounded_tensors(d).empty();
  SourceText text;
  text << "  static constexpr bool kTilesBySequence = true;\n"
       << "  static constexpr bool kRangeFollowsKeep = " << boolean(!reads_elements) << ";\n"
       << of_box("bool may_show", MaskWriter(d).body(shows))
       << of_box("bool may_hide", MaskWriter(d).body(hides))
       << "  __device__ __forceinline__ kiln::Tile tile(const kiln::TileRows& rows, int kv_first,\n"
       << "                                             int kv_last) const {\n"
       << "    return kiln::tile_of(*this, rows, kv_first, kv_last);\n  }\n";
  if (source.skips) {
    if (reads_elements) text << "  static constexpr bool kSearchesKeys = true;\n";
    text
        << of_box("kiln::Interval keys_within", MaskWriter(d).keys_body(shows))
        << "  __device__ __forceinline__ kiln::Range kv_range(const kiln::TileRows& rows) const {\n"
        << "    return kiln::" << (reads_elements ? "compared_range_of" : "range_of")
        << "(*this, rows);\n  }\n";
  }
  source.bounds_rows = is_read_whole(parsed.tree) && MaskWriter(d).bounds_rows(shows);
  if (MaskWriter(d).shows_first_keys(shows)) {
    text << "  static constexpr bool kShowsFirstKeys = true;\n";
  }
  if (source.bounds_rows) {
    text << "  static constexpr bool kMasksByRange = true;\n"
         << visible_of(MaskWriter(d).run_body(shows));
  } else if (source.fills) {
    text << runs_beside_others(d, parsed.tree);
  }
  source.members = text.str();
  return source;
}

std::string mask_note(const VariantDefinition& d) {
  if (d.mask.empty()) return "";
  const MaskSource source = mask_source(d);
  std::string unread;
  for (const std::string& what : source.unread) unread += (unread.empty() ? "" : ", ") + what;
  if (source.members.empty()) {
    return "the variant's mask is evaluated for every pair: " +
           (unread.empty() ? "its text says nothing of whole tiles" : unread + " cannot be read") +
           " over intervals";
  }
  std::string note = "the variant's mask is evaluated over intervals too: tiles that it hides are ";
  note += source.skips ? "skipped" : "not skipped";
  note += source.fills ? ", and those that it shows whole are not masked"
                       : ", and none is known to be shown whole";
  if (!unread.empty()) note += "; " + unread + " cannot be read";
  return note;
}

}  // namespace kiln
