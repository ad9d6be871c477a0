#include "jit/attention/mask_formula.h"

#include <utility>

namespace kiln {
namespace {

using K = Formula::Kind;
using O = Operation;
using T = ValueType;

// The parts of a formula, as a.. == b and ?: double what they stand on.
constexpr int kMostParts = 200;

// A condition that always holds leaves out as little as an unknown one.
Formula constant(bool holds) { return {.kind = holds ? K::unknown : K::never}; }

O opposite(O comparison) {
  switch (comparison) {
    case O::less:
      return O::at_least;
    case O::at_most:
      return O::more;
    case O::more:
      return O::at_most;
    case O::at_least:
      return O::less;
    case O::equal:
      return O::differ;
    default:
      return O::equal;
  }
}
bool is_comparison(O operation) {
  return operation == O::less || operation == O::at_most || operation == O::more ||
         operation == O::at_least || operation == O::equal || operation == O::differ;
}

// Joins the parts of a conjunction or a disjunction. What is unknown leaves a conjunction as it is
// and makes a disjunction unknown; what never holds does the opposite.
Formula joined(K kind, std::vector<Formula> parts) {
  const K neutral = kind == K::all ? K::unknown : K::never;
  const K decisive = kind == K::all ? K::never : K::unknown;
  Formula formula{.kind = kind};
  for (Formula& part : parts) {
    if (part.kind == decisive) return {.kind = decisive};
    if (part.kind == neutral) continue;
    if (part.kind == kind) {
      for (Formula& inner : part.parts) formula.parts.push_back(std::move(inner));
    } else {
      formula.parts.push_back(std::move(part));
    }
  }
  if (formula.parts.empty()) return {.kind = neutral};
  if (formula.parts.size() == 1) {
    Formula only = std::move(formula.parts.front());
    return only;
  }
  return formula;
}

ExpressionPointer negative(const ExpressionPointer& of) {
  return std::make_shared<const Expression>(
      Expression{.operation = O::negate, .type = of->type, .operands = {of}});
}
ExpressionPointer zero() {
  return std::make_shared<const Expression>(
      Expression{.operation = O::literal, .type = T::integer, .text = "0"});
}

class Builder {
 public:
  Formula build(const ExpressionPointer& e, bool negated) {
    if (++parts_ > kMostParts || e->type == T::unknown) return unread();
    if (e->type != T::boolean) return compare(negated ? O::equal : O::differ, e, zero());
    if (is_comparison(e->operation)) return comparison(*e, negated);
    switch (e->operation) {
      case O::literal:
        return constant((e->value != 0) != negated);
      case O::name:  // a bool that is known, as an int
        return compare(negated ? O::equal : O::differ, e, zero());
      case O::invert:
        return build(e->operands[0], !negated);
      case O::convert:
        return build(e->operands[0], negated);
      case O::both:
        return join(negated ? K::any : K::all, *e, negated);
      case O::either:
        return join(negated ? K::all : K::any, *e, negated);
      case O::choose:
        return either_way(e->operands[0], e->operands[1], e->operands[2], negated, negated);
      default:
        return unread();
    }
  }
  bool has_read_all() const { return has_read_all_; }

 private:
  Formula unread() {
    has_read_all_ = false;
    return {.kind = K::unknown};
  }
  Formula join(K kind, const Expression& e, bool negated) {
    return joined(kind, {build(e.operands[0], negated), build(e.operands[1], negated)});
  }
  // `first` where the condition holds, `second` where it fails.
  Formula either_way(const ExpressionPointer& condition, const ExpressionPointer& first,
                     const ExpressionPointer& second, bool negates_first, bool negates_second) {
    Formula one = joined(K::all, {build(condition, false), build(first, negates_first)});
    Formula other = joined(K::all, {build(condition, true), build(second, negates_second)});
    return joined(K::any, {std::move(one), std::move(other)});
  }

  Formula comparison(const Expression& e, bool negated) {
    const ExpressionPointer &a = e.operands[0], &b = e.operands[1];
    if (a->type == T::boolean && b->type == T::boolean &&
        (e.operation == O::equal || e.operation == O::differ)) {
      const bool differ = (e.operation == O::differ) != negated;
      return either_way(a, b, b, differ, !differ);
    }
    return compare(negated ? opposite(e.operation) : e.operation, a, b);
  }

  Formula compare(O operation, const ExpressionPointer& a, const ExpressionPointer& b) {
    if (++parts_ > kMostParts || a->type == T::unknown || b->type == T::unknown) return unread();
    if (b->type == T::integer && splits(*b)) return split(mirrored(operation), b, a);
    if (a->type == T::integer && b->type != T::real && splits(*a)) return split(operation, a, b);
    return {.kind = K::compare, .comparison = operation, .left = a, .right = b};
  }
  // |x| < y is x < y and -x < y; max(x, z) < y is x < y and z < y. So they bound x.
  static bool splits(const Expression& e) {
    return e.operation == O::magnitude || e.operation == O::least || e.operation == O::largest;
  }
  Formula split(O operation, const ExpressionPointer& a, const ExpressionPointer& b) {
    const ExpressionPointer& x = a->operands[0];
    if (operation == O::equal || operation == O::differ || b->type == T::real) {
      return {.kind = K::compare, .comparison = operation, .left = a, .right = b};
    }
    const bool from_above = operation == O::less || operation == O::at_most;
    const bool is_largest = a->operation != O::least;
    const ExpressionPointer y = a->operation == O::magnitude ? negative(x) : a->operands[1];
    return joined(from_above == is_largest ? K::all : K::any,
                  {compare(operation, x, b), compare(operation, y, b)});
  }

  int parts_ = 0;
  bool has_read_all_ = true;
};

}  // namespace

Operation mirrored(Operation comparison) {
  switch (comparison) {
    case O::less:
      return O::more;
    case O::at_most:
      return O::at_least;
    case O::more:
      return O::less;
    case O::at_least:
      return O::at_most;
    default:
      return comparison;
  }
}

Formula formula_of(const ExpressionPointer& condition, bool negated) {
  return Builder().build(condition, negated);
}

bool is_read_whole(const ExpressionPointer& condition) {
  Builder builder;
  builder.build(condition, false);
  return builder.has_read_all();
}

}  // namespace kiln
