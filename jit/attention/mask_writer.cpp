#include "jit/attention/mask_writer.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "jit/attention/mask_names.h"
#include "jit/attention/mask_text.h"
#include "jit/op/user_text.h"

namespace kiln {
namespace {

using K = Formula::Kind;
using O = Operation;
using T = ValueType;

constexpr std::int64_t kFarthest = std::int64_t{1} << 30;  // as mask_box.cuh's
const char* const kAnyInt = "kiln::everything()";
const char* const kAnyReal = "kiln::any_real()";

std::string comparison_of(O comparison, const std::string& a, const std::string& b) {
  switch (comparison) {
    case O::less:
      return call("may_be_less", a, b);
    case O::at_most:
      return call("may_be_at_most", a, b);
    case O::more:
      return call("may_be_less", b, a);
    case O::at_least:
      return call("may_be_at_most", b, a);
    case O::equal:
      return call("may_be_equal", a, b);
    default:
      return call("may_differ", a, b);
  }
}
const char* narrowing_of(O comparison) {
  switch (comparison) {
    case O::less:
      return "keep_less";
    case O::at_most:
      return "keep_at_most";
    case O::more:
      return "keep_more";
    case O::at_least:
      return "keep_at_least";
    default:
      return "keep_equal";
  }
}

// The function of two intervals, of ints or, where it has one, of floats. Null for others.
const char* function_of(O operation, bool is_real) {
  switch (operation) {
    case O::add:
      return "add";
    case O::subtract:
      return "subtract";
    case O::multiply:
      return "multiply";
    case O::divide:
      return "divide";
    case O::least:
      return "least";
    case O::largest:
      return "largest";
    case O::remainder:
      return is_real ? nullptr : "remainder";
    case O::shift_left:
      return is_real ? nullptr : "shift_left";
    case O::shift_right:
      return is_real ? nullptr : "shift_right";
    case O::bit_and:
      return is_real ? nullptr : "bit_and";
    case O::bit_or:
      return is_real ? nullptr : "bit_or";
    case O::bit_xor:
      return is_real ? nullptr : "bit_xor";
    default:
      return nullptr;
  }
}

}  // namespace

std::string MaskWriter::body(const Formula& formula) {
  const std::string result = may(formula, "box");
  return lines_ + "    return " + result + ";\n";
}

std::string MaskWriter::new_name(const char* prefix) { return prefix + std::to_string(++names_); }

std::string MaskWriter::may(const Formula& formula, const std::string& box) {
  if (!has_room()) return "true";
  switch (formula.kind) {
    case K::unknown:
      return "true";
    case K::never:
      return "false";
    case K::compare:
      return may_compare(formula, box);
    case K::all:
      return may_all(formula, box);
    case K::any:
      break;
  }
  std::string any;
  for (const Formula& part : formula.parts) {
    const std::string one = may(part, box);
    any = any.empty() ? one : in_brackets(" || ", any, one);
  }
  return any;
}

std::string MaskWriter::keys_body(const Formula& formula) {
  const std::string all = keys(formula, "box");
  return lines_ + "    return " + all + ";\n";
}

std::string MaskWriter::keys(const Formula& formula, const std::string& box) {
  const std::string every = box + ".kv";
  if (!has_room()) return every;
  if (formula.kind == K::any) {
    // The hull of other runs would cost more than it saves.
    if (!bounds_rows(formula)) return every;
    std::string hull;
    for (const Formula& part : formula.parts) {
      const std::string one = keys(part, box);
      hull = hull.empty() ? one : call("hull_of_runs", hull, one);
    }
    return hull;
  }
  const std::string left = new_name("left");
  std::string narrowing;
  if (formula.kind == K::all) {
    for (const Formula& part : formula.parts) narrowing += narrow_keys(part, box, left);
  } else {
    narrowing = narrow(formula, box, left);
  }
  if (narrowing.empty()) return every;
  const std::string run = new_name("keys");
  lines_ += "    kiln::MaskBox " + left + " = " + box + ";\n" + narrowing +
            "    const kiln::Interval " + run + " = " + left + ".keys();\n";
  return run;
}

std::string MaskWriter::narrow_keys(const Formula& part, const std::string& box,
                                    const std::string& narrowed) {
  if (part.kind != K::any) return narrow(part, box, narrowed);
  const std::string run = keys(part, box);
  return run == box + ".kv" ? "" : "    kiln::keep_equal(" + narrowed + ".kv, " + run + ");\n";
}

std::string MaskWriter::narrow(const Formula& part, const std::string& box,
                               const std::string& narrowed) {
  if (part.kind != K::compare || part.comparison == O::differ) return "";
  const Bound bounds = bound(part, box);
  if (bounds.position == nullptr) return "";
  return "    kiln::" + std::string(narrowing_of(bounds.comparison)) + "(" + narrowed + "." +
         bounds.position + ", " + bounds.interval + ");\n";
}

// A part that bounds a position narrows the box; the others are asked about the narrowed one.
std::string MaskWriter::may_all(const Formula& formula, const std::string& box) {
  const std::string narrowed = new_name("box");
  std::string narrowing;
  std::vector<const Formula*> others;
  for (const Formula& part : formula.parts) {
    const std::string line = narrow(part, box, narrowed);
    if (line.empty()) others.push_back(&part);
    narrowing += line;
  }
  std::string all, within = box;
  if (!narrowing.empty()) {
    const std::string left = new_name("left");
    lines_ += "    kiln::MaskBox " + narrowed + " = " + box + ";\n" + narrowing +
              "    const bool " + left + " = " + narrowed + ".close();\n";
    all = left;
    within = narrowed;
  }
  for (const Formula* const part : others) {
    const std::string one = may(*part, within);
    all = all.empty() ? one : in_brackets(" && ", all, one);
  }
  return all;
}

std::string MaskWriter::may_compare(const Formula& f, const std::string& box) {
  if (f.left->type == T::real || f.right->type == T::real) {
    const std::string left = real(f.left, box), right = real(f.right, box);
    return comparison_of(f.comparison, left, right);
  }
  if (const Bound bounds = bound(f, box); bounds.position != nullptr) {
    return comparison_of(bounds.comparison, box + "." + bounds.position, bounds.interval);
  }
  const std::string left = integer(f.left, box), right = integer(f.right, box);
  return comparison_of(f.comparison, left, right);
}

MaskWriter::Bound MaskWriter::bound(const Formula& f, const std::string& box) {
  if (f.left->type == T::real || f.right->type == T::real) return {};
  const MaskTerms left = terms_of(f.left), right = terms_of(f.right);
  const MaskTerms all = difference(left, right);
  const bool is_position = (all.q == 0) != (all.kv == 0) || all.has_distance();
  if (!left.is_tame() || !right.is_tame() || !is_position || std::abs(all.q) > 1 ||
      std::abs(all.kv) > 1) {
    return {};
  }
  const int sign = all.q != 0 ? all.q : all.kv;
  // sign * position + the rest is compared with 0: the position with -sign * the rest.
  MaskTerms rest = sign > 0 ? difference({}, all) : all;
  rest.q = rest.kv = 0;
  const bool are_points = std::ranges::all_of(rest.terms, [&](const MaskTerms::Term& term) {
    return term.value->operation == O::literal ||
           (term.value->operation == O::name && term.value->type == T::integer &&
            interval_of_name(d_, plain_name(term.value->text), box).starts_with("kiln::point("));
  });
  const std::string sum_of_points = are_points ? number(rest, box) : "";
  const std::string unguarded = are_points ? call("point", sum_of_points) : sum(rest, "", box);
  std::string interval = guarded(left, unguarded, box);
  interval = guarded(right, std::move(interval), box);
  const bool is_exact = are_points && interval == unguarded;
  return {.position = all.q == 0    ? "kv"
                      : all.kv == 0 ? "q"
                                    : "distance",
          .comparison = sign > 0 ? f.comparison : mirrored(f.comparison),
          .interval = std::move(interval),
          .is_exact = is_exact,
          .number = is_exact ? sum_of_points : ""};
}

std::string MaskWriter::guarded(const MaskTerms& side, std::string interval,
                                const std::string& box) {
  const bool computes = side.terms.size() + static_cast<std::size_t>(side.positions) > 1 ||
                        (side.terms.size() == 1 && side.terms[0].negative);
  if (!computes || side.terms.empty()) return interval;
  std::string sizes;
  std::int64_t literals = 0;
  for (const MaskTerms::Term& term : side.terms) {
    if (term.value->operation == O::literal) {
      literals += term.value->value;
      continue;
    }
    const std::string size = call("magnitude", integer(term.value, box));
    sizes = sizes.empty() ? size : call("add", sizes, size);
  }
  if (sizes.empty() && literals < kFarthest) return interval;
  if (literals >= kFarthest) return kAnyInt;
  const std::string literal = call("point", std::to_string(literals));
  return call("unless_overflowing", literals == 0 ? sizes : call("add", sizes, literal), interval);
}

// `first` and the terms; 0 where there are none.
std::string MaskWriter::sum(const MaskTerms& terms, std::string first, const std::string& box) {
  std::string all = std::move(first);
  const auto append = [&](const std::string& value, bool negative) {
    if (!all.empty()) {
      all = call(negative ? "subtract" : "add", all, value);
    } else {
      all = negative ? call("negate", value) : value;
    }
  };
  for (const bool negative : {false, true}) {
    for (const MaskTerms::Term& term : terms.terms) {
      if (term.negative == negative) append(integer(term.value, box), negative);
    }
  }
  for (int i = 0; i < std::abs(terms.shift); ++i) {
    append(call("point", box + ".shift()"), terms.shift < 0);
  }
  return all.empty() ? call("point", "0") : all;
}

std::string MaskWriter::truth(const ExpressionPointer& e, const std::string& box) {
  const std::string holds = may(formula_of(e, false), box);
  const std::string fails = may(formula_of(e, true), box);
  return call("truth", holds, fails);
}

std::string MaskWriter::choice(const Expression& e, const std::string& box, bool is_real) {
  const auto value = [&](int i) {
    const ExpressionPointer& operand = e.operands[static_cast<std::size_t>(i)];
    return is_real ? real(operand, box) : integer(operand, box);
  };
  const std::string holds = may(formula_of(e.operands[0], false), box);
  const std::string fails = may(formula_of(e.operands[0], true), box);
  const std::string first = value(1), second = value(2);
  return "kiln::choose(" + holds + ", " + fails + ", " + first + ", " + second + ")";
}

std::string MaskWriter::integer(const ExpressionPointer& e, const std::string& box) {
  if (!has_room()) return kAnyInt;
  if (e->type == T::boolean) {
    // The only bools with names are elements of tensors.
    if (e->operation == O::name) return interval_of_name(d_, plain_name(e->text), box);
    return truth(e, box);
  }
  if (e->type != T::integer) return kAnyInt;
  const bool is_sum =
      e->operation == O::add || e->operation == O::subtract || e->operation == O::negate;
  if (!is_sum) return integer_operation(*e, box);
  MaskTerms terms = terms_of(e);
  const bool is_distance = terms.has_distance() && std::abs(terms.q) == 1;
  if (terms.is_tame() && (is_distance || (terms.q == 0) != (terms.kv == 0))) {
    const int sign = terms.q != 0 ? terms.q : terms.kv;
    if (std::abs(sign) == 1) {
      const std::string position = box + (terms.kv == 0  ? ".q"
                                          : terms.q == 0 ? ".kv"
                                                         : ".distance");
      const std::string first = sign > 0 ? position : call("negate", position);
      return guarded(terms, sum(terms, first, box), box);
    }
  }
  const std::string first = integer(e->operands[0], box);
  if (e->operation == O::negate) return call("negate", first);
  return call(function_of(e->operation, false), first, integer(e->operands[1], box));
}

std::string MaskWriter::integer_operation(const Expression& e, const std::string& box) {
  switch (e.operation) {
    case O::literal:
      return call("point", std::to_string(e.value));
    case O::name:
      return interval_of_name(d_, plain_name(e.text), box);
    case O::complement:
      return call("complement", integer(e.operands[0], box));
    case O::magnitude:
      return call("magnitude", integer(e.operands[0], box));
    case O::choose:
      return choice(e, box, false);
    case O::convert:
      return e.operands[0]->type == T::real ? call("whole", real(e.operands[0], box))
                                            : integer(e.operands[0], box);
    default:
      break;
  }
  const char* const function = function_of(e.operation, false);
  if (function == nullptr) return kAnyInt;
  const std::string first = integer(e.operands[0], box);
  return call(function, first, integer(e.operands[1], box));
}

std::string MaskWriter::real(const ExpressionPointer& e, const std::string& box) {
  if (!has_room()) return kAnyReal;
  if (e->type == T::boolean || e->type == T::integer) return call("real", integer(e, box));
  if (e->type != T::real) return kAnyReal;
  switch (e->operation) {
    case O::literal: {
      const bool has_suffix = e->text.ends_with('f') || e->text.ends_with('F');
      return call("real", e->text + (has_suffix ? "" : "f"));
    }
    case O::name: {
      const bool is_distance = e->text == "at.distance";
      return interval_of_name(d_, is_distance ? e->text : plain_name(e->text), box);
    }
    case O::negate:
      return call("negate", real(e->operands[0], box));
    case O::magnitude:
      return call("magnitude", real(e->operands[0], box));
    case O::convert:
      return real(e->operands[0], box);
    case O::choose:
      return choice(*e, box, true);
    default:
      break;
  }
  const char* const function = function_of(e->operation, true);
  if (function == nullptr) return kAnyReal;
  const std::string first = real(e->operands[0], box);
  return call(function, first, real(e->operands[1], box));
}

}  // namespace kiln
