#include "jit/op/log.h"

#include <pthread.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>

#include "jit/compile/settings.h"

namespace kiln {
namespace {
using Sink = std::function<void(int, const std::string&)>;

struct Output {
  std::mutex mutex;  // of the pointer alone: a sink may wait for a lock whose owner calls us
  std::shared_ptr<const Sink> sink;
};

// Never destroyed: threads may log while the process exits.
Output& output() {
  static Output* const output = [] {
    // A child of fork would wait for ever for a lock that another thread held.
    pthread_atfork([] { kiln::output().mutex.lock(); }, [] { kiln::output().mutex.unlock(); },
                   [] { kiln::output().mutex.unlock(); });
    return new Output;
  }();
  return *output;
}
// Made when the library is loaded: a handler that is added while a fork is under way is not run.
[[maybe_unused]] const auto& g_output = output();

}  // namespace

bool log_enabled(LogLevel level) { return static_cast<int>(level) <= settings().log_level; }

void log(LogLevel level, const std::string& text) {
  if (!log_enabled(level)) return;
  std::shared_ptr<const Sink> sink;
  {
    std::lock_guard lock(output().mutex);
    sink = output().sink;
  }
  try {
    if (sink) return (*sink)(static_cast<int>(level), text);
  } catch (...) {
    // A line that cannot be delivered must not fail what it is about, such as a compile.
  }
  std::fprintf(stderr, "kiln: %s\n", text.c_str());
}

void set_log_sink(std::function<void(int, const std::string&)> sink) {
  auto next = sink ? std::make_shared<const Sink>(std::move(sink)) : nullptr;
  std::lock_guard lock(output().mutex);
  output().sink.swap(next);  // the old one goes after the lock: what it holds may take locks to die
}

}  // namespace kiln
