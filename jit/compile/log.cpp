#include "jit/op/log.h"

#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>

#include "jit/compile/settings.h"

namespace kiln {
namespace {
using Sink = std::function<void(int, const std::string&)>;

std::mutex g_mutex;  // of the pointer alone: a sink may wait for a lock whose owner calls us
std::shared_ptr<const Sink> g_sink;
}  // namespace

bool log_enabled(LogLevel level) { return static_cast<int>(level) <= settings().log_level; }

void log(LogLevel level, const std::string& text) {
  if (!log_enabled(level)) return;
  std::shared_ptr<const Sink> sink;
  {
    std::lock_guard lock(g_mutex);
    sink = g_sink;
  }
  if (sink) {
    (*sink)(static_cast<int>(level), text);
  } else {
    std::fprintf(stderr, "kiln: %s\n", text.c_str());
  }
}

void set_log_sink(std::function<void(int, const std::string&)> sink) {
  auto next = sink ? std::make_shared<const Sink>(std::move(sink)) : nullptr;
  std::lock_guard lock(g_mutex);
  g_sink.swap(next);  // the old one goes after the lock: what it holds may take locks to die
}

}  // namespace kiln
