#include "jit/compile/settings.h"

#include <pwd.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <stdexcept>

#include "jit/op/process.h"

namespace kiln {
namespace {

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? std::optional<std::string>(value) : std::nullopt;
}

std::filesystem::path default_cache_dir() {
  if (auto xdg = variable("XDG_CACHE_HOME"); xdg && !xdg->empty()) {
    return std::filesystem::path(*xdg) / "kiln";
  }
  if (auto home = variable("HOME"); home && !home->empty()) {
    return std::filesystem::path(*home) / ".cache" / "kiln";
  }
  if (const passwd* user = getpwuid(getuid()); user && user->pw_dir) {
    return std::filesystem::path(user->pw_dir) / ".cache" / "kiln";
  }
  return {};
}

std::vector<std::filesystem::path> split_paths(const std::string& text) {
  std::vector<std::filesystem::path> paths;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    std::size_t end = text.find(':', begin);
    if (end == std::string::npos) end = text.size();
    if (end > begin) paths.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return paths;
}

int parse_log_level(const std::string& name) {
  const char* const names[] = {"error", "warning", "info", "debug"};
  for (int level = 0; level < 4; ++level) {
    if (name == names[level]) return level;
  }
  throw std::invalid_argument("KILN_LOG must be error, warning, info or debug, got '" + name + "'");
}

Settings read_environment() {
  Settings s;
  s.home = variable("HOME").value_or("");
  if (auto dir = variable("KILN_CACHE_DIR")) {
    s.cache_dir = *dir;
    s.cache_dir_is_chosen = true;
  } else {
    s.cache_dir = default_cache_dir();
  }
  if (auto path = variable("KILN_CACHE_PATH")) s.cache_path = split_paths(*path);
  if (auto size = variable("KILN_CACHE_MAX_SIZE"); size && !size->empty()) {
    try {
      s.cache_max_bytes = parse_bytes(*size);
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(std::string("KILN_CACHE_MAX_SIZE: ") + error.what());
    }
  }
  if (auto mode = variable("KILN_JIT"); mode && !mode->empty()) {
    try {
      s.jit = parse_jit_mode(*mode);
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(std::string("KILN_JIT: ") + error.what());
    }
  }
  if (auto device = variable("KILN_DEVICE")) {
    try {
      s.device = parse_device_choice(*device);
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(std::string("KILN_DEVICE: ") + error.what());
    }
  }
  s.template_dir = variable("KILN_TEMPLATE_DIR").value_or("");
  s.nvrtc = variable("KILN_NVRTC").value_or("");
  s.cuda_home = variable("CUDA_HOME").value_or("");
  if (s.cuda_home.empty()) s.cuda_home = variable("CUDA_PATH").value_or("");
  s.tuning = variable("KILN_TUNING").value_or("");
  if (auto record = variable("KILN_RECORD"); record && !record->empty()) {
    std::error_code error;  // the process may change its working directory later
    s.record = std::filesystem::absolute(*record, error);
  }
  if (auto level = variable("KILN_LOG"); level && !level->empty()) {
    s.log_level = parse_log_level(*level);
  }
  return s;
}

}  // namespace

const Settings& settings() {
  // Never destroyed: threads may ask while the process exits.
  static const Settings& instance = *new Settings(read_environment());
  return instance;
}

const DeviceChoice& process_device() { return settings().device; }
const std::string& process_tuning() { return settings().tuning; }

std::uint64_t parse_bytes(const std::string& text) {
  std::size_t digits = 0;
  std::uint64_t value = 0;
  while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9' && digits < 18) {
    value = value * 10 + static_cast<std::uint64_t>(text[digits++] - '0');
  }
  const std::string unit = text.substr(digits);
  int shift = -1;
  if (unit.empty() || unit == "B") shift = 0;
  if (unit == "K" || unit == "KB" || unit == "KiB") shift = 10;
  if (unit == "M" || unit == "MB" || unit == "MiB") shift = 20;
  if (unit == "G" || unit == "GB" || unit == "GiB") shift = 30;
  if (digits == 0 || shift < 0 || value > (UINT64_MAX >> shift)) {
    throw std::invalid_argument(
        "a size must be a whole number with an optional K, M or G, below 2^64 bytes, got '" + text +
        "'");
  }
  return value << shift;
}

JitMode parse_jit_mode(const std::string& name) {
  if (name == "auto") return JitMode::automatic;
  if (name == "warn") return JitMode::warn;
  if (name == "off") return JitMode::off;
  throw std::invalid_argument("the jit mode must be auto, warn or off, got '" + name + "'");
}

}  // namespace kiln
