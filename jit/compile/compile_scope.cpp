#include "jit/compile/compile_scope.h"

#include <pthread.h>

#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <new>

#include "kiln/error.h"

namespace kiln {
namespace {

struct UnderWay {
  std::mutex mutex;
  std::condition_variable ended;
  int compiles = 0;
  bool is_exiting = false;
  bool was_forked_within = false;  // in a child: its NVRTC is half way through another's compile
};

// The count is this thread's: a signal handler may call exit() in the middle of a compile.
thread_local int t_compiles = 0;

UnderWay& under_way();

void before_fork() { under_way().mutex.lock(); }
void after_fork_in_parent() { under_way().mutex.unlock(); }
void after_fork_in_child() {
  UnderWay& all = under_way();
  if (all.compiles != 0) all.was_forked_within = true;
  all.compiles = 0;
  new (&all.ended) std::condition_variable;  // the old one may have waiters that are not here
  all.mutex.unlock();
}

// Never destroyed: threads may compile while the process exits.
UnderWay& under_way() {
  static UnderWay* const all = [] {
    pthread_atfork(&before_fork, &after_fork_in_parent, &after_fork_in_child);
    return new UnderWay;
  }();
  return *all;
}
// Made when the library is loaded: a handler that is added while a fork is under way is not run.
[[maybe_unused]] const auto& g_under_way = under_way();

}  // namespace

void end_compiles() {
  UnderWay& all = under_way();
  std::unique_lock lock(all.mutex);
  all.is_exiting = true;
  all.ended.wait(lock, [&] { return all.compiles == t_compiles; });
}

CompileScope::CompileScope() {
  UnderWay& all = under_way();
  const std::lock_guard lock(all.mutex);
  if (all.was_forked_within) {
    throw CompileError(
        "this process was forked while another thread compiled, so that NVRTC cannot be used in "
        "it; start worker processes with the method spawn or forkserver, fork before the first "
        "compile, or prewarm the cache",
        "");
  }
  if (all.is_exiting) {
    throw CompileError("the process is exiting, so no further kernel is compiled", "");
  }
  ++all.compiles;
  ++t_compiles;
}

CompileScope::~CompileScope() {
  // Handlers of exit run in reverse order, and NVRTC registers destructors until its first compile
  // has ended. An older handler would wait for a compile under which they have run.
  [[maybe_unused]] static const int registered = std::atexit(&end_compiles);
  UnderWay& all = under_way();
  const std::lock_guard lock(all.mutex);
  --t_compiles;
  --all.compiles;
  all.ended.notify_all();
}

}  // namespace kiln
