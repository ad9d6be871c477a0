#include "jit/compile/compile_events.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "jit/compile/record_file.h"
#include "jit/op/kernels.h"
#include "jit/op/log.h"
#include "kiln/control.h"
#include "kiln/error.h"

namespace kiln {
namespace {

using Listener = std::function<void(const CompileEvent&)>;

struct Listeners {
  std::mutex mutex;  // of the list alone: a listener runs without it
  std::vector<std::pair<std::uint64_t, std::shared_ptr<const Listener>>> all;
  std::uint64_t last = 0;
  std::atomic<bool> any{false};
};

// Never destroyed: threads may compile while the process exits.
Listeners& listeners() {
  static Listeners* const instance = [] {
    // A child of fork would wait for ever for a lock that another thread held.
    pthread_atfork([] { listeners().mutex.lock(); }, [] { listeners().mutex.unlock(); },
                   [] { listeners().mutex.unlock(); });
    return new Listeners;
  }();
  return *instance;
}
// Made when the library is loaded: a handler that is added while a fork is under way is not run.
[[maybe_unused]] const auto& g_listeners = listeners();

thread_local std::vector<NotedCompile> t_noted;

void note(const Specialization& spec, const UserTexts& texts, const KernelSource& source,
          const char* outcome, const std::string& why, double seconds, bool is_miss) {
  const bool is_recorded = is_miss && records_misses();
  if (!is_recorded && !listeners().any.load(std::memory_order_relaxed)) return;
  t_noted.push_back({.event = {.what = source.what,
                               .spec = spec_text(spec, texts),
                               .key = source.key.hex(),
                               .arch = source.arch,
                               .outcome = outcome,
                               .why = why,
                               .seconds = seconds},
                     .key = source.key,
                     .is_recorded = is_recorded});
}

void tell_listeners(const CompileEvent& event) {
  std::vector<std::shared_ptr<const Listener>> called;
  {
    const std::lock_guard lock(listeners().mutex);
    for (const auto& [number, listener] : listeners().all) called.push_back(listener);
  }
  for (const auto& listener : called) {
    try {
      (*listener)(event);
    } catch (const std::exception& error) {
      log(LogLevel::warning,
          std::string("a listener of on_compile failed, which changes nothing else: ") +
              error.what());
    } catch (...) {
      log(LogLevel::warning,
          "a listener of on_compile threw something that is not an exception, which changes "
          "nothing else");
    }
  }
}

}  // namespace

cache::Entry compile_and_note(const Specialization& spec, const UserTexts& texts,
                              const KernelSource& source, const std::string& why, Asker asker) {
  try {
    cache::Entry entry = compile_entry(source, why);
    const double seconds = entry.description.value("compile_seconds", 0.0);
    note(spec, texts, source, "compiled", why, seconds, asker == Asker::call);
    return entry;
  } catch (const CompileError&) {
    // It is not recorded: prewarming its spec would fail as well.
    note(spec, texts, source, "failed", why, 0, /*is_miss=*/false);
    throw;
  }
}

void note_refusal(const Specialization& spec, const UserTexts& texts, const KernelSource& source,
                  const std::string& why) {
  note(spec, texts, source, "refused", why, 0, /*is_miss=*/true);
}

std::vector<NotedCompile> take_noted() { return std::exchange(t_noted, {}); }

void note_as_own(std::vector<NotedCompile> noted) {
  for (NotedCompile& one : noted) t_noted.push_back(std::move(one));
}

CompileEventScope::~CompileEventScope() {
  if (t_noted.empty()) return;
  // Taken first: a listener that calls Kiln opens a scope of its own.
  const std::vector<NotedCompile> noted = take_noted();
  try {
    for (const NotedCompile& one : noted) {
      if (one.is_recorded) record_miss(one.key, one.event.spec);
      tell_listeners(one.event);
    }
  } catch (...) {  // out of memory: the call that this is about goes on
  }
}

std::uint64_t add_compile_listener(std::function<void(const CompileEvent&)> listener) {
  auto held = std::make_shared<const Listener>(std::move(listener));
  const std::lock_guard lock(listeners().mutex);
  listeners().all.emplace_back(++listeners().last, std::move(held));
  listeners().any = true;
  return listeners().last;
}

bool remove_compile_listener(std::uint64_t number) {
  std::shared_ptr<const Listener> removed;  // goes after the lock: what it holds may take locks
  const std::lock_guard lock(listeners().mutex);
  auto& all = listeners().all;
  const auto at =
      std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.first == number; });
  if (at == all.end()) return false;
  removed = std::move(at->second);
  all.erase(at);
  listeners().any = !all.empty();
  return true;
}

}  // namespace kiln
