// The process's settings: the only place that reads the environment, once. Listed in docs/env.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "jit/op/device_choice.h"
#include "kiln/control.h"

namespace kiln {

struct Settings {
  std::filesystem::path cache_dir;  // empty = no writable layer
  bool cache_dir_is_chosen = false;
  std::filesystem::path home;  // the environment's, or empty
  std::vector<std::filesystem::path> cache_path;
  std::uint64_t cache_max_bytes = 0;  // 0 = unlimited
  JitMode jit = JitMode::automatic;
  DeviceChoice device;
  std::string template_dir;  // empty = the embedded templates
  std::string nvrtc;         // empty = search
  std::string cuda_home;
  std::string tuning;            // the file of a measured table; empty = none
  std::filesystem::path record;  // absolute; the file that gets the specs of misses; empty = none
  int log_level = 1;
};

// Parsed at the first call. Throws std::invalid_argument naming the variable when a value is bad.
const Settings& settings();

std::uint64_t parse_bytes(const std::string& text);  // "512M", "2G", "1000000"

}  // namespace kiln
