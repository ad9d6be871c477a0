// Heads of a token on their way from global memory: a thread's parts of the next kAhead of them. In
// shared memory, where no other thread has to do with them, they take no registers, and nothing
// that the compiler moves can wait for one of them before the others are asked for.
#pragma once
#include "/kiln/append_kv/head_shape.cuh"
#include "/kiln/base/copy.cuh"

namespace kiln {

// Parts of two bytes are too small for asynchronous copies: these are read where they are used.
template <class Config, HeadOf kOf>
class HeadRing {
 public:
  using Mine = Columns<Config, kOf>;
  using Input = typename Config::Input;
  using Part = typename HeadParts<Config>::Part;
  static constexpr int kHeld = Mine::kHeld, kAhead = Config::kAhead, kBytes = Part::kBytes;
  static constexpr bool kAsync = kBytes >= 4;

  // The first of `count` heads, which are `step` elements from each other, and read as zeros if
  // they do not exist.
  __device__ __forceinline__ HeadRing(const Input* source, i64 step, u32 count, bool exists)
      : source_(source), step_(step), left_(count), exists_(exists) {
    if constexpr (kAsync) {
      __shared__ __align__(16) u8 memory[kAhead * kStage];
      begin_ = place_ = shared_address(memory + threadIdx.x * kBytes);
#pragma unroll
      for (int i = 0; i < kAhead; ++i) start(begin_ + i * kStage);
    }
  }

  // The next head, which is on its way; in its place the last of those ahead starts.
  __device__ __forceinline__ HeadParts<Config> next() {
    HeadParts<Config> head;
    if constexpr (!kAsync) {
#pragma unroll
      for (int i = 0; i < 2 * kHeld; ++i) {
        const u32 unit = Mine::unit_at(i / 2);
        head.parts[i / 2][i % 2].load_once_from(source_ + Mine::at(unit, i % 2),
                                                exists_ && Mine::has(unit));
      }
      source_ += step_;
    } else {
      wait_copies<kAsync, kAhead - 1>();
#pragma unroll
      for (int i = 0; i < 2 * kHeld; ++i) {
        load_shared_words<kBytes>(head.parts[i / 2][i % 2].words, place_ + i * kPiece);
      }
      if constexpr (Config::kRows > 1) {
        start(place_);
        place_ = place_ == begin_ + (kAhead - 1) * kStage ? begin_ : place_ + kStage;
      }
    }
    return head;
  }

 private:
  static constexpr u32 kPiece = kAppendThreads * kBytes, kStage = 2 * kHeld * kPiece;

  // Each thread reads only what it has copied itself, and has read it before the next copy.
  __device__ __forceinline__ void start(u32 place) {
    if (left_ != 0) {
#pragma unroll
      for (int i = 0; i < 2 * kHeld; ++i) {
        const u32 unit = Mine::unit_at(i / 2);
        copy_async<kBytes>(place + i * kPiece, source_ + Mine::at(unit, i % 2),
                           exists_ && Mine::has(unit) ? kBytes : 0);
      }
      source_ += step_;
      --left_;
    }
    commit_copies<kAsync>();
  }

  const Input* source_;
  i64 step_;
  u32 left_;
  bool exists_;
  u32 begin_, place_;
};

}  // namespace kiln
