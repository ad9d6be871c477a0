// What a module may ask of the loader, and that Ctrl-C ends it.
#include <chrono>
#include <fstream>
#include <string>

#include "runtime/emulator/machine/emulated_device.h"
#include "tests/emulator/ptx_text.h"

namespace kiln::runtime::emulator {
namespace {

// Runs one thread of the only kernel of a module.
void load(const std::string& text) {
  const std::uint64_t parameter = 0;
  run({.ptx = text,
       .entry = {},
       .arch = {},
       .shape = {.grid = {1, 1, 1}, .block = {32, 1, 1}},
       .arguments = std::as_bytes(std::span(&parameter, 1)),
       .spans = {},
       .options = {}});
}

// The report of the error of loading `text`; empty where there is none.
std::string load_error(const std::string& text) {
  try {
    load(text);
  } catch (const EmulatorError& error) {
    return error.what();
  }
  return {};
}

bool load_fails(const std::string& text, const std::string& words) {
  const std::string error = load_error(text);
  INFO(error);
  CHECK(error.find(words) != std::string::npos);
  return error.find(words) != std::string::npos;
}

// Functions f0 to f<count>, each of which calls the next one `calls` times after `body`.
std::string chain(int count, int calls, const std::string& body = "") {
  std::string text;
  const auto name = [](int i) { return "f" + std::to_string(i); };
  for (int i = count; i >= 0; --i) {
    text += ".func " + name(i) + "()\n{\n" + body;
    for (int call = 0; call < calls && i < count; ++call) {
      text += "call.uni " + name(i + 1) + ";\n";
    }
    text += "ret;\n}\n";
  }
  return text;
}

std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t pages = 0;
  file >> pages >> pages;
  return pages * 4096;
}

double seconds_of_load_error(const std::string& text) {
  const auto begin = std::chrono::steady_clock::now();
  load_error(text);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

struct Interrupt {};
void interrupt() { throw Interrupt{}; }

}  // namespace

TEST_CASE("calls that multiply without end are refused", "[loader_limits]") {
  const std::string empty = kernel("call.uni f0;", chain(60, 2));
  CHECK(load_fails(empty, "this kernel has more than 65536 calls, which is the emulated device's"));
  CHECK(seconds_of_load_error(empty) < 20);
  CHECK(load_fails(kernel("call.uni f0;", chain(60, 2, std::string(99, ' ') + "bar.sync 0;\n")),
                   "more than 65536 calls"));
  std::string many;
  for (int i = 0; i < 1000; ++i) many += "mov.u32 _, 1;\n";
  CHECK(load_fails(kernel("call.uni f0;", chain(60, 2, many)), "more than 1048576 instructions"));
  std::string registers = ".reg .b32 r0";
  for (int i = 1; i < 5000; ++i) registers += ", r" + std::to_string(i);
  CHECK(load_fails(kernel("call.uni f0;", chain(60, 2, registers + ";\n")),
                   "more than 1048576 registers"));
  CHECK(load_error(kernel("call.uni f0;", chain(10, 2))).empty());
}

TEST_CASE("a chain of calls is followed to a depth", "[loader_limits]") {
  CHECK(load_error(kernel("call.uni f0;", chain(100, 1))).empty());
  for (int functions : {200, 100'000}) {
    CHECK(load_fails(kernel("call.uni f0;", chain(functions, 1)),
                     "more than 128 calls within each other"));
  }
}

TEST_CASE("a function has a limit of registers", "[loader_limits]") {
  std::string lines;
  for (int i = 0; i < 12; ++i) {
    lines += ".reg .b32 " + std::string(1, static_cast<char>('a' + i)) + "_<1000000>;\n";
  }
  CHECK(load_error(kernel(lines)).empty());  // registers that nobody uses cost nothing
  std::string named = ".reg .b32 r0";
  for (int i = 1; i < 1'000'001; ++i) named += ", r" + std::to_string(i);
  CHECK(load_fails(kernel(named + ";"), "the function 'k' has more than 1000000 registers"));

  std::string blocks = ".reg .b32 %r<200000>; .reg .pred p;\n";
  for (int i = 0; i < 100'000; ++i) {
    blocks += "mov.u32 %r" + std::to_string(i) + ", 1; @p bra E;\n";
  }
  CHECK(load_fails(kernel(blocks + "E:"),
                   "basic blocks and 100001 registers; the emulated device takes"));

  std::string live = ".reg .b32 %r<80000>;\n";
  for (int i = 0; i < 70'000; ++i) live += "mov.u32 %r" + std::to_string(i) + ", 1;\n";
  for (int i = 0; i < 70'000; ++i) live += "add.s32 %r0, %r0, %r" + std::to_string(i) + ";\n";
  CHECK(load_fails(kernel(live), "needs 70000 registers at once"));
}

TEST_CASE("the variables of a module have a limit together", "[loader_limits]") {
  const char* const words = "take more than 1 GiB, which is the emulated device's limit";
  const std::string half = "[536870912];\n";
  CHECK(load_fails(kernel("", ".global .b8 a" + half + ".const .b8 b" + half), words));
  std::string aligned;
  for (int i = 0; i < 1100; ++i) {
    aligned += ".global .align 1048576 .b8 v" + std::to_string(i) + ";\n";
  }
  CHECK(load_fails(kernel("", aligned), words));
  const std::size_t before = resident_bytes();
  CHECK(load_error(kernel("", ".global .b8 a" + half + ".global .b32 b = 7;\n")).empty());
  CHECK(resident_bytes() < before + (std::size_t{100} << 20));
}

TEST_CASE("loading looks for Ctrl-C", "[loader_limits]") {
  std::string lines = ".reg .b32 %r<3>;\n";
  for (int i = 0; i < 400'000; ++i) lines += "add.s32 %r1, %r1, 1;\n";
  const std::string text = kernel(lines);
  set_emulator_poll(&interrupt);
  CHECK_THROWS_AS(load(text), Interrupt);
  set_emulator_poll(nullptr);
}

}  // namespace kiln::runtime::emulator
