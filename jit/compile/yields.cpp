#include "jit/compile/yields.h"

#include <elf.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

namespace kiln {
namespace {

// NVIDIA documents no encodings. These are what nvdisasm prints; the bits that steer the issue of
// an instruction are as Jia et al. found them on Volta ("Dissecting the NVIDIA Volta GPU
// Architecture via Microbenchmarking", 2018, section 2.1). An instruction has 16 bytes, and all
// that is about its issue is in the upper 8.
struct Instruction {
  std::uint64_t low, high;

  // Without the bits that tell what the operands are: registers, constants or numbers.
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

struct Kind {
  YieldKind kind;
  const char* name;
  std::array<unsigned, 7> operations;
};
constexpr Kind kKinds[] = {
    {YieldKind::multiply_add, "multiply_add", {0x23}},  // FFMA
    {YieldKind::multiply, "multiply", {0x20}},          // FMUL
    {YieldKind::add, "add", {0x21}},                    // FADD
    // UMOV, UIADD3, ULEA, ULOP3, UISETP, USEL, USHF
    {YieldKind::uniform, "uniform", {0x82, 0x90, 0x91, 0x92, 0x8c, 0x87, 0x99}},
};
const Kind& kind_of(const YieldRule& rule) { return kKinds[std::size_t(rule.kind)]; }

// The bytes of a file at some place, as a struct or as its code.
struct Range {
  std::size_t begin, size;
};

template <class T>
std::optional<T> read(const std::string& file, std::size_t at) {
  if (at > file.size() || file.size() - at < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, file.data() + at, sizeof value);
  return value;
}

// The code of the kernel, or nothing in a file of another form.
std::optional<Range> code_of(const std::string& cubin, std::string_view entry) {
  const auto header = read<Elf64_Ehdr>(cubin, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return std::nullopt;
  const auto section = [&](unsigned number) {
    return read<Elf64_Shdr>(cubin, header->e_shoff + std::size_t(number) * header->e_shentsize);
  };
  const auto names = section(header->e_shstrndx);
  if (!names) return std::nullopt;
  const std::string wanted = ".text." + std::string(entry) + '\0';
  for (unsigned number = 0; number < header->e_shnum; ++number) {
    const auto found = section(number);
    if (!found || found->sh_type != SHT_PROGBITS) continue;
    const std::size_t name = names->sh_offset + found->sh_name;
    if (name > cubin.size() || cubin.compare(name, wanted.size(), wanted) != 0) continue;
    const Range code{found->sh_offset, found->sh_size};
    if (code.begin > cubin.size() || cubin.size() - code.begin < code.size) return std::nullopt;
    if (code.size % sizeof(Instruction) != 0) return std::nullopt;
    return code;
  }
  return std::nullopt;
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
    yields ? run[i].yield() : run[i].stay();
  }
}

void apply_to_runs(const YieldRule& rule, std::span<Instruction> code) {
  const auto& operations = kind_of(rule).operations;
  const auto is_of_kind = [&](const Instruction& i) {
    return std::ranges::find(operations, i.operation()) != operations.end();
  };
  for (auto at = code.begin(); at != code.end();) {
    const auto begin = std::find_if(at, code.end(), is_of_kind);
    at = std::find_if_not(begin, code.end(), is_of_kind);
    apply(rule, {begin, at});
  }
}

}  // namespace

std::string text_of(std::span<const YieldRule> rules) {
  std::string text;
  for (const YieldRule& rule : rules) {
    text += kind_of(rule).name + (" " + std::to_string(rule.every)) +
            (rule.keeps_choice ? " keeps_choice\n" : "\n");
  }
  return text;
}

bool set_yields(std::string& cubin, std::string_view entry, std::span<const YieldRule> rules) {
  const std::optional<Range> range = code_of(cubin, entry);
  if (!range) return false;
  std::vector<Instruction> code(range->size / sizeof(Instruction));
  std::memcpy(code.data(), cubin.data() + range->begin, range->size);
  for (const YieldRule& rule : rules) apply_to_runs(rule, code);
  std::memcpy(cubin.data() + range->begin, code.data(), range->size);
  return true;
}

}  // namespace kiln
