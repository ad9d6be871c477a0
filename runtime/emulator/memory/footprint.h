// A footprint records byte by byte which global memory a launch has read and written: a launch that
// may begin before this one has ended is checked against it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/emulator/decode/program.h"

namespace kiln::runtime::emulator {

class AddressMap;

class Footprint {
 public:
  Footprint(std::string kernel, const AddressMap& memory);

  const std::string& kernel() const { return kernel_; }
  // Both may be called by several threads at once. The bytes must lie in the launch's memory.
  void add(std::uint64_t address, std::uint64_t bytes, bool write);
  // Each lane accesses `bytes`, a power of two up to 32, at an address that is a multiple of it.
  void add_lanes(const std::uint64_t* addresses, unsigned bytes, bool write, Mask lanes);

  // Whether any of the bytes, wherever they lie, was.
  bool has_read(std::uint64_t address, std::uint64_t bytes) const;
  bool has_written(std::uint64_t address, std::uint64_t bytes) const;

 private:
  // One bit a byte. Pages of bits that nobody sets take no memory.
  using Bits = std::unique_ptr<std::uint64_t[], void (*)(void*)>;
  struct Part {
    std::uint64_t begin, end;  // multiples of a word's 64 bytes
    Bits read, written;
  };
  // The first part that ends behind `address`.
  std::size_t first_behind(std::uint64_t address) const;
  bool any(Bits Part::* which, std::uint64_t address, std::uint64_t bytes) const;

  std::string kernel_;
  std::vector<Part> parts_;  // by address, disjoint
};

}  // namespace kiln::runtime::emulator
