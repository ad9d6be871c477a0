#include "jit/compile/yields.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "runtime/cuda/kernel_image.h"

namespace kiln {
namespace {

// NVIDIA documents no encodings. These are what nvdisasm prints; the bits that steer the issue of
// an instruction are as Jia et al. found them on Volta ("Dissecting the NVIDIA Volta GPU
// Architecture via Microbenchmarking", 2018, section 2.1). An instruction has 16 bytes, and all
// that is about its issue is in the upper 8.
struct Instruction {
  std::uint64_t low, high;

  // This leaves out the bits that tell what the operands are: registers, constants or numbers.
  unsigned operation() const { return unsigned(low & 0x1ff); }
  // Cycles until the warp's next instruction may follow.
  unsigned stall() const { return unsigned(high >> 41 & 15); }
  bool yields() const { return (high & kStays) == 0; }

  // An operand that was kept for the next instruction is lost when another warp comes in between.
  void yield() { high &= ~(kStays | kReuse); }
  void stay() { high |= kStays; }

  static constexpr std::uint64_t kStays = 1ull << 45, kReuse = 15ull << 58;
};

// Behind longer stalls ptxas lets every warp yield. A stall of 12 and more is an illegal
// instruction without.
constexpr unsigned kLongestStall = 2;

// This is raised when set_yields() makes something else of the same rules.
constexpr const char* kVersion = "version 1\n";

constexpr const char* kUnknownForm =
    "this NVRTC writes cubins in a form that Kiln does not know, so that kernels may be slower "
    "than they need to be: report this, or set KILN_NVRTC to another version and refill the cache "
    "with kiln prewarm --recompile";

constexpr const char* kKindNames[] = {"multiply_add", "multiply", "add", "uniform"};

std::optional<YieldKind> kind_of(const Instruction& instruction) {
  switch (instruction.operation()) {
    case 0x23:  // FFMA
      return YieldKind::multiply_add;
    case 0x20:  // FMUL
      return YieldKind::multiply;
    case 0x21:  // FADD
      return YieldKind::add;
    case 0x82:  // UMOV
    case 0x87:  // USEL
    case 0x8c:  // UISETP
    case 0x90:  // UIADD3
    case 0x91:  // ULEA
    case 0x92:  // ULOP3
    case 0x99:  // USHF
      return YieldKind::uniform;
    default:
      return std::nullopt;
  }
}

void apply(const YieldRule& rule, std::span<Instruction> run) {
  const auto may_change = [](const Instruction& i) { return i.stall() <= kLongestStall; };
  if (rule.keeps_choice &&
      std::ranges::any_of(run, [&](const Instruction& i) { return may_change(i) && i.yields(); })) {
    return;
  }
  for (std::size_t i = 0; i < run.size(); ++i) {
    if (!may_change(run[i])) continue;
    const bool yields = (i + 1) % std::size_t(rule.every) == 0;
    if (yields) {
      run[i].yield();
    } else {
      run[i].stay();
    }
  }
}

void apply_to_runs(const YieldRule& rule, std::span<Instruction> code) {
  const auto is_of_kind = [&](const Instruction& i) { return kind_of(i) == rule.kind; };
  for (auto at = code.begin(); at != code.end();) {
    const auto begin = std::find_if(at, code.end(), is_of_kind);
    at = std::find_if_not(begin, code.end(), is_of_kind);
    apply(rule, {begin, at});
  }
}

}  // namespace

std::string text_of(std::span<const YieldRule> rules) {
  if (rules.empty()) return {};
  std::string text = kVersion;
  for (const YieldRule& rule : rules) {
    text += kKindNames[std::size_t(rule.kind)];
    text += " " + std::to_string(rule.every) + (rule.keeps_choice ? " keeps_choice\n" : "\n");
  }
  return text;
}

std::string set_yields(std::string& cubin, std::string_view entry,
                       std::span<const YieldRule> rules) {
  if (rules.empty()) return {};
  const std::string_view bytes = runtime::cubin_section(cubin, ".text." + std::string(entry));
  if (bytes.empty() || bytes.size() % sizeof(Instruction) != 0) return kUnknownForm;
  char* const begin = cubin.data() + (bytes.data() - cubin.data());
  std::vector<Instruction> code(bytes.size() / sizeof(Instruction));
  std::memcpy(code.data(), begin, bytes.size());
  for (const YieldRule& rule : rules) apply_to_runs(rule, code);
  std::memcpy(begin, code.data(), bytes.size());
  return {};
}

}  // namespace kiln
