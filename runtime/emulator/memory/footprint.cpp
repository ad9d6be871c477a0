#include "runtime/emulator/memory/footprint.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <utility>

#include "runtime/emulator/machine/machine.h"
#include "runtime/emulator/memory/memory.h"

namespace kiln::runtime::emulator {
namespace {

constexpr std::uint64_t kWord = 64;  // bytes of global memory that one word of bits tells of

// The bits of `count` bytes from a byte of the word on.
std::uint64_t bits_of(std::uint64_t first, std::uint64_t count) {
  return (count >= kWord ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1) << first;
}

// Most accesses repeat others, or write what nobody else does: a look first costs less.
void set_bits(std::uint64_t& word, std::uint64_t bits) {
  const std::atomic_ref<std::uint64_t> shared(word);
  if ((shared.load(std::memory_order_relaxed) & bits) != bits) {
    shared.fetch_or(bits, std::memory_order_relaxed);
  }
}

std::unique_ptr<std::uint64_t[], void (*)(void*)> no_bits(std::uint64_t bytes) {
  void* memory = std::calloc(bytes / kWord, sizeof(std::uint64_t));
  if (memory == nullptr) throw std::bad_alloc();
  return {static_cast<std::uint64_t*>(memory), &std::free};
}

// f(word, bits) for the words that hold the bytes [begin, end) behind the start of a part; stops
// where it returns false.
template <class F>
bool for_each_word(std::uint64_t begin, std::uint64_t end, F f) {
  while (begin < end) {
    const std::uint64_t first = begin % kWord;
    const std::uint64_t count = std::min(end - begin, kWord - first);
    if (!f(begin / kWord, bits_of(first, count))) return false;
    begin += count;
  }
  return true;
}

}  // namespace

Footprint::Footprint(std::string kernel, const AddressMap& memory) : kernel_(std::move(kernel)) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> spans;
  memory.for_each_range([&](std::uint64_t begin, std::uint64_t end) {
    begin = begin / kWord * kWord;
    end = (end + kWord - 1) / kWord * kWord;
    if (!spans.empty() && begin <= spans.back().second) {
      spans.back().second = std::max(spans.back().second, end);
    } else {
      spans.emplace_back(begin, end);
    }
  });
  for (const auto& [begin, end] : spans) {
    parts_.push_back({begin, end, no_bits(end - begin), no_bits(end - begin)});
  }
}

std::size_t Footprint::first_behind(std::uint64_t address) const {
  const auto it = std::upper_bound(parts_.begin(), parts_.end(), address,
                                   [](std::uint64_t a, const Part& part) { return a < part.end; });
  return static_cast<std::size_t>(it - parts_.begin());
}

void Footprint::add(std::uint64_t address, std::uint64_t bytes, bool write) {
  const std::size_t at = first_behind(address);
  if (at == parts_.size() || address < parts_[at].begin) return;
  const Part& part = parts_[at];
  std::uint64_t* const words = (write ? part.written : part.read).get();
  const std::uint64_t end = std::min(address + bytes, part.end);
  for_each_word(address - part.begin, end - part.begin, [&](std::uint64_t i, std::uint64_t bits) {
    set_bits(words[i], bits);
    return true;
  });
}

void Footprint::add_lanes(const std::uint64_t* addresses, unsigned bytes, bool write, Mask lanes) {
  const Part* part = nullptr;
  std::uint64_t* words = nullptr;
  std::uint64_t word = 0, bits = 0;  // of neighbouring lanes, not yet set
  for_each_lane(lanes, [&](int lane) {
    const std::uint64_t address = addresses[lane];
    if (part == nullptr || address < part->begin || address >= part->end) {
      if (bits != 0) set_bits(words[word], bits);
      bits = 0;
      const std::size_t at = first_behind(address);
      if (at == parts_.size() || address < parts_[at].begin) {
        part = nullptr;
        return;
      }
      part = &parts_[at];
      words = (write ? part->written : part->read).get();
    }
    const std::uint64_t offset = address - part->begin;
    if (offset / kWord != word) {
      if (bits != 0) set_bits(words[word], bits);
      bits = 0;
      word = offset / kWord;
    }
    bits |= bits_of(offset % kWord, bytes);
  });
  if (bits != 0) set_bits(words[word], bits);
}

bool Footprint::any(Bits Part::* which, std::uint64_t address, std::uint64_t bytes) const {
  const std::uint64_t end = address + bytes;
  for (std::size_t at = first_behind(address); at < parts_.size(); ++at) {
    const Part& part = parts_[at];
    if (part.begin >= end) return false;
    const std::uint64_t* const words = (part.*which).get();
    const bool none = for_each_word(
        std::max(address, part.begin) - part.begin, std::min(end, part.end) - part.begin,
        [&](std::uint64_t i, std::uint64_t bits) { return (words[i] & bits) == 0; });
    if (!none) return true;
  }
  return false;
}

bool Footprint::has_read(std::uint64_t address, std::uint64_t bytes) const {
  return any(&Part::read, address, bytes);
}

bool Footprint::has_written(std::uint64_t address, std::uint64_t bytes) const {
  return any(&Part::written, address, bytes);
}

}  // namespace kiln::runtime::emulator
