// Scales of blocks: each 128 of K of a row of A has a factor, and of a column or of 128 columns of
// B. A K-tile is 128 of K, so a stage of the ring has one factor for each of its rows and columns,
// which the products are multiplied by when they are added to the sums (promote.cuh).
//
// One to three warps of the producer's warpgroup copy a stage's factors into shared memory, word by
// word: a tensor map would need rows of scales that begin at multiples of 16 bytes. No asynchronous
// copy is of single bytes: UE8M0 scales are loaded into registers, those of four stages at a time,
// and stored as floats, so that what follows is the same for both.
#pragma once
#include "/kiln/gemm/copy.cuh"
#include "/kiln/gemm/sm90/schedule.cuh"
#include "/kiln/gemm/sm90/tile.cuh"

namespace kiln {

// Copies the factors of the stages of every tile; called by kScaleThreads threads. A stage is full
// when the copies of each have landed, or its stores are done, too.
template <class Config>
class ScaleLoader {
  using Shape = Sm90Shape<Config>;
  static constexpr int kWords = Shape::kScaledColumns + Shape::kScaledRows;
  static constexpr int kThreads = Shape::kScaleThreads;
  static constexpr int kCopies = ceil_div(kWords, kThreads);  // of a thread, for each stage
  static constexpr bool kBytes = kByteScales<Config>;
  static constexpr int kAhead = 4;  // stages whose bytes are loaded at a time
  using Source = conditional<kBytes, u8, float>;

 public:
  __device__ __forceinline__ explicit ScaleLoader(const GemmParams& params)
      : params_(params), thread_(threadIdx.x % 128 - 32) {}

  __device__ __forceinline__ void load_tiles(const ClusterPlace<Config>& place) {
    const auto ring = Shape::ring();
    auto position = ring.producer();
    const KTiles k_tiles = k_tiles_of(place, params_, Shape::kBlockK);
    for (TileSchedule<Config> schedule(params_, place); schedule.has_tile(); schedule.advance()) {
      find(schedule.tile(), k_tiles.begin);
#pragma unroll 1
      for (int k_tile = k_tiles.begin; k_tile < k_tiles.end; ++k_tile) {
        if constexpr (kBytes) {
          if ((k_tile - k_tiles.begin) % kAhead == 0) load_ahead(k_tiles.end - k_tile);
        }
        wait(ring.empty(position.stage), position.parity);
        if constexpr (kBytes) {
          store(Shape::scales(position.stage));
          arrive(ring.full(position.stage));
        } else {
          copy(Shape::scales(position.stage));
          arrive_after_copies(ring.full(position.stage));
        }
        position.advance();
      }
    }
  }

 private:
  // Finds this thread's factors of the tile at `at`. What lies outside the matrices becomes zero,
  // or the last byte inside: no stored output depends on it, and loads need no conditions.
  __device__ __forceinline__ void find(const TilePosition& at, int k_tile) {
    const auto* a =
        reinterpret_cast<const Source*>(params_.scale_a) + at.batch * params_.scale_a_batch;
    const auto* b =
        reinterpret_cast<const Source*>(params_.scale_b) + at.batch * params_.scale_b_batch;
    exists_ = 0;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int word = thread_ + i * kThreads;
      const bool is_column = word < Shape::kScaledColumns;
      int mn = is_column ? at.column + word * Shape::kColumnRun
                         : at.row + (word - Shape::kScaledColumns) * Shape::kRowRun;
      const bool is_of_a = is_column == Config::kSwapped;
      if constexpr (kBytes) mn = min(mn, (is_of_a ? params_.m : params_.n) - 1);
      constexpr int kBlock = Config::kScaleB == Scale::blocks ? kGemmScaleBlock : 1;
      sources_[i] = is_of_a
                        ? a + mn * params_.scale_a_row + k_tile * params_.scale_a_group
                        : b + mn / kBlock * params_.scale_b_column + k_tile * params_.scale_b_group;
      if (word < kWords && mn < (is_of_a ? params_.m : params_.n)) exists_ |= 1u << i;
    }
  }

  __device__ __forceinline__ void copy(u32 scales) {
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int word = thread_ + i * kThreads;
      if (word < kWords) copy_async_4(scales + word * 4, sources_[i], exists_ >> i & 1 ? 4 : 0);
      sources_[i] += group_stride(word);
    }
  }

  // Loads the bytes of kAhead stages, or those of the `left` stages there are and the last of these
  // again, all before the first is used: the time of one load is then spent once.
  __device__ __forceinline__ void load_ahead(int left) {
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const i64 stride = group_stride(thread_ + i * kThreads);
      u32 bytes[kAhead];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        bytes[j] = *sources_[i];
        if (j + 1 < left) sources_[i] += stride;
      }
      ahead_[i] = bytes[0] | bytes[1] << 8 | bytes[2] << 16 | bytes[3] << 24;
    }
  }

  __device__ __forceinline__ void store(u32 scales) {
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int word = thread_ + i * kThreads;
      if (word < kWords) store_shared_4(scales + word * 4, float_of_scale(ahead_[i] & 255));
      ahead_[i] >>= 8;
    }
  }

  __device__ __forceinline__ i64 group_stride(int word) const {
    const bool is_of_a = (word < Shape::kScaledColumns) == Config::kSwapped;
    return is_of_a ? params_.scale_a_group : params_.scale_b_group;
  }

  const GemmParams& params_;
  int thread_;
  const Source* sources_[kCopies];   // of the next stage, or the next to be loaded ahead
  u32 exists_;                       // bit i: that copy i reads memory
  u32 ahead_[kBytes ? kCopies : 1];  // bytes of the next stages, the first in the lowest
};

// The factors of one thread's products of a stage, in registers. Without scales of blocks there are
// none, and multiply_add() only adds.
template <class Config, bool = kBlockScaled<Config>>
class StageScales {
 public:
  static constexpr int kColumns = 0;  // factors of columns

  __device__ __forceinline__ explicit StageScales(int) {}
  __device__ __forceinline__ void read(u32) {}
  __device__ __forceinline__ void multiply_add(float& sum, float product, int, int, int) const {
    sum += product;
  }
};

template <class Config>
class StageScales<Config, true> {
  using Shape = Sm90Shape<Config>;
  static constexpr bool kEachRow = Shape::kRowRun == 1, kEachColumn = Shape::kColumnRun == 1;
  static constexpr int kRowCount = kEachRow ? Shape::kTilesM * 2 : 1;
  static_assert(kEachRow || (Shape::kRowRun == Config::kBlockM && Config::kBlockM <= 128),
                "gemm sm_90a: the rows of a swapped tile must lie in one block of scales");

 public:
  // Factors of columns of a thread, which has pairs of columns.
  static constexpr int kColumns = kEachColumn ? Config::kBlockN / 4 : Shape::kScaledColumns;

  // `group` is the warpgroup's index among those that share the tile.
  __device__ __forceinline__ explicit StageScales(int group)
      : first_row_(group * Shape::kTilesM * 64 + threadIdx.x % 128 / 32 * 16 +
                   threadIdx.x % 32 / 4) {}

  // Reads those of the stage, which must be full; the warp may then release it.
  __device__ __forceinline__ void read(u32 stage) {
    const u32 columns = Shape::scales(stage), rows = columns + Shape::kScaledColumns * 4;
    if constexpr (kEachColumn) {
#pragma unroll
      for (int i = 0; i < kColumns; i += 2) {
        load_pair(columns + threadIdx.x % 4 * 8 + i / 2 * 32, columns_[i], columns_[i + 1]);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kColumns; ++i) columns_[i] = load_shared<float>(columns + i * 4);
    }
#pragma unroll
    for (int i = 0; i < kRowCount; ++i) {
      const int row = kEachRow ? first_row_ + i / 2 * 64 + i % 2 * 8 : 0;
      rows_[i] = load_shared<float>(rows + row * 4);
    }
    __syncwarp();  // one lane releases the stage for all
  }

  // Adds a product of the `tile_m`-th 64 rows, at `index` of the accumulators of a part whose first
  // column is `column` of the tile.
  __device__ __forceinline__ void multiply_add(float& sum, float product, int tile_m, int column,
                                               int index) const {
    const int own_column = column + index / 4 * 8;
    const float row = rows_[kEachRow ? tile_m * 2 + index / 2 % 2 : 0];
    const float factor =
        row * columns_[kEachColumn ? own_column / 4 + index % 2 : own_column / Shape::kColumnRun];
    sum += factor * product;
  }

 private:
  __device__ __forceinline__ static void load_pair(u32 address, float& first, float& second) {
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(first), "=f"(second)
                 : "r"(address)
                 : "memory");
  }

  int first_row_;
  float rows_[kRowCount], columns_[kColumns];
};

}  // namespace kiln
