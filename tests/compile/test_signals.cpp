// Signals that arrive while NVRTC compiles belong to the application.
#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <random>
#include <string>
#include <thread>

#include "jit/compile/compiler.h"
#include "jit/compile/signal_slots.h"
#include "tests/support/catch.h"

namespace kiln {
namespace {

using namespace std::chrono_literals;

std::atomic<int> g_received{0};
void count_signal(int) { g_received.fetch_add(1, std::memory_order_relaxed); }
void ignore_signal(int) {}

// The handlers of SIGINT and SIGTERM; puts back what was there before.
class Handlers {
 public:
  explicit Handlers(sighandler_t handler) {
    for (std::size_t i = 0; i < kNumbers.size(); ++i) before_[i] = signal(kNumbers[i], handler);
  }
  ~Handlers() {
    for (std::size_t i = 0; i < kNumbers.size(); ++i) signal(kNumbers[i], before_[i]);
  }
  static sighandler_t current(int number) {
    struct sigaction action{};
    sigaction(number, nullptr, &action);
    return action.sa_handler;
  }
  static constexpr std::array kNumbers{SIGINT, SIGTERM};

 private:
  std::array<sighandler_t, kNumbers.size()> before_{};
};

void compile_number(int number) {
  set_nvrtc_search({.python_paths = {KILN_TEST_SITE_PACKAGES}});
  const std::string source =
      "extern \"C\" __global__ void f(int* p) { *p = " + std::to_string(number) + "; }\n";
  compile(
      {.name = "/kiln/kernel.cu", .source = source, .headers = {}, .arch = "sm_80", .entry = "f"});
}

// Compiles until it is destroyed.
class CompilingThread {
 public:
  ~CompilingThread() {
    stop_ = true;
    thread_.join();
  }
  int compiled() const { return compiled_; }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<int> compiled_{0};
  std::thread thread_{[this] {
    while (!stop_) compile_number(compiled_++);
  }};
};

TEST_CASE("200 signals at random moments of compiles reach the application's handler") {
  const Handlers handlers(&count_signal);
  g_received = 0;
  compile_number(-1);  // opens NVRTC
  const CompilingThread compiling;
  std::minstd_rand random(7);
  for (int sent = 1; sent <= 200; ++sent) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 10000));
    REQUIRE(kill(getpid(), Handlers::kNumbers[sent % 2]) == 0);
    for (int waited = 0; g_received < sent && waited < 2000; ++waited) {
      std::this_thread::sleep_for(1ms);
    }
    REQUIRE(g_received == sent);
  }
  CHECK(compiling.compiled() > 5);
}

TEST_CASE("A handler that is installed while NVRTC compiles stays installed") {
  const Handlers handlers(&ignore_signal);
  {
    const CompilingThread compiling;
    for (int round = 0; round < 50; ++round) {
      std::this_thread::sleep_for(1ms);
      const Handlers inner(round % 2 == 0 ? &count_signal : &ignore_signal);
      std::this_thread::sleep_for(3ms);
      for (const int number : Handlers::kNumbers) {
        REQUIRE(Handlers::current(number) == (round % 2 == 0 ? &count_signal : &ignore_signal));
      }
    }
  }
  for (const int number : Handlers::kNumbers) {
    CHECK(Handlers::current(number) == &ignore_signal);
  }
}

TEST_CASE("A signal without a handler ends a process that compiles, by that signal") {
  std::minstd_rand random(11);
  for (int round = 0; round < 20; ++round) {
    const int number = Handlers::kNumbers[round % 2];
    int ready[2];
    REQUIRE(pipe(ready) == 0);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      for (const int each : Handlers::kNumbers) signal(each, SIG_DFL);
      compile_number(-1);
      const CompilingThread compiling;
      if (write(ready[1], "r", 1) != 1) _exit(1);
      for (;;) pause();
    }
    char byte;
    REQUIRE(read(ready[0], &byte, 1) == 1);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
    REQUIRE(kill(child, number) == 0);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CAPTURE(round, status);
    REQUIRE(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == number);
    close(ready[0]);
    close(ready[1]);
  }
}

TEST_CASE("A library's calls of signal() and sigaction() can be taken from it") {
  const std::string kind = GENERATE("writable", "read_only");
  CAPTURE(kind);
  const std::string path = std::string(KILN_TEST_HELPERS) + "/libhelper_signals_" + kind + ".so";
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  const auto take_over = reinterpret_cast<void (*)(int)>(dlsym(library, "helper_take_over"));
  REQUIRE(take_over != nullptr);
  const Handlers handlers(&ignore_signal);
  take_over(SIGTERM);
  CHECK(Handlers::current(SIGTERM) != &ignore_signal);
  signal(SIGTERM, &ignore_signal);
  REQUIRE(detach_signal_handlers(library));
  take_over(SIGTERM);
  CHECK(Handlers::current(SIGTERM) == &ignore_signal);
}

TEST_CASE("A library that calls neither has nothing to take") {
  void* const library = dlopen("libz.so.1", RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  CHECK_FALSE(detach_signal_handlers(library));
}

}  // namespace
}  // namespace kiln
