// Global memory as a launch may touch it: disjoint ranges of host addresses.
#include <algorithm>

#include "runtime/emulator/machine/faults.h"
#include "runtime/emulator/memory/memory.h"

namespace kiln::runtime::emulator {
namespace {

std::string count_of(std::uint64_t bytes) {
  return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes");
}

std::string quoted(const std::string& name) {
  return name.empty() ? std::string("an allocation") : "'" + name + "'";
}

}  // namespace

std::size_t AddressMap::first_behind(std::uint64_t address) const {
  const auto it =
      std::upper_bound(ranges_.begin(), ranges_.end(), address,
                       [](std::uint64_t a, const Range& range) { return a < range.end; });
  return static_cast<std::size_t>(it - ranges_.begin());
}

void AddressMap::insert(std::size_t at, std::uint64_t begin, std::uint64_t end, bool writable,
                        const std::string& name) {
  if (begin < end) {
    ranges_.insert(ranges_.begin() + static_cast<std::ptrdiff_t>(at),
                   Range{begin, end, writable, name});
  }
}

void AddressMap::add(std::uint64_t address, std::uint64_t bytes, bool writable, std::string name) {
  if (bytes == 0) return;
  std::uint64_t begin = address;
  const std::uint64_t end = address + std::min(bytes, ~std::uint64_t{0} - address);
  std::size_t at = first_behind(begin);
  // Only the holes between existing ranges are new; an input that is also an output becomes
  // writable where the two overlap.
  while (begin < end) {
    if (at == ranges_.size() || ranges_[at].begin >= end) {
      insert(at, begin, end, writable, name);
      return;
    }
    if (begin < ranges_[at].begin) {
      insert(at, begin, ranges_[at].begin, writable, name);
      begin = ranges_[++at].begin;
    }
    const Range old = ranges_[at];
    if (writable && !old.writable) {
      const std::uint64_t stop = std::min(end, old.end);
      ranges_.erase(ranges_.begin() + static_cast<std::ptrdiff_t>(at));
      insert(at, stop, old.end, false, old.name);
      insert(at, begin, stop, true, name.empty() ? old.name : name);
      insert(at, old.begin, begin, false, old.name);
      at = first_behind(begin);
    }
    begin = ranges_[at++].end;
  }
}

std::byte* AddressMap::try_find(std::uint64_t address, std::uint64_t bytes, bool write) const {
  const std::uint64_t end = address + bytes;
  if (end < address) return nullptr;
  std::size_t at = first_behind(address);
  for (std::uint64_t next = address; at < ranges_.size(); ++at) {
    const Range& range = ranges_[at];
    if (range.begin > next || (write && !range.writable)) return nullptr;
    next = range.end;
    if (next >= end) return reinterpret_cast<std::byte*>(address);
  }
  return nullptr;
}

std::byte* AddressMap::find(std::uint64_t address, std::uint64_t bytes, bool write,
                            int lane) const {
  std::byte* data = try_find(address, bytes, write);
  if (data == nullptr) report(address, bytes, write, lane);
  return data;
}

void AddressMap::report(std::uint64_t address, std::uint64_t bytes, bool write, int lane) const {
  std::string text = std::string(write ? "write" : "read") + " of " + count_of(bytes) +
                     " at global address " + hex(address);
  if (ranges_.empty()) raise(Fault::out_of_bounds, text + "; the launch names no memory", lane);
  // try_find(.., false) tells a write to what may only be read from one outside.
  if (write && try_find(address, bytes, false) != nullptr) {
    raise(Fault::out_of_bounds,
          text + ": " + quoted(ranges_[first_behind(address)].name) + " is read-only", lane);
  }
  std::uint64_t best = ~std::uint64_t{0};
  const Range* nearest = nullptr;
  bool beyond = false;
  const std::uint64_t last = address + bytes - 1;
  for (const Range& range : ranges_) {
    // An access that crosses the end is told by how far it reaches out.
    const bool crosses = address >= range.begin && address < range.end;
    const bool behind = crosses || address >= range.end;
    const std::uint64_t distance = crosses               ? 0
                                   : behind              ? address - range.end
                                   : last >= range.begin ? 0
                                                         : range.begin - last - 1;
    if (distance < best || nearest == nullptr) {
      best = distance;
      nearest = &range;
      beyond = behind;
    }
  }
  const std::uint64_t missed = beyond ? last + 1 - nearest->end : nearest->begin - address;
  text += ": it ";
  text += beyond ? "ends " + count_of(missed) + " behind the end of "
                 : "begins " + count_of(missed) + " before the start of ";
  text += quoted(nearest->name) + " (" + hex(nearest->begin) + " to " + hex(nearest->end) + ", " +
          count_of(nearest->end - nearest->begin) + "), the nearest that the launch may touch";
  raise(Fault::out_of_bounds, text, lane);
}

}  // namespace kiln::runtime::emulator
