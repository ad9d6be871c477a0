#include "runtime/emulator/machine/options.h"

#include <array>
#include <charconv>
#include <stdexcept>

namespace kiln::runtime::emulator {
namespace {

constexpr std::uint64_t kMostMultiprocessors = 1024;  // more than any product has

[[noreturn]] void refuse(std::string_view item) {
  throw std::invalid_argument(
      "the emulator's options are late, eager, seed=N, checks=on|off, workers=N, steps=N and "
      "multiprocessors=N, separated by commas; got '" +
      std::string(item) + "'");
}

std::uint64_t number(std::string_view item, std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) refuse(item);
  return value;
}

void apply(std::string_view item, Options& options) {
  const std::size_t equals = item.find('=');
  const std::string_view name = item.substr(0, equals);
  const std::string_view value =
      equals == std::string_view::npos ? std::string_view() : item.substr(equals + 1);
  if (item == "late" || item == "eager") {
    options.schedule = item == "late" ? Schedule::late : Schedule::eager;
  } else if (name == "seed") {
    options.seed = number(item, value);
  } else if (name == "checks" && (value == "on" || value == "off")) {
    options.checks = value == "on";
  } else if (name == "workers") {
    options.workers = static_cast<int>(std::min<std::uint64_t>(number(item, value), 1024));
  } else if (name == "steps") {
    options.step_limit = number(item, value);
  } else if (name == "multiprocessors") {
    const std::uint64_t count = number(item, value);
    if (count == 0 || count > kMostMultiprocessors) refuse(item);
    options.sm_count = static_cast<int>(count);
  } else {
    refuse(item);
  }
}

// CUDA C++ Programming Guide, "Technical specifications per compute capability"; multiprocessors as
// the usual product of that generation has them (A100, A10, L40S, H200, B200, RTX 5090).
DeviceLimits row(int major, int minor, int sms, int warps, int blocks, std::uint32_t shared_kib) {
  DeviceLimits limits;
  limits.major = major;
  limits.minor = minor;
  limits.suffix_a = major >= 9;
  limits.sm_count = sms;
  limits.warps_per_sm = warps;
  limits.blocks_per_sm = blocks;
  limits.shared_per_block = shared_kib * 1024;
  limits.shared_per_sm = (shared_kib + 1) * 1024;
  return limits;
}

const std::array kDevices = {
    row(8, 0, 108, 64, 32, 163), row(8, 6, 72, 48, 16, 99),    row(8, 9, 142, 48, 24, 99),
    row(9, 0, 132, 64, 32, 227), row(10, 0, 148, 64, 32, 227), row(12, 0, 170, 48, 24, 99),
};

}  // namespace

Options parse_options(std::string_view text, const Options& base) {
  Options options = base;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    apply(text.substr(0, comma), options);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  return options;
}

DeviceLimits device_limits(std::string_view arch, int sm_count) {
  std::string_view digits = arch.starts_with("sm_") ? arch.substr(3) : arch;
  const bool has_suffix = !digits.empty() && (digits.back() == 'a' || digits.back() == 'f');
  if (has_suffix) digits.remove_suffix(1);
  int wanted = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), wanted);
  if (error == std::errc() && end == digits.data() + digits.size()) {
    for (const DeviceLimits& device : kDevices) {
      if (device.major * 10 + device.minor != wanted || (has_suffix && device.major < 9)) continue;
      DeviceLimits limits = device;
      limits.name = "Kiln's emulated sm_" + std::to_string(wanted) + (limits.suffix_a ? "a" : "");
      if (sm_count != 0 && sm_count != limits.sm_count) {
        limits.sm_count = sm_count;
        limits.name += " of " + std::to_string(sm_count) + " multiprocessors";
      }
      return limits;
    }
  }
  std::string known;
  for (const DeviceLimits& device : kDevices) {
    known += (known.empty() ? "sm_" : ", sm_") + std::to_string(device.major * 10 + device.minor);
  }
  throw std::invalid_argument("the emulator does not model '" + std::string(arch) +
                              "'; it models " + known + " (with an a behind from sm_90 on)");
}

}  // namespace kiln::runtime::emulator
