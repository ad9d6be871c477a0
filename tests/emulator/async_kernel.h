// Small kernels of hand-written PTX for the tests of asynchronous units.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/device.h"
#include "runtime/emulator/machine/options.h"
#include "tests/support/catch.h"

namespace kiln::testing {

// The body sees %t (thread), %rank (of the block in its cluster), %s (shared address of `memory`,
// an array of `shared` bytes), %bar (of 8 mbarriers), %in and %out (global addresses of `input` and
// `output`), %map (the generic address of `map`), and free registers %r0.., %d0.., %f0.., %p0...
struct AsyncKernel {
  std::string body;
  unsigned threads = 32, blocks = 1, cluster = 1;
  unsigned shared = 16384;
  std::string directives = "";
  std::string before = "";  // of module scope: variables, functions, other kernels
  std::vector<std::uint32_t> input = std::vector<std::uint32_t>(4096);
  std::vector<std::uint32_t> output = std::vector<std::uint32_t>(4096);
  runtime::TensorMap map{};
  runtime::emulator::Options options{};

  AsyncKernel();
  // 16 KiB of input, input[i] = i * 3 + 7; the output full of kUntouched.
  static constexpr std::uint32_t kUntouched = 0xa5a5a5a5u;

  std::string ptx() const;
  void run();
  // The report of the fault that it ends with; empty when it does not.
  std::string fault();
};

// Whether `text` holds `part`; checks it, and shows the text where it does not.
inline bool has(const std::string& text, const std::string& part) {
  const bool found = text.find(part) != std::string::npos;
  INFO(text);
  CHECK(found);
  return found;
}

inline void replace(std::string& text, const std::string& what, const std::string& with) {
  const auto at = text.find(what);
  REQUIRE(at != std::string::npos);
  text.replace(at, what.size(), with);
}

// Pieces of bodies. `kInitOne`: thread 0 (%p0) initialises barrier 0 for one arrival. `kWaitOne`:
// everyone waits for its phase 0. `kWaitRead`: for the sources of all bulk groups. `kDump`: copies
// the shared words 0 ... %r20 - 1 to the output.
extern const std::string kInitOne, kWaitOne, kWaitRead, kDump;
// Fills `count` shared words with index + 1, fences them for asynchronous units; %p0 is thread 0.
std::string fill(int count);

}  // namespace kiln::testing
