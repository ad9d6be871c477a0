// Arithmetic on intervals: what an expression of a mask can be, if its operands lie in intervals.
// Every function returns an interval that contains all results for operands of its arguments. It
// may contain more. Where an int might overflow, the result is everything(), so that nothing is
// concluded from it.
#pragma once
#include "/kiln/base/math.cuh"

namespace kiln {

inline constexpr int kLeastInt = -0x7fffffff - 1, kLargestInt = 0x7fffffff;

// The ints low, low + 1, .. high. An interval with low > high is empty.
struct Interval {
  int low, high;

  __device__ __forceinline__ bool empty() const { return low > high; }
  __device__ __forceinline__ bool is(int value) const { return low == value && high == value; }
  __device__ __forceinline__ bool is_point() const { return low == high; }
};

__device__ __forceinline__ Interval point(int value) { return {value, value}; }
__device__ __forceinline__ Interval everything() { return {kLeastInt, kLargestInt}; }
// A bool as an int.
__device__ __forceinline__ Interval truth(bool may_hold, bool may_fail) {
  return {may_fail ? 0 : 1, may_hold ? 1 : 0};
}
__device__ __forceinline__ Interval hull(Interval a, Interval b) {
  return {min(a.low, b.low), max(a.high, b.high)};
}
// `a` or `b` or either, as a condition may hold or fail.
__device__ __forceinline__ Interval choose(bool may_hold, bool may_fail, Interval a, Interval b) {
  if (!may_fail) return a;
  return may_hold ? hull(a, b) : b;
}

__device__ __forceinline__ Interval checked(i64 low, i64 high) {
  if (low < kLeastInt || high > kLargestInt) return everything();
  return {static_cast<int>(low), static_cast<int>(high)};
}
__device__ __forceinline__ Interval add(Interval a, Interval b) {
  return checked(static_cast<i64>(a.low) + b.low, static_cast<i64>(a.high) + b.high);
}
__device__ __forceinline__ Interval subtract(Interval a, Interval b) {
  return checked(static_cast<i64>(a.low) - b.high, static_cast<i64>(a.high) - b.low);
}
__device__ __forceinline__ Interval negate(Interval a) { return subtract(point(0), a); }
__device__ __forceinline__ Interval complement(Interval a) { return {~a.high, ~a.low}; }
__device__ __forceinline__ Interval multiply(Interval a, Interval b) {
  const i64 p = static_cast<i64>(a.low) * b.low, q = static_cast<i64>(a.low) * b.high,
            r = static_cast<i64>(a.high) * b.low, s = static_cast<i64>(a.high) * b.high;
  return checked(min(min(p, q), min(r, s)), max(max(p, q), max(r, s)));
}

// A quotient is rounded toward 0. It grows with the dividend and, for a divisor of one sign, moves
// in one direction with the divisor, so the ends are among the quotients of ends.
__device__ __forceinline__ Interval divide(Interval a, Interval b) {
  const bool overflows = a.low == kLeastInt && b.low <= -1 && b.high >= -1;
  if ((b.low <= 0 && b.high >= 0) || b.empty() || overflows) return everything();
  const int p = a.low / b.low, q = a.high / b.low;
  if (b.is_point()) return {min(p, q), max(p, q)};
  const int r = a.low / b.high, s = a.high / b.high;
  return {min(min(p, q), min(r, s)), max(max(p, q), max(r, s))};
}

// The remainders of a.low .. a.high, which are at least 0, by a positive divisor.
__device__ __forceinline__ Interval remainder_up(int low, int high, Interval divisor) {
  const int most = divisor.high - 1;
  if (high < divisor.low) return {low, high};
  if (!divisor.is_point() || high - low >= most) return {0, min(high, most)};
  const int first = low % divisor.low, last = high % divisor.low;
  return first <= last ? Interval{first, last} : Interval{0, most};
}
// A remainder has the sign of the dividend, whatever the divisor's.
__device__ __forceinline__ Interval remainder(Interval a, Interval b) {
  if ((b.low <= 0 && b.high >= 0) || b.empty()) return everything();
  if (a.low == kLeastInt || b.low == kLeastInt) return everything();
  const Interval divisor = b.high < 0 ? Interval{-b.high, -b.low} : b;
  if (a.low >= 0) return remainder_up(a.low, a.high, divisor);
  const Interval below = remainder_up(max(-a.high, 1), -a.low, divisor);
  const Interval mirrored = {-below.high, -below.low};
  return a.high < 0 ? mirrored : hull(mirrored, remainder_up(0, a.high, divisor));
}

__device__ __forceinline__ Interval least(Interval a, Interval b) {
  return {min(a.low, b.low), min(a.high, b.high)};
}
__device__ __forceinline__ Interval largest(Interval a, Interval b) {
  return {max(a.low, b.low), max(a.high, b.high)};
}
__device__ __forceinline__ int least(int a, int b) { return min(a, b); }
__device__ __forceinline__ int largest(int a, int b) { return max(a, b); }
__device__ __forceinline__ Interval magnitude(Interval a) {
  if (a.low >= 0) return a;
  if (a.low == kLeastInt) return everything();
  return a.high <= 0 ? Interval{-a.high, -a.low} : Interval{0, max(-a.low, a.high)};
}

__device__ __forceinline__ Interval shift_right(Interval a, Interval by) {
  if (by.low < 0 || by.high > 31) return everything();
  return {a.low >> (a.low < 0 ? by.low : by.high), a.high >> (a.high < 0 ? by.high : by.low)};
}
__device__ __forceinline__ Interval shift_left(Interval a, Interval by) {
  if (!by.is_point() || by.low < 0 || by.low > 30) return everything();
  return multiply(a, point(1 << by.low));
}

// The smallest 2^n - 1 that is not less than `value`, which is at least 0.
__device__ __forceinline__ int bits_up_to(int value) {
  int bits = value;
  bits |= bits >> 1, bits |= bits >> 2, bits |= bits >> 4, bits |= bits >> 8, bits |= bits >> 16;
  return bits;
}
__device__ __forceinline__ Interval bit_and(Interval a, Interval b) {
  if (a.is_point() && b.is_point()) return point(a.low & b.low);
  // The low bits of a number are its remainder, even of a negative one if that is taken upward.
  if (b.is_point() && b.low >= 0 && b.low == bits_up_to(b.low)) {
    const i64 width = static_cast<i64>(a.high) - a.low;
    const int first = a.low & b.low, last = a.high & b.low;
    return width <= b.low && first <= last ? Interval{first, last} : Interval{0, b.low};
  }
  if (a.low >= 0 || b.low >= 0) {
    return {0, a.low < 0 ? b.high : b.low < 0 ? a.high : min(a.high, b.high)};
  }
  return everything();
}

// The ints from `bits`, without its bits in `open`, up to the one with all of them. The ints of an
// interval agree in the bits above the highest in which its ends differ.
__device__ __forceinline__ Interval from_bits(int bits, int open) {
  return {bits & ~open, bits | open};
}
__device__ __forceinline__ int open_bits(Interval a, Interval b) {
  return bits_up_to((a.low ^ a.high) | (b.low ^ b.high));
}
// No bit of an interval with numbers of both signs is known.
__device__ __forceinline__ bool changes_sign(Interval a) { return (a.low ^ a.high) < 0; }
__device__ __forceinline__ Interval bit_or(Interval a, Interval b) {
  if (changes_sign(a) || changes_sign(b)) return everything();
  return from_bits(a.low | b.low, open_bits(a, b));
}
__device__ __forceinline__ Interval bit_xor(Interval a, Interval b) {
  if (changes_sign(a) || changes_sign(b)) return everything();
  return from_bits(a.low ^ b.low, open_bits(a, b));
}

// Whether a < b, a <= b, .. may hold for some pair of operands.
template <class Range>
__device__ __forceinline__ bool may_be_less(Range a, Range b) {
  return a.low < b.high;
}
template <class Range>
__device__ __forceinline__ bool may_be_at_most(Range a, Range b) {
  return a.low <= b.high;
}
template <class Range>
__device__ __forceinline__ bool may_be_equal(Range a, Range b) {
  return a.low <= b.high && b.low <= a.high;
}
template <class Range>
__device__ __forceinline__ bool may_differ(Range a, Range b) {
  return a.low != a.high || b.low != b.high || a.low != b.low;
}

// Floats from low to high. The ends are finite, or both infinite: the value may then be anything,
// even NaN. Products and sums may be contracted in the kernel and quotients approximated, so the
// results of arithmetic are widened by more than the error of either way.
struct RealInterval {
  float low, high;
};

__device__ __forceinline__ RealInterval any_real() { return {-KILN_INFINITY, KILN_INFINITY}; }
// `x` or, if it is infinite or NaN in either end, any_real().
__device__ __forceinline__ RealInterval finite(RealInterval x) {
  constexpr float kLargest = 3.402823466e38f;
  return x.low >= -kLargest && x.high <= kLargest ? x : any_real();
}
__device__ __forceinline__ RealInterval widened(RealInterval x) {
  constexpr float kRelative = 0x1p-20f, kAbsolute = 0x1p-100f;
  return finite({x.low - (fabsf(x.low) * kRelative + kAbsolute),
                 x.high + (fabsf(x.high) * kRelative + kAbsolute)});
}
__device__ __forceinline__ RealInterval real(float value) { return finite({value, value}); }
// Conversion keeps order, so the ends of the result are the converted ends.
__device__ __forceinline__ RealInterval real(Interval a) {
  return {static_cast<float>(a.low), static_cast<float>(a.high)};
}
// Position::distance, which is exact up to 2^24.
__device__ __forceinline__ RealInterval distance(Interval a) {
  const bool exact = a.low > -(1 << 23) && a.high < 1 << 23;
  return exact ? real(a) : widened(real(a));
}
__device__ __forceinline__ RealInterval negate(RealInterval a) { return {-a.high, -a.low}; }
__device__ __forceinline__ RealInterval add(RealInterval a, RealInterval b) {
  return widened({a.low + b.low, a.high + b.high});
}
__device__ __forceinline__ RealInterval subtract(RealInterval a, RealInterval b) {
  return add(a, negate(b));
}
__device__ __forceinline__ RealInterval multiply(RealInterval a, RealInterval b) {
  const RealInterval any = any_real();
  if (a.low == any.low || b.low == any.low) return any;
  const float p = a.low * b.low, q = a.low * b.high, r = a.high * b.low, s = a.high * b.high;
  return widened({fminf(fminf(p, q), fminf(r, s)), fmaxf(fmaxf(p, q), fmaxf(r, s))});
}
__device__ __forceinline__ RealInterval divide(RealInterval a, RealInterval b) {
  constexpr float kTiny = 0x1p-60f;  // reciprocals of less overflow too easily
  if (!(b.low >= kTiny || b.high <= -kTiny)) return any_real();
  return multiply(a, widened({1.0f / b.high, 1.0f / b.low}));
}
__device__ __forceinline__ RealInterval least(RealInterval a, RealInterval b) {
  return finite({fminf(a.low, b.low), fminf(a.high, b.high)});
}
__device__ __forceinline__ RealInterval largest(RealInterval a, RealInterval b) {
  return finite({fmaxf(a.low, b.low), fmaxf(a.high, b.high)});
}
__device__ __forceinline__ RealInterval magnitude(RealInterval a) {
  if (a.low >= 0.0f) return a;
  return a.high <= 0.0f ? negate(a) : finite({0.0f, fmaxf(-a.low, a.high)});
}
__device__ __forceinline__ RealInterval choose(bool may_hold, bool may_fail, RealInterval a,
                                               RealInterval b) {
  if (!may_fail) return a;
  return may_hold ? finite({fminf(a.low, b.low), fmaxf(a.high, b.high)}) : b;
}
// A conversion to int drops the fraction, which keeps order.
__device__ __forceinline__ Interval whole(RealInterval a) {
  constexpr float kLimit = 2147483520.0f;
  if (!(a.low >= -kLimit && a.high <= kLimit)) return everything();
  return {static_cast<int>(a.low), static_cast<int>(a.high)};
}

}  // namespace kiln
