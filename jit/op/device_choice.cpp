#include "jit/op/device_choice.h"

#include <charconv>
#include <optional>
#include <stdexcept>

#include "jit/op/process.h"
#include "kiln/control.h"
#include "kiln/error.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/emulator/machine/emulated_device.h"

namespace kiln {
namespace {

constexpr std::string_view kCuda = "cuda", kEmulator = "emulator";

thread_local std::optional<DeviceChoice> t_choice;

[[noreturn]] void refuse(std::string_view text) {
  throw std::invalid_argument(
      "the device must be auto, cuda, cuda:N, emulator or emulator:ARCH with options behind it "
      "(emulator:sm_90a,late,seed=3,checks=off), got '" +
      std::string(text) + "'");
}

int parse_ordinal(std::string_view digits, std::string_view text) {
  int ordinal = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), ordinal);
  const bool whole = error == std::errc() && end == digits.data() + digits.size();
  if (!whole || ordinal < 0 || is_emulated(ordinal)) refuse(text);
  return ordinal;
}

// "sm_90a,late,seed=3": the arch, when it is there, stands first.
void parse_emulator(std::string_view rest, DeviceChoice& choice) {
  const std::string_view first = rest.substr(0, rest.find(','));
  if (first.starts_with("sm_") || (!first.empty() && first[0] >= '0' && first[0] <= '9')) {
    runtime::emulator::device_limits(first);  // throws for what is not modelled
    choice.arch = first;
    rest.remove_prefix(std::min(rest.size(), first.size() + 1));
  }
  choice.options = runtime::emulator::parse_options(rest);
}

}  // namespace

DeviceChoice parse_device_choice(std::string_view text) {
  DeviceChoice choice;
  if (text.empty() || text == "auto") return choice;
  choice.text = text;
  const std::string_view kind = text.substr(0, text.find_first_of(":,"));
  const std::string_view rest = text.substr(std::min(text.size(), kind.size() + 1));
  if (kind == kEmulator) {
    choice.kind = DeviceChoice::Kind::emulator;
    parse_emulator(rest, choice);
  } else if (kind == kCuda && !text.ends_with(':')) {
    choice.kind = DeviceChoice::Kind::cuda;
    if (text != kCuda) choice.cuda_ordinal = parse_ordinal(rest, text);
  } else {
    refuse(text);
  }
  return choice;
}

const DeviceChoice& device_choice() { return t_choice ? *t_choice : process_device(); }

std::string set_device(const std::string& choice) {
  DeviceChoice parsed = parse_device_choice(choice);
  std::string previous = device_choice().text;
  t_choice = std::move(parsed);
  return previous;
}

std::string device() { return device_choice().text; }

bool emulates_host_tensors() {
  const DeviceChoice& choice = device_choice();
  if (choice.kind != DeviceChoice::Kind::automatic) {
    return choice.kind == DeviceChoice::Kind::emulator;
  }
  const runtime::CudaStatus& driver = runtime::cuda_status();
  if (!driver.driver_found) return true;
  if (driver.problem.empty()) return false;
  throw CudaError(driver.problem +
                  "; to run on the emulated device nevertheless, choose it with "
                  "KILN_DEVICE=emulator or kiln.device(\"emulator\")");
}

int host_tensor_ordinal() {
  const DeviceChoice& choice = device_choice();
  if (choice.kind == DeviceChoice::Kind::cuda) return choice.cuda_ordinal;
  return std::max(runtime::cuda_current_ordinal(), 0);
}

runtime::Device& chosen_emulator() {
  const DeviceChoice& choice = device_choice();
  return runtime::emulated_device(choice.arch, choice.options.sm_count);
}

}  // namespace kiln
