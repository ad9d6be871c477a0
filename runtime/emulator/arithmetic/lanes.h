// Lane-wise maps over rows of registers: the body of nearly every instruction that computes.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

#include "runtime/emulator/decode/decode.h"
#include "runtime/emulator/machine/machine.h"

namespace kiln::runtime::emulator {

// What a row holds for a lane of type T.
template <class T>
using Cell = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

template <class T>
T from_cell(Cell<T> cell) {
  if constexpr (sizeof(T) == sizeof(Cell<T>)) {
    return std::bit_cast<T>(cell);
  } else {
    return static_cast<T>(cell);  // modulo: the low bits, sign-extended by what T is
  }
}

template <class T>
Cell<T> to_cell(T value) {
  if constexpr (sizeof(T) == sizeof(Cell<T>)) {
    return std::bit_cast<Cell<T>>(value);
  } else {
    return static_cast<std::make_unsigned_t<T>>(value);  // narrow values are zero-extended
  }
}

template <class T>
const Cell<T>* row(const Warp& warp, Ref ref) {
  if constexpr (sizeof(T) == 8) {
    return warp.u64(ref);
  } else {
    return warp.u32(ref);
  }
}

template <class T>
Cell<T>* row_out(Warp& warp, Ref ref) {
  if constexpr (sizeof(T) == 8) {
    return warp.u64_out(ref);
  } else {
    return warp.u32_out(ref);
  }
}

// Maps sources of types S... to a destination of type D: Lanes<float, float, float>::map(...).
template <class D, class... S>
struct Lanes {
  using Sources = std::array<Ref, sizeof...(S)>;

  // d[l] = f(a[l], b[l], ...) for the lanes l of `mask`. The destination may be one of the sources,
  // or the sink. f must be defined for any bits.
  template <class F>
  static void map(Warp& warp, Mask mask, Ref d, const Sources& sources, F f) {
    if (d == kNoRef) return;
    map(warp, mask, d, sources, f, std::index_sequence_for<S...>());
  }

 private:
  template <class F, std::size_t... I>
  static void map(Warp& warp, Mask mask, Ref d, const Sources& sources, F f,
                  std::index_sequence<I...>) {
    const std::tuple<const Cell<S>*...> from{row<S>(warp, sources[I])...};
    Cell<D>* to = row_out<D>(warp, d);
    if (mask == kAllLanes) {
      // Through a buffer: the compiler sees no alias between sources and destination.
      Cell<D> out[kLanes];
      for (int l = 0; l < kLanes; ++l) {
        out[l] = to_cell<D>(f(from_cell<S>(std::get<I>(from)[l])...));
      }
      std::memcpy(to, out, sizeof out);
    } else {
      for_each_lane(mask,
                    [&](int l) { to[l] = to_cell<D>(f(from_cell<S>(std::get<I>(from)[l])...)); });
    }
  }
};

// The handler that computes op.d = F(op.a, op.b, op.c), of as many sources as S... has types.
// F is a function or a lambda without captures.
template <auto F, class D, class... S>
Flow lanewise(Warp& warp, const Op& op, Mask mask) {
  static_assert(sizeof...(S) >= 1 && sizeof...(S) <= 3);
  const std::array<Ref, 3> all{op.a, op.b, op.c};
  typename Lanes<D, S...>::Sources sources;
  for (std::size_t i = 0; i < sizeof...(S); ++i) sources[i] = all[i];
  Lanes<D, S...>::map(warp, mask, op.d, sources,
                      [](S... values) -> D { return static_cast<D>(F(values...)); });
  return Flow::next;
}

// A table of handlers by type: what is not in it is not modelled.
struct TypedHandler {
  Type type;
  Handler run;
};
inline Handler find_handler(std::span<const TypedHandler> table, Type type) {
  for (const TypedHandler& entry : table) {
    if (entry.type == type) return entry.run;
  }
  return nullptr;
}

}  // namespace kiln::runtime::emulator
