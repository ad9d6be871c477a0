// These tests apply the rules of yields to machine code that is made up here.
#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "jit/compile/kernel_source.h"
#include "jit/compile/yields.h"
#include "jit/op/arch.h"
#include "jit/op/family.h"
#include "jit/tools/spec.h"
#include "tests/support/catch.h"

namespace kiln {
namespace {

// The low halves of instructions; what follows the low 9 bits are operands.
constexpr std::uint64_t kMultiplyAdd = 0x7223, kMultiply = 0x7220, kAdd = 0x7221, kMove = 0x7882,
                        kMaximum = 0x7209;
constexpr std::uint64_t kStays = 1ull << 45, kReuse = 5ull << 58, kWaits = 0x3full << 52;

// The upper half of one that stays, for so many cycles.
constexpr std::uint64_t stays(std::uint64_t stall) { return stall << 41 | kStays | kWaits; }

struct Instruction {
  std::uint64_t low, high = stays(1) | kReuse;
};

template <class T>
void append(std::string& file, const T& value) {
  file.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// An ELF file whose sections are .text.other and .text.kernel, with the same code, and the names.
std::string cubin_of(const std::vector<Instruction>& code) {
  const std::string names("\0.text.other\0.text.kernel\0.names\0", 33);
  const std::size_t bytes = code.size() * sizeof(Instruction);
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_shoff = sizeof header + 2 * bytes + names.size();
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 3;
  header.e_shstrndx = 2;
  std::string file;
  append(file, header);
  for (int copy = 0; copy < 2; ++copy) {
    for (const Instruction& instruction : code) append(file, instruction);
  }
  file += names;
  const auto add_section = [&](Elf64_Word name, Elf64_Word type, std::size_t at, std::size_t size) {
    Elf64_Shdr section{};
    section.sh_name = name;
    section.sh_type = type;
    section.sh_offset = at;
    section.sh_size = size;
    append(file, section);
  };
  add_section(1, SHT_PROGBITS, sizeof header, bytes);
  add_section(13, SHT_PROGBITS, sizeof header + bytes, bytes);
  add_section(26, SHT_STRTAB, sizeof header + 2 * bytes, names.size());
  return file;
}

// The code of .text.kernel behind the rules; everything else must be as it was.
std::vector<Instruction> after(const std::vector<YieldRule>& rules,
                               const std::vector<Instruction>& code) {
  const std::string before = cubin_of(code);
  std::string cubin = before;
  REQUIRE(set_yields(cubin, "kernel", rules) == "");
  REQUIRE(cubin.size() == before.size());
  const std::size_t bytes = code.size() * sizeof(Instruction), begin = sizeof(Elf64_Ehdr) + bytes;
  CHECK(cubin.substr(0, begin) == before.substr(0, begin));
  CHECK(cubin.substr(begin + bytes) == before.substr(begin + bytes));
  std::vector<Instruction> changed(code.size());
  std::memcpy(static_cast<void*>(changed.data()), cubin.data() + begin, bytes);
  for (std::size_t i = 0; i < code.size(); ++i) CHECK(changed[i].low == code[i].low);
  return changed;
}

// "y" for one that yields and "-" for one that stays.
std::string pattern(const std::vector<Instruction>& code) {
  std::string text;
  for (const Instruction& instruction : code) text += instruction.high & kStays ? '-' : 'y';
  return text;
}

TEST_CASE("the Nth instructions of each run yield", "[yields]") {
  const std::vector<Instruction> code{{kMultiplyAdd}, {kMultiplyAdd}, {kMultiplyAdd}, {kMaximum},
                                      {kMultiplyAdd}, {kMultiplyAdd}, {kAdd},         {kMove}};
  CHECK(pattern(after({{YieldKind::multiply_add, 2}}, code)) == "-y---y--");
  CHECK(pattern(after({{YieldKind::multiply_add, 3}}, code)) == "--y-----");
  CHECK(pattern(after({{YieldKind::add, 1}, {YieldKind::uniform, 1}}, code)) == "------yy");
  CHECK(pattern(after({{YieldKind::multiply, 1}}, code)) == "--------");
  CHECK(pattern(after({}, code)) == "--------");
}

TEST_CASE("only the bits of the yield and of the operands that are kept change", "[yields]") {
  const std::vector<Instruction> code{{kMultiply}, {kMultiply}};
  const auto changed = after({{YieldKind::multiply, 2}}, code);
  CHECK(changed[0].high == code[0].high);
  CHECK(changed[1].high == (stays(1) & ~kStays));
}

TEST_CASE("an instruction of a run stays where ptxas let it yield too often", "[yields]") {
  const Instruction yields{kAdd, stays(1) & ~kStays};
  CHECK(pattern(after({{YieldKind::add, 4}}, {yields, yields, yields, yields, yields})) == "---y-");
  CHECK(pattern(after({{YieldKind::add, 4, true}}, {yields, yields, yields, yields, yields})) ==
        "yyyyy");
  CHECK(pattern(after({{YieldKind::add, 2, true}}, {{kAdd}, yields, {kMove}, {kAdd}, {kAdd}})) ==
        "-y--y");
}

TEST_CASE("long stalls are left to ptxas", "[yields]") {
  const Instruction yields{kAdd, stays(13) & ~kStays}, long_stay{kAdd, stays(3)};
  const std::vector<Instruction> code{yields, long_stay, {kAdd}, {kAdd}};
  CHECK(pattern(after({{YieldKind::add, 2}}, code)) == "y--y");
  CHECK(pattern(after({{YieldKind::add, 2, true}}, code)) == "y--y");
  CHECK(pattern(after({{YieldKind::add, 1}}, {{kAdd, stays(2)}, {kAdd, stays(3)}})) == "y-");
}

TEST_CASE("operands do not matter, nor which operation of the uniform datapath it is", "[yields]") {
  const auto all_yield = [](YieldKind kind, std::vector<std::uint64_t> lows) {
    for (const std::uint64_t low : lows) CHECK(pattern(after({{kind, 1}}, {{low}})) == "y");
  };
  all_yield(YieldKind::multiply_add, {0x223, 0x423, 0x823, 0xc23, 0xe23});  // FFMA
  all_yield(YieldKind::multiply, {0x220, 0x820, 0xc20});                    // FMUL
  all_yield(YieldKind::add, {0x221, 0x421, 0x821});                         // FADD
  // UMOV, USEL, UISETP, UIADD3, ULEA, ULOP3, USHF
  all_yield(YieldKind::uniform, {0x882, 0xc82, 0x887, 0x88c, 0x890, 0x891, 0x892, 0x899});
}

TEST_CASE("a file of another form is left alone", "[yields]") {
  const std::vector<YieldRule> rules{{YieldKind::add, 1}};
  const std::string whole = cubin_of({{kAdd}, {kAdd}});
  const auto is_left_alone = [&](std::string cubin, const char* entry) {
    const std::string before = cubin;
    const std::string warning = set_yields(cubin, entry, rules);
    return warning.find("KILN_NVRTC") != std::string::npos && cubin == before;
  };
  CHECK(is_left_alone(whole, "kern"));
  CHECK(is_left_alone(whole, "kernel2"));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    CHECK(is_left_alone(whole.substr(0, size), "kernel"));
  }
  std::string other = whole;
  other[1] = 'X';
  CHECK(is_left_alone(other, "kernel"));
  std::string half = whole;
  const std::size_t size_at = whole.size() - 2 * sizeof(Elf64_Shdr) + offsetof(Elf64_Shdr, sh_size);
  half[size_at] = 24;
  CHECK(is_left_alone(half, "kernel"));
}

TEST_CASE("rules are part of a key as text", "[yields]") {
  const YieldRule rules[] = {{YieldKind::multiply_add, 2, true}, {YieldKind::uniform, 1}};
  CHECK(text_of(rules) == "version 1\nmultiply_add 2 keeps_choice\nuniform 1\n");
  CHECK(text_of({}).empty());
}

// How many rules the kernels of a spec for sm_90a have, each of them as many.
std::size_t rules_of(const nlohmann::json& spec) {
  std::vector<std::size_t> counts;
  for (const OwnedSpec& owned : specs_from_json(spec, arch_index({9, 0}))) {
    if (std::string_view(owned.spec.kernel().path) != "sm_90a") continue;
    counts.push_back(source_of(owned.spec, owned.texts()).yields.size());
  }
  REQUIRE_FALSE(counts.empty());
  CHECK(std::ranges::count(counts, counts[0]) == std::ptrdiff_t(counts.size()));
  return counts[0];
}

std::size_t attention_rules(int head_dim, nlohmann::json more = nlohmann::json::object()) {
  more.update({{"op", "flash_attention"}, {"head_dim", head_dim}});
  return rules_of(more);
}

std::size_t product_rules(int rows, int columns, const char* scale_a, const char* scale_b) {
  return rules_of({{"op", "gemm"},
                   {"dtype", "float8_e4m3fn"},
                   {"out_dtype", "bfloat16"},
                   {"scale_a", scale_a},
                   {"scale_b", scale_b},
                   {"block_m", rows},
                   {"block_n", columns}});
}

TEST_CASE("rules belong to kernels that gain by them", "[yields]") {
  CHECK(attention_rules(64) == 4);
  CHECK(attention_rules(112) == 4);
  CHECK(attention_rules(120) == 0);
  CHECK(attention_rules(128) == 0);
  CHECK(attention_rules(192, {{"head_dim_v", 64}}) == 0);
  CHECK(attention_rules(64, {{"attn_mask", "float16"}}) == 0);
  CHECK(attention_rules(128, {{"softcap", true}}) == 4);
  CHECK(attention_rules(256, {{"softcap", true}}) == 4);
  const nlohmann::json bytes = {
      {"storage", "ragged"}, {"cache_dtype", "float8_e4m3fn"}, {"quantized_queries", true}};
  CHECK(attention_rules(128, bytes) == 4);
  CHECK(attention_rules(256, bytes) == 0);
  CHECK(product_rules(128, 128, "groups", "blocks") == 1);
  CHECK(product_rules(128, 256, "groups", "blocks") == 1);
  CHECK(product_rules(128, 192, "groups", "blocks") == 0);
  CHECK(product_rules(64, 128, "groups", "blocks") == 0);
  CHECK(product_rules(128, 128, "tensor", "tensor") == 0);
}

}  // namespace
}  // namespace kiln
