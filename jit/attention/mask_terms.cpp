#include "jit/attention/mask_terms.h"

namespace kiln {
namespace {

void collect(const ExpressionPointer& e, bool negative, MaskTerms& sum) {
  const int sign = negative ? -1 : 1;
  switch (e->operation) {
    case Operation::add:
    case Operation::subtract:
      collect(e->operands[0], negative, sum);
      collect(e->operands[1], negative != (e->operation == Operation::subtract), sum);
      return;
    case Operation::negate:
      collect(e->operands[0], !negative, sum);
      return;
    case Operation::convert:  // of an int to an int, as in (int)q or +q
      if (e->type != ValueType::integer || e->operands[0]->type != ValueType::integer) break;
      collect(e->operands[0], negative, sum);
      return;
    case Operation::name:
      if (e->text == "q" || e->text == "row") {
        sum.q += sign;
        if (e->text == "row") sum.shift -= sign;
      } else if (e->text == "kv") {
        sum.kv += sign;
      } else {
        break;
      }
      ++sum.positions;
      return;
    default:
      break;
  }
  sum.terms.push_back({e, negative});
}

}  // namespace

MaskTerms terms_of(const ExpressionPointer& sum) {
  MaskTerms terms;
  collect(sum, false, terms);
  return terms;
}

MaskTerms difference(const MaskTerms& a, const MaskTerms& b) {
  MaskTerms all = a;
  all.q -= b.q, all.kv -= b.kv, all.shift -= b.shift;
  all.positions += b.positions;
  for (MaskTerms::Term term : b.terms) {
    term.negative = !term.negative;
    all.terms.push_back(term);
  }
  return all;
}

}  // namespace kiln
