// The argument block of one launch: the kernel's parameter struct followed by 8-byte words, with
// where its pointers are (a Plan patches them) and which memory it touches (the device checks it).
#pragma once

#include <algorithm>
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
  static constexpr std::size_t kCapacity = 3072;
  static constexpr std::size_t kMaxPointers = 64;

  CallArguments() {}  // kilobytes that nobody reads before it is written
  CallArguments(const CallArguments& other) { *this = other; }
  CallArguments& operator=(const CallArguments& other) {  // of what is used alone
    size_ = other.size_, count_ = other.count_, workspace_ = other.workspace_;
    into_workspace_count_ = other.into_workspace_count_;
    std::copy_n(other.into_workspace_.begin(), into_workspace_count_, into_workspace_.begin());
    std::memcpy(bytes_, other.bytes_, size_);
    std::memcpy(pointers_.data(), other.pointers_.data(), count_ * sizeof(Pointer));
    std::memcpy(spans_.data(), other.spans_.data(), (count_ + 1) * sizeof(runtime::MemorySpan));
    return *this;
  }

  template <class Params>
  void set_params(const Params& params) {
    static_assert(sizeof(Params) % 8 == 0 && sizeof(Params) <= 576);
    std::memcpy(bytes_, &params, sizeof(Params));
    size_ = sizeof(Params);
  }
  void add_word(std::uint64_t word) {
    if (size_ + 8 > kCapacity) [[unlikely]]
      refuse_overflow("bytes");
    std::memcpy(bytes_ + size_, &word, 8);
    size_ += 8;
  }
  void add_float(float value) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, 4);
    add_word(bits);
  }
  // A pointer of `tensor` at `offset` of the block; appends it when the offset is the end. The
  // kernel reads `together` elements at once. `tensor_number`: the tensor's place among the call's,
  // which is the next one unless this launch is another than the first.
  void add_pointer(std::size_t offset, const TensorView& tensor, bool written, int together = 1,
                   int tensor_number = -1) {
    if (count_ == kMaxPointers) [[unlikely]]
      refuse_overflow("pointers");
    if (offset == size_) add_word(reinterpret_cast<std::uint64_t>(tensor.data));
    const auto number = tensor_number < 0 ? count_ : static_cast<std::size_t>(tensor_number);
    const int size = size_of(tensor.dtype);
    pointers_[count_] = {static_cast<std::uint16_t>(offset), static_cast<std::uint8_t>(number),
                         static_cast<std::uint8_t>(together * size)};
    spans_[count_++] = span_of(tensor, size, written);
  }
  // Forgets the pointer at `offset`, if there is one: the launch reads something else there.
  void drop_pointer(std::size_t offset) {
    for (std::size_t i = 0; i < count_; ++i) {
      if (pointers_[i].offset != offset) continue;
      std::copy(pointers_.begin() + i + 1, pointers_.begin() + count_, pointers_.begin() + i);
      std::copy(spans_.begin() + i + 1, spans_.begin() + count_, spans_.begin() + i);
      --count_;
      return;
    }
  }
  // One more pointer: the i-th of another launch of the call, which is at the same offset here.
  void copy_pointer(const CallArguments& other, std::size_t i) {
    if (count_ == kMaxPointers) [[unlikely]]
      refuse_overflow("pointers");
    pointers_[count_] = other.pointers_[i];
    spans_[count_++] = other.spans_[i];
  }
  std::size_t size() const { return size_; }

  // In the struct that set_params() was given.
  template <class Value>
  void set_value(std::size_t offset, const Value& value) {
    std::memcpy(bytes_ + offset, &value, sizeof value);
  }
  void set_int(std::size_t offset, int value) { set_value(offset, value); }

  // The launch uses `bytes` of the call's workspace from `begin` on. `pointer` and `nonce` are
  // offsets in the struct that set_params() was given; a nonce of 0 stands for none.
  void want_workspace(std::size_t pointer, std::size_t begin, std::size_t bytes,
                      std::size_t nonce = 0) {
    workspace_ = {static_cast<std::uint16_t>(pointer), static_cast<std::uint16_t>(nonce), begin,
                  bytes};
  }
  // One more pointer to the workspace that the launch uses, to what lies at `begin` of the call's.
  void add_workspace_pointer(std::size_t offset, std::size_t begin) {
    if (into_workspace_count_ == into_workspace_.size()) [[unlikely]]
      refuse_overflow("pointers to a workspace");
    into_workspace_[into_workspace_count_++] = {static_cast<std::uint16_t>(offset), begin};
  }
  // The launch also uses the call's workspace up to `end`.
  void extend_workspace(std::size_t end) { workspace_.bytes = end - workspace_.begin; }
  bool wants_workspace() const { return workspace_.bytes != 0; }
  // Points the launch to its part of the call's workspace. `nonce` is not 0 and of this launch
  // alone.
  void set_workspace(void* workspace, std::uint64_t nonce) {
    const std::uint64_t address = reinterpret_cast<std::uint64_t>(workspace) + workspace_.begin;
    std::memcpy(bytes_ + workspace_.pointer, &address, sizeof address);
    if (workspace_.nonce != 0) std::memcpy(bytes_ + workspace_.nonce, &nonce, sizeof nonce);
    for (std::size_t i = 0; i < into_workspace_count_; ++i) {
      const auto place = reinterpret_cast<std::uint64_t>(workspace) + into_workspace_[i].begin;
      std::memcpy(bytes_ + into_workspace_[i].offset, &place, sizeof place);
    }
    spans_[count_] = {address, workspace_.bytes, true};
  }

  // What the kernel reads: its struct may end in padding after the last word.
  std::span<const std::byte> bytes() const { return {bytes_, size_ + 8}; }
  // In the order of the pointers; a workspace comes last.
  std::span<const runtime::MemorySpan> spans() const {
    return {spans_.data(), count_ + (wants_workspace() ? 1 : 0)};
  }

  std::size_t pointers() const { return count_; }
  std::size_t pointer_offset(std::size_t i) const { return pointers_[i].offset; }
  std::size_t tensor_number(std::size_t i) const { return pointers_[i].tensor; }
  // Where a launch becomes one of a call that has other tensors, too.
  void set_tensor_number(std::size_t i, std::size_t number) {
    pointers_[i].tensor = static_cast<std::uint8_t>(number);
  }
  // Bytes that pointer i must be a multiple of, as far as single reads go.
  std::size_t alignment(std::size_t i) const { return pointers_[i].alignment; }
  // The kernel of this launch reads or writes pointer i by vectors of so many bytes.
  void require_alignment(std::size_t i, std::size_t bytes) {
    if (pointers_[i].alignment < bytes) pointers_[i].alignment = static_cast<std::uint8_t>(bytes);
  }
  std::uint64_t pointer(std::size_t i) const {
    std::uint64_t address;
    std::memcpy(&address, bytes_ + pointers_[i].offset, 8);
    return address;
  }
  void set_pointer(std::size_t i, const void* address) {
    spans_[i].address += reinterpret_cast<std::uint64_t>(address) - pointer(i);
    std::memcpy(bytes_ + pointers_[i].offset, &address, 8);
  }

  // From a tensor's first element to its last, of `size` bytes each.
  static runtime::MemorySpan span_of(const TensorView& tensor, bool written) {
    return span_of(tensor, size_of(tensor.dtype), written);
  }
  static runtime::MemorySpan span_of(const TensorView& tensor, std::int64_t size, bool written) {
    std::int64_t first = 0, last = 0;
    for (int i = 0; i < tensor.rank; ++i) {
      if (tensor.shape[i] == 0) return {reinterpret_cast<std::uint64_t>(tensor.data), 0, written};
      const std::int64_t reach = (tensor.shape[i] - 1) * tensor.strides[i];
      first += std::min<std::int64_t>(reach, 0), last += std::max<std::int64_t>(reach, 0);
    }
    return {reinterpret_cast<std::uint64_t>(tensor.data) + static_cast<std::uint64_t>(first * size),
            static_cast<std::uint64_t>((last - first + 1) * size), written};
  }

 private:
  struct Pointer {
    std::uint16_t offset;
    std::uint8_t tensor, alignment;
  };
  struct WorkspaceUse {
    std::uint16_t pointer = 0, nonce = 0;
    std::size_t begin = 0, bytes = 0;
  };

  struct IntoWorkspace {
    std::uint16_t offset;
    std::size_t begin;
  };

  // Throws std::length_error: a family packs more than the block holds, which its limits on user
  // parameters and tensors should have ruled out.
  [[noreturn]] static void refuse_overflow(const char* what);

  alignas(16) std::byte bytes_[kCapacity + 8];
  std::size_t size_ = 0;
  std::size_t count_ = 0;
  WorkspaceUse workspace_;
  std::size_t into_workspace_count_ = 0;
  std::array<IntoWorkspace, 4> into_workspace_;
  std::array<Pointer, kMaxPointers> pointers_;
  std::array<runtime::MemorySpan, kMaxPointers + 1> spans_;
};

}  // namespace kiln
