#include "jit/arch.h"

#include <stdexcept>

namespace kiln {
namespace {

// Limits: CUDA C++ Programming Guide, "Technical specifications per compute capability". One KiB of
// each multiprocessor's shared memory goes to the system per resident block.
constexpr Arch kArchs[] = {
    {80, {8, 0}, 163 * 1024, 164 * 1024, "sm_80"},
    {86, {8, 6}, 99 * 1024, 100 * 1024, "sm_86"},
    {89, {8, 9}, 99 * 1024, 100 * 1024, "sm_89"},
    {90, {9, 0}, 227 * 1024, 228 * 1024, "sm_90"},
    {100, {10, 0}, 227 * 1024, 228 * 1024, "sm_100"},
    {120, {12, 0}, 99 * 1024, 100 * 1024, "sm_120"},
};

std::string known_archs() {
  std::string names;
  for (const Arch& arch : kArchs) names += (names.empty() ? "" : ", ") + std::string(arch.name);
  return names;
}

}  // namespace

std::span<const Arch> arch_table() { return kArchs; }

int arch_index(Capability capability) {
  int found = -1;
  for (int i = 0; i < static_cast<int>(std::size(kArchs)); ++i) {
    const Arch& arch = kArchs[i];
    if (arch.since.major == capability.major && arch.since.minor <= capability.minor) found = i;
  }
  if (found < 0) {
    throw std::invalid_argument("no kernels for compute capability " +
                                std::to_string(capability.major) + "." +
                                std::to_string(capability.minor) + "; supported: " + known_archs() +
                                " and devices that run their code");
  }
  return found;
}

Capability parse_arch(std::string_view text) {
  std::string_view digits = text.starts_with("sm_") ? text.substr(3) : text;
  if (!digits.empty() && (digits.back() == 'a' || digits.back() == 'f')) digits.remove_suffix(1);
  int number = 0;
  bool sound = digits.size() == 2 || digits.size() == 3;
  for (char c : digits) {
    sound = sound && c >= '0' && c <= '9';
    number = number * 10 + (c - '0');
  }
  const Capability capability{number / 10, number % 10};
  if (sound) {
    for (const Arch& arch : kArchs) {
      if (arch.since.major == capability.major && arch.since.minor <= capability.minor) {
        return capability;
      }
    }
  }
  throw std::invalid_argument("unknown arch '" + std::string(text) + "'; expected one of " +
                              known_archs() + " (a suffix a or f is accepted)");
}

}  // namespace kiln
