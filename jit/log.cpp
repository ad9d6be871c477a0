#include "jit/log.h"

#include <cstdio>
#include <mutex>

#include "jit/settings.h"

namespace kiln {
namespace {
std::mutex g_mutex;
std::function<void(int, const std::string&)> g_sink;
}  // namespace

bool log_enabled(LogLevel level) { return static_cast<int>(level) <= settings().log_level; }

void log(LogLevel level, const std::string& text) {
  if (!log_enabled(level)) return;
  std::lock_guard lock(g_mutex);
  if (g_sink) {
    g_sink(static_cast<int>(level), text);
  } else {
    std::fprintf(stderr, "kiln: %s\n", text.c_str());
  }
}

void set_log_sink(std::function<void(int, const std::string&)> sink) {
  std::lock_guard lock(g_mutex);
  g_sink = std::move(sink);
}

}  // namespace kiln
