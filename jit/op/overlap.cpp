#include "jit/op/overlap.h"

#include <cstdlib>
#include <functional>
#include <string>

#include "jit/op/checks.h"

namespace kiln {
namespace {

// `step` times 0, 1, .. or `most`.
struct Term {
  std::int64_t step, most;
  std::int64_t reach;  // of this term and those behind it together
};

// The ways to write a number as a sum with one multiple of each term. Elements are shared, or
// repeat, where such sums exist. Terms of nested dimensions leave one or two choices each; for
// others the search ends after kMostSteps and has proven nothing.
class Sums {
 public:
  void add(std::int64_t step, std::int64_t most) {
    if (most <= 0) return;
    terms_[count_++] = {step, most, 0};
  }
  // Terms of one step count as one: as good as two where it does not matter which one was taken.
  void add_to_equal(std::int64_t step, std::int64_t most) {
    for (std::size_t i = 0; i < count_; ++i) {
      if (terms_[i].step != step) continue;
      terms_[i].most += std::max<std::int64_t>(most, 0);
      return;
    }
    add(step, most);
  }
  // How many sums make `number`, up to `wanted`.
  int count(std::int64_t number, int wanted) {
    const auto terms = std::span(terms_).first(count_);
    std::ranges::sort(terms, std::greater{}, &Term::step);
    std::int64_t reach = 0;
    for (std::size_t i = count_; i-- > 0;) {
      reach += terms[i].step * terms[i].most;
      terms[i].reach = reach;
    }
    steps_left_ = kMostSteps;
    return count(terms, number, wanted);
  }

 private:
  static constexpr int kMostSteps = 2000;

  int count(std::span<const Term> terms, std::int64_t number, int wanted) {
    if (terms.empty()) return number == 0;
    if (number < 0 || number > terms[0].reach || --steps_left_ < 0) return 0;
    const auto& [step, most, reach] = terms[0];
    const std::int64_t behind = reach - step * most;
    const std::int64_t last = std::min(most, number / step);
    const std::int64_t first = number > behind ? (number - behind + step - 1) / step : 0;
    int found = 0;
    for (std::int64_t i = last; i >= first && found < wanted && steps_left_ > 0; --i) {
      found += count(terms.subspan(1), number - i * step, wanted - found);
    }
    return found;
  }

  std::array<Term, 2 * kMaxRank + 1> terms_;
  std::size_t count_ = 0;
  int steps_left_ = 0;
};

void add_dimensions(Sums& sums, const TensorView& tensor) {
  const std::int64_t size = size_of(tensor.dtype);
  for (int i = 0; i < tensor.rank; ++i) {
    const std::int64_t step = std::abs(tensor.strides[i]) * size;
    if (step != 0) sums.add_to_equal(step, tensor.shape[i] - 1);
  }
}

bool is_same_place(const TensorView& a, const TensorView& b) {
  if (a.data != b.data || a.dtype != b.dtype || a.rank != b.rank) return false;
  for (int i = 0; i < a.rank; ++i) {
    if (a.shape[i] != b.shape[i]) return false;
    if (a.shape[i] > 1 && a.strides[i] != b.strides[i]) return false;
  }
  return true;
}

[[noreturn]] void refuse_overlap(const char* op, const CallTensor& written,
                                 const CallTensor& other) {
  const std::string shares = std::string("shares memory with ") + other.name;
  if (other.use == Use::replaceable) {
    throw_value({op, written.name}, shares +
                                        "; it may be that very tensor, with the same shape, "
                                        "dtype and strides, or must have memory of its own");
  }
  throw_value({op, written.name},
              shares + ", which the call " +
                  (other.use == Use::written ? "writes too" : "reads while it writes") +
                  "; pass a tensor with memory of its own");
}

}  // namespace

// An element of a at offset x and one of b at offset y have a byte in common where x + i = y + j
// for bytes i and j of theirs. With b's dimensions and bytes counted from their ends, all terms of
// that equation are sums.
bool shares_elements(const TensorView& a, const TensorView& b) {
  const runtime::MemorySpan span_a = CallArguments::span_of(a, false);
  const runtime::MemorySpan span_b = CallArguments::span_of(b, false);
  if (span_a.bytes == 0 || span_b.bytes == 0) return false;
  Sums sums;
  add_dimensions(sums, a);
  add_dimensions(sums, b);
  sums.add_to_equal(1, size_of(a.dtype) + size_of(b.dtype) - 2);
  const std::uint64_t last_b = span_b.address + span_b.bytes - 1;
  return sums.count(static_cast<std::int64_t>(last_b - span_a.address), 1) > 0;
}

// Two elements are at one place where the differences of their indices, times the strides, add up
// to 0. Counted from the largest negative difference, one sum stands for no difference at all.
bool repeats_elements(const TensorView& tensor) {
  Sums sums;
  std::int64_t none = 0;
  bool repeats = false;
  for (int i = 0; i < tensor.rank; ++i) {
    const std::int64_t stride = std::abs(tensor.strides[i]), last = tensor.shape[i] - 1;
    if (last < 0) return false;  // no elements
    if (last == 0) continue;
    repeats = repeats || stride == 0;
    if (stride == 0) continue;
    sums.add(stride, 2 * last);
    none += stride * last;
  }
  return repeats || sums.count(none, 2) > 1;
}

void refuse_overlaps(const char* op, std::span<const CallTensor> tensors,
                     std::span<const runtime::MemorySpan> spans) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const CallTensor& written = tensors[i];
    if (written.use != Use::written || written.view->data == nullptr) continue;
    for (std::size_t j = 0; j < tensors.size(); ++j) {
      const CallTensor& other = tensors[j];
      if (i == j || other.view->data == nullptr || !ranges_meet(spans[i], spans[j])) continue;
      const bool replaces =
          other.use == Use::replaceable && is_same_place(*written.view, *other.view);
      if (!replaces && shares_elements(*written.view, *other.view)) {
        refuse_overlap(op, written, other);
      }
    }
  }
}

}  // namespace kiln
