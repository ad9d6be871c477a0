#include "runtime/cuda/host_staging.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <exception>
#include <map>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/cuda/context.h"
#include "runtime/cuda/errors.h"

namespace kiln::runtime {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{2} << 20;  // pinned; of two, one is on the bus
constexpr int kLanes = 4;  // threads that copy; each has its pair of blocks
constexpr std::size_t kAlignment = 256;
constexpr std::size_t kLeastArena = std::size_t{32} << 20;
constexpr std::size_t kMostKept = std::size_t{1} << 30;  // between calls

std::size_t rounded_up(std::size_t bytes) { return (bytes + kAlignment - 1) & ~(kAlignment - 1); }

// Device memory that is handed out front to back and taken back as a whole.
class Arena {
 public:
  explicit Arena(const DriverTable& driver) : driver_(driver) {}

  // Requires: nothing that was handed out is in use. Several pieces become one; more than kMostKept
  // goes back.
  void reset() {
    std::size_t all = 0;
    for (const Piece& piece : pieces_) all += piece.bytes;
    if (pieces_.size() > 1 || all > kMostKept) {
      for (const Piece& piece : std::exchange(pieces_, {})) {
        check(driver_, driver_.cuMemFree(piece.address), "cuMemFree");
      }
      if (all <= kMostKept) add(all);
    }
    used_ = 0;
  }

  std::byte* take(std::size_t bytes) {
    bytes = rounded_up(std::max<std::size_t>(bytes, 1));
    if (pieces_.empty() || used_ + bytes > pieces_.back().bytes) {
      add(std::max(bytes, kLeastArena));
      used_ = 0;
    }
    const CUdeviceptr address = pieces_.back().address + used_;
    used_ += bytes;
    return reinterpret_cast<std::byte*>(address);
  }

 private:
  struct Piece {
    CUdeviceptr address;
    std::size_t bytes;
  };
  void add(std::size_t bytes) {
    CUdeviceptr address = 0;
    check(driver_, driver_.cuMemAlloc(&address, bytes), "cuMemAlloc");
    pieces_.push_back({address, bytes});
  }

  const DriverTable& driver_;
  std::vector<Piece> pieces_;
  std::size_t used_ = 0;  // of the last piece
};

// One thread's pair of pinned blocks, by turns.
struct Lane {
  struct Block {
    std::byte* memory = nullptr;
    CUevent done = nullptr;  // the last copy between it and the device
    HostCopy pending;        // what download() has to copy on to the host
  };
  std::array<Block, 2> blocks;
};

class CudaStaging final : public HostStaging {
 public:
  CudaStaging(const DriverTable& driver, CUdevice device)
      : driver_(driver), primary_(driver, device), arena_(driver) {}

  // Makes what is not there yet. Where that fails, the next call goes on with what was made.
  // Requires: no other thread is in here.
  void prepare() {
    if (is_ready_) return;
    const ContextScope scope(primary_, ContextScope::kPrimary);
    if (stream_ == nullptr) {
      // Not ordered with the default stream, on which other libraries may have work under way.
      CUstream stream = nullptr;
      checked(driver_.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
      stream_ = stream;
    }
    for (Lane& lane : lanes_) {
      for (Lane::Block& block : lane.blocks) prepare(block);
    }
    is_ready_ = true;
  }

  std::unique_lock<std::mutex> begin() override {
    std::unique_lock lock(mutex_);
    const ContextScope scope(primary_, ContextScope::kPrimary);
    checked(driver_.cuStreamSynchronize(stream_), "cuStreamSynchronize");  // after a failed call
    arena_.reset();
    return lock;
  }

  std::byte* reserve(std::size_t bytes) override {
    const ContextScope scope(primary_, ContextScope::kPrimary);
    return arena_.take(bytes);
  }

  void upload(std::span<const HostCopy> copies) override {
    for_each_lane(copies, [this](Lane& lane, const HostCopy& copy, int turn) {
      Lane::Block& block = lane.blocks[static_cast<std::size_t>(turn % 2)];
      checked(driver_.cuEventSynchronize(block.done), "cuEventSynchronize");
      std::memcpy(block.memory, copy.host, copy.bytes);
      checked(driver_.cuMemcpyHtoDAsync(address(copy), block.memory, copy.bytes, stream_),
              "cuMemcpyHtoDAsync");
      checked(driver_.cuEventRecord(block.done, stream_), "cuEventRecord");
    });
  }

  void download(std::span<const HostCopy> copies) override {
    for_each_lane(copies, [this](Lane& lane, const HostCopy& copy, int turn) {
      Lane::Block& block = lane.blocks[static_cast<std::size_t>(turn % 2)];
      deliver(block);
      checked(driver_.cuMemcpyDtoHAsync(block.memory, address(copy), copy.bytes, stream_),
              "cuMemcpyDtoHAsync");
      checked(driver_.cuEventRecord(block.done, stream_), "cuEventRecord");
      block.pending = copy;
    });
  }

  void* stream() const override { return stream_; }

 private:
  void checked(CUresult result, const char* call) const { check(driver_, result, call); }
  static CUdeviceptr address(const HostCopy& copy) {
    return reinterpret_cast<CUdeviceptr>(copy.device);
  }

  void prepare(Lane::Block& block) const {
    if (block.memory == nullptr) {
      void* memory = nullptr;
      checked(driver_.cuMemHostAlloc(&memory, kBlockBytes, CU_MEMHOSTALLOC_PORTABLE),
              "cuMemHostAlloc");
      block.memory = static_cast<std::byte*>(memory);
    }
    if (block.done == nullptr) {
      CUevent done = nullptr;
      checked(driver_.cuEventCreate(&done, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
      block.done = done;
    }
  }

  // Copies on to the host what has arrived in the block.
  void deliver(Lane::Block& block) {
    checked(driver_.cuEventSynchronize(block.done), "cuEventSynchronize");
    const HostCopy copy = std::exchange(block.pending, {});
    if (copy.bytes > 0) std::memcpy(copy.host, block.memory, copy.bytes);
  }

  // Calls copy_block(lane, part of a copy, turn of that lane) for parts of at most a block, spread
  // over the lanes, each in a thread of its own where there is enough to do.
  template <class CopyBlock>
  void for_each_lane(std::span<const HostCopy> copies, const CopyBlock& copy_block) {
    std::vector<HostCopy> parts;
    for (const HostCopy& copy : copies) {
      for (std::size_t at = 0; at < copy.bytes; at += kBlockBytes) {
        parts.push_back({copy.host + at, copy.device + at, std::min(kBlockBytes, copy.bytes - at)});
      }
    }
    const std::size_t lanes = std::clamp<std::size_t>(parts.size() / 2, 1, kLanes);
    std::array<std::exception_ptr, kLanes> errors;
    const auto run = [&](std::size_t index) {
      try {
        const ContextScope scope(primary_, ContextScope::kPrimary);
        Lane& lane = lanes_[index];
        int turn = 0;
        for (std::size_t i = index; i < parts.size(); i += lanes) {
          copy_block(lane, parts[i], turn++);
        }
        for (int last = turn; last < turn + 2; ++last) {
          Lane::Block& block = lane.blocks[static_cast<std::size_t>(last % 2)];
          if (block.pending.bytes > 0) deliver(block);
        }
      } catch (...) {
        for (Lane::Block& block : lanes_[index].blocks) block.pending = {};
        errors[index] = std::current_exception();
      }
    };
    {
      std::vector<std::jthread> threads;
      try {
        for (std::size_t i = 1; i < lanes; ++i) threads.emplace_back(run, i);
      } catch (const std::system_error&) {
        // The process may have no more threads: this one copies the rest.
      }
      run(0);
      for (std::size_t i = threads.size() + 1; i < lanes; ++i) run(i);
    }
    for (const std::exception_ptr& error : errors) {
      if (error) std::rethrow_exception(error);
    }
  }

  const DriverTable& driver_;
  PrimaryContext primary_;
  std::mutex mutex_;
  CUstream stream_ = nullptr;
  Arena arena_;
  std::array<Lane, kLanes> lanes_;
  bool is_ready_ = false;
};

}  // namespace

HostStaging& host_staging(int ordinal) {
  // Never destroyed: the driver may be gone before static objects are.
  static auto* const mutex = new std::mutex;
  static auto* const known =
      new std::map<std::pair<const DriverTable*, int>, std::unique_ptr<CudaStaging>>;
  const DriverTable& table = driver();
  const std::lock_guard lock(*mutex);
  std::unique_ptr<CudaStaging>& staging = (*known)[{&table, ordinal}];
  if (!staging) {
    CUdevice device = 0;
    check(table, table.cuDeviceGet(&device, ordinal), "cuDeviceGet");
    staging = std::make_unique<CudaStaging>(table, device);
  }
  staging->prepare();
  return *staging;
}

}  // namespace kiln::runtime
