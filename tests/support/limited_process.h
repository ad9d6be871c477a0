// Work in a process of its own that may have hardly anything: no threads, few descriptors, little
// stack.
#pragma once

#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace kiln::testing {

// Whether `work` returns true in a child process.
inline bool holds_in_child(const std::function<bool()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    bool good = false;
    try {
      good = work();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    ::_exit(good ? 0 : 1);
  }
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// The process gets no further thread; false where that could not be brought about.
inline bool forbid_threads() {
  constexpr uid_t kOrdinaryUser = 12345;  // root may have any number of processes
  if (::geteuid() == 0 && ::setuid(kOrdinaryUser) != 0) return false;
  const struct rlimit limit = {0, 0};
  ::setrlimit(RLIMIT_NPROC, &limit);
  try {
    std::thread([] {}).join();
  } catch (const std::system_error&) {
    return true;
  }
  return false;
}

// Whether `work` returns true on a thread with a stack of this size.
inline bool holds_on_stack(std::size_t bytes, std::function<bool()> work) {
  struct Job {
    std::function<bool()> work;
    bool good = false;
  } job{std::move(work)};
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, bytes);
  pthread_t thread;
  const auto run = [](void* argument) -> void* {
    auto& mine = *static_cast<Job*>(argument);
    mine.good = mine.work();
    return nullptr;
  };
  if (::pthread_create(&thread, &attributes, run, &job) != 0) return false;
  ::pthread_join(thread, nullptr);
  return job.good;
}

// Takes every descriptor that the process may have, but for `left`.
inline void take_descriptors(int left) {
  const struct rlimit limit = {64, 64};
  ::setrlimit(RLIMIT_NOFILE, &limit);
  std::vector<int> taken;
  for (int fd = ::dup(2); fd >= 0; fd = ::dup(2)) taken.push_back(fd);
  for (int i = 0; i < left; ++i) {
    ::close(taken.back());
    taken.pop_back();
  }
}

}  // namespace kiln::testing
