// The argument block of one launch: the kernel's parameter struct followed by 8-byte words, with
// where its pointers are (a Plan patches them) and which memory it touches (the device checks it).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "kiln/tensor.h"
#include "runtime/device.h"

namespace kiln {

class CallArguments {
 public:
  static constexpr std::size_t kCapacity = 1024;
  static constexpr std::size_t kMaxPointers = 16;

  template <class Params>
  void set_params(const Params& params) {
    static_assert(sizeof(Params) % 8 == 0 && sizeof(Params) <= 512);
    std::memcpy(bytes_, &params, sizeof(Params));
    size_ = sizeof(Params);
  }
  void add_word(std::uint64_t word) {
    std::memcpy(bytes_ + size_, &word, 8);
    size_ += 8;
  }
  void add_float(float value) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, 4);
    add_word(bits);
  }
  // A pointer of `tensor` at `offset` of the block; appends it when the offset is the end. The
  // kernel reads `together` elements at once.
  void add_pointer(std::size_t offset, const TensorView& tensor, bool written, int together = 1) {
    if (offset == size_) add_word(reinterpret_cast<std::uint64_t>(tensor.data));
    offsets_[pointers_] = static_cast<std::uint16_t>(offset);
    alignments_[pointers_] = static_cast<std::uint8_t>(together * size_of(tensor.dtype));
    spans_[pointers_++] = span_of(tensor, written);
  }
  std::size_t size() const { return size_; }

  // In the struct that set_params() was given.
  void set_int(std::size_t offset, int value) { std::memcpy(bytes_ + offset, &value, 4); }
  // Of a launch whose CTAs share tiles. `nonce` is not 0 and of this launch alone.
  template <class Params>
  void set_workspace(void* workspace, std::size_t bytes, std::uint64_t nonce) {
    std::memcpy(bytes_ + offsetof(Params, workspace), &workspace, sizeof workspace);
    std::memcpy(bytes_ + offsetof(Params, nonce), &nonce, sizeof nonce);
    spans_[pointers_] = {reinterpret_cast<std::uint64_t>(workspace), bytes, true};
    has_workspace_ = true;
  }

  // What the kernel reads: its struct may end in padding after the last word.
  std::span<const std::byte> bytes() const { return {bytes_, size_ + 8}; }
  // In the order of the pointers; a workspace comes last.
  std::span<const runtime::MemorySpan> spans() const {
    return {spans_.data(), pointers_ + (has_workspace_ ? 1 : 0)};
  }

  std::size_t pointers() const { return pointers_; }
  // Bytes that pointer i must be a multiple of, as far as single reads go.
  std::size_t alignment(std::size_t i) const { return alignments_[i]; }
  std::uint64_t pointer(std::size_t i) const {
    std::uint64_t address;
    std::memcpy(&address, bytes_ + offsets_[i], 8);
    return address;
  }
  void set_pointer(std::size_t i, const void* address) {
    spans_[i].address += reinterpret_cast<std::uint64_t>(address) - pointer(i);
    std::memcpy(bytes_ + offsets_[i], &address, 8);
  }

  // From a tensor's first element to its last.
  static runtime::MemorySpan span_of(const TensorView& tensor, bool written) {
    std::int64_t first = 0, last = 0;
    for (int i = 0; i < tensor.rank; ++i) {
      if (tensor.shape[i] == 0) return {reinterpret_cast<std::uint64_t>(tensor.data), 0, written};
      (tensor.strides[i] < 0 ? first : last) += (tensor.shape[i] - 1) * tensor.strides[i];
    }
    const std::int64_t size = size_of(tensor.dtype);
    return {reinterpret_cast<std::uint64_t>(tensor.data) + static_cast<std::uint64_t>(first * size),
            static_cast<std::uint64_t>((last - first + 1) * size), written};
  }

 private:
  alignas(16) std::byte bytes_[kCapacity + 8];
  std::size_t size_ = 0;
  std::size_t pointers_ = 0;
  bool has_workspace_ = false;
  std::array<std::uint16_t, kMaxPointers> offsets_;
  std::array<std::uint8_t, kMaxPointers> alignments_;
  std::array<runtime::MemorySpan, kMaxPointers + 1> spans_;
};

}  // namespace kiln
