// A group of columns in shared memory: x is read once, by copies that need no registers and are all
// under way at once, however wide the group is. A thread copies, reads and writes its own columns
// alone, so that none waits for another. Config is that of quantize.cuh.
#pragma once
#include "/kiln/base/copy.cuh"
#include "/kiln/quantize/group.cuh"

namespace kiln {

template <class Config>
class KeptGroup {
  using Values = GroupValues<Config>;
  using Part = typename Values::Part;
  static constexpr bool kGated = Values::kGated;
  // An access is kept in pieces: those of x and, with gates, those of the values behind them. The
  // product of both takes the place of either, as floats, until it is divided.
  static constexpr int kPiece = Part::kPiece, kOfPart = Part::kBytes / kPiece;
  static constexpr int kPieces = kGated ? 2 * kOfPart : kOfPart;
  static_assert(kPiece >= 4, "quantize: kKeeps needs accesses of 4 bytes or more");
  static_assert(!kGated || kPieces * kPiece >= Config::kVector * 4,
                "quantize: the products of an access have room in its place");

 public:
  // Reads x and waits for it.
  __device__ __forceinline__ static void fetch(const ColumnGroup<Config>& at, int gate_to_value) {
    const auto copy = [](u8* place, const typename Config::Input* from) {
#pragma unroll
      for (int i = 0; i < kOfPart; ++i) {
        copy_async<kPiece>(shared_address(place + i * kBetween),
                           reinterpret_cast<const u8*>(from) + i * kPiece, kPiece);
      }
    };
#pragma unroll 4
    for (int column = 0; column < at.columns; column += QuantizeShape<Config>::kStep) {
      copy(place_of(column), at.from + column);
      if constexpr (kGated) {
        copy(place_of(column) + kOfPart * kBetween, at.from + gate_to_value + column);
      }
    }
    commit_copies<true>();
    wait_copies<true, 0>();
  }

  // The values of a turn from what has been fetched; absent ones are zeros.
  __device__ __forceinline__ static void take(const ColumnGroup<Config>& at, int start,
                                              Values& values) {
#pragma unroll
    for (int v = 0; v < Config::kVectors; ++v) {
      const int column = start + v * QuantizeShape<Config>::kStep;
      Part x = {}, value = {};
      if (column < at.columns) {
        load(x.words, place_of(column));
        if constexpr (kGated) load(value.words, place_of(column) + kOfPart * kBetween);
      }
      values.set(v, x, value);
      if constexpr (kGated) {
        if (column < at.columns) keep(values.columns[v], place_of(column));
      }
    }
  }
  // The same again.
  __device__ __forceinline__ static void take_again(const ColumnGroup<Config>& at, int start,
                                                    Values& values) {
    if constexpr (!kGated) {
      take(at, start, values);
    } else {
#pragma unroll
      for (int v = 0; v < Config::kVectors; ++v) {
        const int column = start + v * QuantizeShape<Config>::kStep;
        if (column < at.columns) recall(values.columns[v], place_of(column));
      }
    }
  }

 private:
  // Pieces of the same number lie side by side for all threads, which then use all banks.
  static constexpr int kBetween = Config::kLanes * kPiece;

  __device__ __forceinline__ static u8* place_of(int column) {
    extern __shared__ __align__(16) u8 quantize_shared_memory[];
    return quantize_shared_memory + column * (kPieces * kPiece / Config::kVector) +
           threadIdx.x * kPiece;
  }
  template <int kWords>
  __device__ __forceinline__ static void load(u32 (&words)[kWords], const u8* place) {
#pragma unroll
    for (int i = 0; i < kWords * 4 / kPiece; ++i) {
      load_cached<kPiece>(words + i * kPiece / 4, place + i * kBetween, true);
    }
  }
  __device__ __forceinline__ static void keep(const float (&columns)[Config::kVector], u8* place) {
#pragma unroll
    for (int i = 0; i < Config::kVector * 4 / kPiece; ++i) {
      u32 words[kPiece / 4];
#pragma unroll
      for (int j = 0; j < kPiece / 4; ++j) {
        words[j] = __float_as_uint(columns[i * kPiece / 4 + j]);
      }
      store_words<kPiece>(place + i * kBetween, words);
    }
  }
  __device__ __forceinline__ static void recall(float (&columns)[Config::kVector],
                                                const u8* place) {
    u32 words[Config::kVector];
    load(words, place);
#pragma unroll
    for (int i = 0; i < Config::kVector; ++i) columns[i] = __uint_as_float(words[i]);
  }
};

}  // namespace kiln
