// What is baked into one kernel: its template, the row of that template's config table, the
// architecture and the traits. Comparable and hashable as words, without strings.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace kiln {

struct Template;

// A family's baked properties as words. Each family has a struct of its own for them
// (AttentionTraits, GemmTraits) of exactly this size; what is not used is reserved.
using Traits = std::array<std::uint64_t, 6>;

// Whether a struct may stand for Traits: compared and hashed as words, it must have no padding.
template <class T>
inline constexpr bool is_traits = sizeof(T) == sizeof(Traits) && std::is_trivially_copyable_v<T> &&
                                  std::has_unique_object_representations_v<T>;

class Specialization {
 public:
  Specialization() = default;
  // `arch`: index into arch_table(). `row`: of the template's config table.
  template <class T>
  Specialization(const Template& kernel, int arch, int row, const T& traits)
      : template_(&kernel),
        arch_(static_cast<std::uint16_t>(arch)),
        row_(static_cast<std::uint16_t>(row)),
        traits_(std::bit_cast<Traits>(traits)) {
    static_assert(is_traits<T>, "traits are words: fill the struct up with reserved bytes");
  }

  // Requires: not default-constructed.
  const Template& kernel() const { return *template_; }
  int arch() const { return arch_; }
  int row() const { return row_; }
  const Traits& traits() const { return traits_; }
  // Requires: T is the struct of the kernel's family.
  template <class T>
  T traits_as() const {
    return std::bit_cast<T>(traits_);
  }

  std::size_t hash() const {
    std::uint64_t h = (reinterpret_cast<std::uintptr_t>(template_) ^ std::uint64_t{arch_} << 48 ^
                       std::uint64_t{row_} << 32) *
                      0x9e3779b97f4a7c15u;
    for (std::uint64_t word : traits_) {
      h ^= word;
      h *= 0xff51afd7ed558ccdu;
      h ^= h >> 32;
    }
    return h;
  }
  bool operator==(const Specialization&) const = default;

 private:
  const Template* template_ = nullptr;
  std::uint16_t arch_ = 0, row_ = 0;
  std::uint32_t reserved_ = 0;
  Traits traits_{};
};

}  // namespace kiln
