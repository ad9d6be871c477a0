#include "jit/compile/record_file.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <set>

#include "cache/file_io.h"
#include "jit/compile/settings.h"
#include "jit/op/log.h"

namespace kiln {
namespace {

struct Recorded {
  std::mutex mutex;
  std::set<cache::Key> keys;  // so that a call that is refused again and again has one line
  bool has_failed = false;
};

// Never destroyed: threads may miss kernels while the process exits.
Recorded& recorded() {
  static Recorded* const instance = [] {
    // A child of fork would wait for ever for a lock that another thread held.
    pthread_atfork([] { recorded().mutex.lock(); }, [] { recorded().mutex.unlock(); },
                   [] { recorded().mutex.unlock(); });
    return new Recorded;
  }();
  return *instance;
}
// Made when the library is loaded: a handler that is added while a fork is under way is not run.
[[maybe_unused]] const auto& g_recorded = recorded();

// One write at the file's end, so that lines of several processes do not mix. Opened for each line:
// the file may be moved away, and a descriptor that stays open would be a forked child's too.
// O_NONBLOCK, as opening a named pipe would wait for its reader.
std::string append(const std::string& line) {
  const cache::UniqueFd file(::open(settings().record.c_str(),
                                    O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666));
  if (!file) return cache::errno_text(errno);
  const ssize_t written = ::write(file.get(), line.data(), line.size());
  if (written < 0) return cache::errno_text(errno);
  return static_cast<std::size_t>(written) == line.size() ? "" : cache::errno_text(ENOSPC);
}

}  // namespace

bool records_misses() { return !settings().record.empty(); }

void record_miss(const cache::Key& key, const std::string& spec) {
  std::string failed;
  {
    const std::lock_guard lock(recorded().mutex);
    if (recorded().has_failed || !recorded().keys.insert(key).second) return;
    failed = append(spec + '\n');
    recorded().has_failed = !failed.empty();
  }
  if (failed.empty()) return;
  log(LogLevel::warning, "KILN_RECORD: cannot append to " + settings().record.string() + ": " +
                             failed + "; no further miss is recorded. Name a file that this user " +
                             "can write, or unset KILN_RECORD.");
}

}  // namespace kiln
