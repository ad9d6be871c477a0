#include "runtime/emulator/machine/faults.h"

#include <cstddef>

namespace kiln::runtime::emulator {
namespace {

constexpr std::string_view kNames[] = {
    "bad PTX",
    "unknown instruction",
    "bad launch",
    "out-of-bounds access",
    "misaligned access",
    "read of uninitialised shared memory",
    "race on shared memory",
    "missing proxy fence",
    "access to work in flight",
    "missing wait for a launch",
    "deadlock",
    "impossible register budget",
    "tensor map misuse",
    "barrier misuse",
    "divergence at an aligned instruction",
    "step limit reached",
    "trap",
};
static_assert(std::size(kNames) == static_cast<std::size_t>(Fault::trap) + 1);

std::string code_of(Fault fault) {
  std::string code = "EMULATOR_";
  for (char c : name(fault)) code += c == ' ' || c == '-' ? '_' : static_cast<char>(c & ~0x20);
  return code;
}

std::string report(Fault fault, const std::string& message, const Site& site) {
  std::string text(name(fault));
  text += ": " + message;
  if (!site.kernel.empty()) text += "\n  kernel " + site.kernel;
  if (site.block[0] >= 0) {
    text += ", block (" + std::to_string(site.block[0]) + ", " + std::to_string(site.block[1]) +
            ", " + std::to_string(site.block[2]) + ")";
  }
  if (site.warp >= 0) text += ", warp " + std::to_string(site.warp);
  if (site.lane >= 0) text += ", lane " + std::to_string(site.lane);
  if (site.ptx_line > 0) text += "\n  PTX line " + std::to_string(site.ptx_line);
  if (!site.instruction.empty()) text += ": " + site.instruction;
  if (!site.source.empty()) text += "\n  from " + site.source;
  return text;
}

}  // namespace

std::string_view name(Fault fault) { return kNames[static_cast<std::size_t>(fault)]; }

EmulatorError::EmulatorError(Fault fault, const std::string& message, Site site)
    : DeviceError("the emulated launch", code_of(fault), message),
      fault_(fault),
      site_(std::move(site)),
      report_(report(fault, message, site_)) {}

void raise_ptx(std::uint32_t line, const std::string& message) {
  Site site;
  site.ptx_line = line;
  throw EmulatorError(Fault::bad_ptx, message, site);
}

std::string hex(std::uint64_t value) {
  std::string digits;
  do {
    digits.insert(digits.begin(), "0123456789abcdef"[value & 15]);
    value >>= 4;
  } while (value != 0);
  return "0x" + digits;
}

}  // namespace kiln::runtime::emulator
