#include "jit/compile/deep_stack.h"

#include <pthread.h>

#include <cstddef>
#include <cstdint>
#include <exception>

namespace kiln {
namespace {

constexpr std::size_t kEnoughBytes = std::size_t{1} << 20;  // small kernels take a tenth of it
constexpr std::size_t kDeepBytes = std::size_t{8} << 20;

// The bytes between here and the end of this thread's stack; as many as there can be where the
// system does not tell.
std::size_t stack_left() {
  pthread_attr_t attributes;
  if (::pthread_getattr_np(::pthread_self(), &attributes) != 0) return SIZE_MAX;
  void* end = nullptr;
  std::size_t bytes = 0;
  const bool known = ::pthread_attr_getstack(&attributes, &end, &bytes) == 0;
  ::pthread_attr_destroy(&attributes);
  const auto here = reinterpret_cast<std::uintptr_t>(&end);  // stacks grow downwards
  const auto limit = reinterpret_cast<std::uintptr_t>(end);
  return known && here > limit ? here - limit : SIZE_MAX;
}

struct Job {
  const std::function<void()>& work;
  std::exception_ptr failure;
};

void* run(void* argument) {
  auto& job = *static_cast<Job*>(argument);
  try {
    job.work();
  } catch (...) {
    job.failure = std::current_exception();
  }
  return nullptr;
}

}  // namespace

void on_deep_stack(const std::function<void()>& work) {
  if (stack_left() >= kEnoughBytes) return work();
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, kDeepBytes);
  Job job{work, nullptr};
  pthread_t thread;
  const bool started = ::pthread_create(&thread, &attributes, &run, &job) == 0;
  ::pthread_attr_destroy(&attributes);
  if (!started) return work();
  ::pthread_join(thread, nullptr);
  if (job.failure) std::rethrow_exception(job.failure);
}

}  // namespace kiln
