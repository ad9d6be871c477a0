#include "jit/op/arch.h"

#include <stdexcept>
#include <string>

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

// The devices that exist among those that run a row's code.
constexpr int kNumbers[] = {80, 86, 87, 88, 89, 90, 100, 101, 103, 120, 121};

std::string known_archs() {
  std::string names;
  for (const Arch& arch : kArchs) names += (names.empty() ? "" : ", ") + std::string(arch.name);
  return names;
}

[[noreturn]] void refuse_capability(Capability capability) {
  throw std::invalid_argument(
      "no kernels for compute capability " + std::to_string(capability.major) + "." +
      std::to_string(capability.minor) + "; supported: " + known_archs() +
      " and devices that run their code; choose such a GPU "
      "(CUDA_VISIBLE_DEVICES) or the emulated device (KILN_DEVICE=emulator)");
}

}  // namespace

std::span<const Arch> arch_table() { return kArchs; }

bool may_overlap(int arch) { return kArchs[arch].number >= 90; }

int arch_index(Capability capability) {
  int found = -1;
  for (int i = 0; i < static_cast<int>(std::size(kArchs)); ++i) {
    const Arch& arch = kArchs[i];
    if (arch.since.major == capability.major && arch.since.minor <= capability.minor) found = i;
  }
  if (found < 0) refuse_capability(capability);
  return found;
}

Capability parse_arch(std::string_view text) {
  std::string_view digits = text.starts_with("sm_") ? text.substr(3) : text;
  char suffix = 0;
  if (!digits.empty() && (digits.back() == 'a' || digits.back() == 'f')) {
    suffix = digits.back();
    digits.remove_suffix(1);
  }
  const int since = suffix == 'f' ? 100 : suffix == 'a' ? 90 : 0;
  for (const int number : kNumbers) {
    if (digits == std::to_string(number) && number >= since) return {number / 10, number % 10};
  }
  std::string known;
  for (const int number : kNumbers)
    known += (known.empty() ? "sm_" : ", sm_") + std::to_string(number);
  throw std::invalid_argument("unknown arch '" + std::string(text) + "'; expected one of " + known +
                              ", from sm_90 on also with the suffix a, from sm_100 on with f");
}

}  // namespace kiln
