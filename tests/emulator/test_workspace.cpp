// A plan whose launches need a workspace, on the emulated device: whatever lies in the workspace,
// and whichever block is the last to arrive, the output has the same bits.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kiln/control.h"
#include "kiln/kiln.h"
#include "tests/support/catch.h"

namespace kiln {
namespace {

constexpr std::size_t kGuard = 64;  // bytes on both sides of the workspace
constexpr std::byte kGuardByte{0xa5};

// bf16 multiples of 1/64 in [-1, 1].
std::vector<std::uint16_t> random_elements(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::uint16_t> elements(static_cast<std::size_t>(count));
  for (std::uint16_t& element : elements) {
    const float value = static_cast<float>(static_cast<int>(random() % 129) - 64) / 64;
    std::uint32_t bits;
    std::memcpy(&bits, &value, 4);
    element = static_cast<std::uint16_t>(bits >> 16);
  }
  return elements;
}

float value_of(std::uint16_t element) {
  const std::uint32_t bits = std::uint32_t{element} << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

// Restores this thread's choice.
struct Chosen {
  explicit Chosen(const std::string& choice) : previous(set_device(choice)) {}
  ~Chosen() { set_device(previous); }
  std::string previous;
};

// `len_q` queries of four heads over 1100 keys of two: several tiles, each in several splits.
struct SplitPlan {
  static constexpr std::int64_t kKeys = 1100, kDim = 64;
  std::int64_t len_q;
  std::vector<std::uint16_t> q, k, v, out;
  std::vector<std::byte> memory;

  explicit SplitPlan(std::int64_t queries)
      : len_q(queries),
        q(random_elements(queries * 4 * kDim, 1)),
        k(random_elements(kKeys * 2 * kDim, 2)),
        v(random_elements(kKeys * 2 * kDim, 3)),
        out(q.size()) {
    set_python_paths({KILN_TEST_SITE_PACKAGES});  // where pip put NVRTC
  }
  TensorView view(std::vector<std::uint16_t>& elements, std::int64_t rows, std::int64_t heads) {
    TensorView made = contiguous_view(elements.data(), DType::bf16, 0, 1, rows, heads, kDim);
    made.device_type = DeviceType::cpu;
    return made;
  }
  Plan plan() {
    return plan_flash_attention(view(q, len_q, 4), view(k, kKeys, 2), view(v, kKeys, 2),
                                view(out, len_q, 4), {});
  }
  void poison(const Plan& plan, std::byte byte) {
    memory.assign(plan.workspace_bytes() + 2 * kGuard, byte);
    std::fill_n(memory.begin(), kGuard, kGuardByte);
    std::fill_n(memory.end() - kGuard, kGuard, kGuardByte);
  }
  std::vector<std::uint16_t> launch(const Plan& plan) {
    std::fill(out.begin(), out.end(), std::uint16_t{0xffff});  // NaN: what is not written shows
    plan.launch({q.data(), k.data(), v.data(), out.data()}, nullptr, memory.data() + kGuard);
    return out;
  }
  bool guards_are_whole() const {
    bool whole = true;
    for (std::size_t i = 0; i < kGuard; ++i) {
      whole = whole && memory[i] == kGuardByte && memory[memory.size() - 1 - i] == kGuardByte;
    }
    return whole;
  }
  std::vector<std::uint16_t> unsplit() {
    flash_attention(view(q, len_q, 4), view(k, kKeys, 2), view(v, kKeys, 2), view(out, len_q, 4),
                    {});
    return out;
  }
};

void check(std::int64_t len_q) {
  const Chosen chosen("emulator:sm_90a");
  SplitPlan split(len_q);
  const std::vector<std::uint16_t> unsplit = split.unsplit();
  const Plan plan = split.plan();
  REQUIRE(plan.workspace_bytes() > 0);
  split.poison(plan, std::byte{0});
  const std::vector<std::uint16_t> first = split.launch(plan);
  for (std::size_t i = 0; i < first.size(); ++i) {
    REQUIRE(std::abs(value_of(first[i]) - value_of(unsplit[i])) <= 0.01f);
  }
  CHECK(split.launch(plan) == first);  // on what the first launch left
  for (int byte : {0x00, 0x7f, 0xff}) {
    for (const char* order : {"eager", "late,seed=1", "late,seed=12345"}) {
      const Chosen ordered(std::string("emulator:sm_90a,") + order);
      split.poison(plan, std::byte(byte));
      CHECK(split.launch(plan) == first);
      CHECK(split.guards_are_whole());
    }
  }
}

}  // namespace

TEST_CASE("a plan of decoding tiles takes its workspace as it is") { check(3); }
TEST_CASE("a plan of tiles of few queries takes its workspace as it is") { check(21); }

}  // namespace kiln
