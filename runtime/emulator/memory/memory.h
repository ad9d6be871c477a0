// The modelled memories, and the one way that handlers reach them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/device.h"
#include "runtime/emulator/machine/machine.h"

namespace kiln::runtime::emulator {

// What global memory a launch may touch. Addresses are the host's own.
class AddressMap {
 public:
  void add(std::uint64_t address, std::uint64_t bytes, bool writable, std::string name = {});
  // The host's bytes at [address, address + bytes), or raises Fault::out_of_bounds saying what the
  // nearest allocation is. `bytes` > 0.
  std::byte* find(std::uint64_t address, std::uint64_t bytes, bool write, int lane) const;
  // The same, or null where find() would raise.
  std::byte* try_find(std::uint64_t address, std::uint64_t bytes, bool write) const;
  // f(begin, end), by address.
  template <class F>
  void for_each_range(F f) const {
    for (const Range& range : ranges_) f(range.begin, range.end);
  }

 private:
  struct Range {
    std::uint64_t begin, end;
    bool writable;
    std::string name;
  };
  void insert(std::size_t at, std::uint64_t begin, std::uint64_t end, bool writable,
              const std::string& name);
  // The first range that ends behind `address`.
  std::size_t first_behind(std::uint64_t address) const;
  [[noreturn]] void report(std::uint64_t address, std::uint64_t bytes, bool write, int lane) const;
  std::vector<Range> ranges_;  // by begin, disjoint: where spans overlap, a writable one wins
};

// The .global and .const variables of a loaded module: storage, addresses, initial values.
class GlobalVariables {
 public:
  explicit GlobalVariables(const Module& module);
  // The address of a variable, or 0 when there is none of that name.
  std::uint64_t address_of(std::string_view name) const;
  void add_to(AddressMap& map) const;

 private:
  struct Storage {
    std::string_view name;
    std::uint64_t bytes;
    bool writable;
    std::unique_ptr<void, void (*)(void*)> data;
    std::byte* begin;
  };
  std::vector<Storage> variables_;
  std::unordered_map<std::string_view, std::size_t> index_;
};

enum class AccessKind : std::uint8_t { read, write, atomic };

// The host's bytes of one lane's access, after every check: space, bounds, alignment, and with
// checks on the shadow of shared memory (generic proxy). `space` none = generic. Raises a fault.
// `peers`: a shared address may be another block's of the cluster (.shared::cluster); a generic one
// always may.
std::byte* access(Warp& warp, Space space, std::uint64_t address, unsigned bytes, AccessKind kind,
                  int lane, bool peers = false);
// The same without the shadow.
std::byte* access_unwatched(Warp& warp, Space& space, std::uint64_t& address, unsigned bytes,
                            bool write, int lane, bool peers);

// Global bytes that a lane reads or writes, now or later by an asynchronous unit: bounds, and with
// checks on the launches that may overlap. What only asks for an address calls AddressMap::find.
std::byte* find_global(const Warp& warp, std::uint64_t address, std::uint64_t bytes, bool write,
                       int lane);

// Splits a generic address. Shared: `address` becomes the 32-bit shared address; local and param:
// the offset. What lies outside the windows is left as an address that no space holds.
Space resolve_generic(std::uint64_t& address);

// Shared bytes of any block of the cluster for an asynchronous unit or a warp-wide op: bounds and
// `align`, no shadow. `shared_address` as registers hold it: rank and offset. `lane`: whom to name.
std::byte* shared_bytes(Cluster& cluster, std::uint32_t shared_address, std::uint64_t bytes,
                        unsigned align, int lane = -1);

}  // namespace kiln::runtime::emulator
