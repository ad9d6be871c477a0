// Deterministic mutations of PTX modules, fed to the parser and, where that accepts them, to the
// decoder: fuzz_ptx SECONDS SEED FILES... Whatever the text, the outcome is programs or an
// EmulatorError; anything else ends the program, after the text has been written to fuzz_ptx.crash.
// A sanitizer's report ends it earlier: FUZZ_PTX_KEEP=1 writes every text before it is tried.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/emulator/decode/program.h"
#include "runtime/emulator/machine/faults.h"
#include "runtime/emulator/memory/memory.h"
#include "runtime/emulator/ptx/ptx.h"

namespace kiln::runtime::emulator {
namespace {

constexpr std::size_t kLongestText = 1 << 20;
constexpr double kSlowSeconds = 5;  // a text of a megabyte, under the sanitizers

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 2 + 1) {}
  std::uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }
  std::size_t below(std::size_t bound) { return bound == 0 ? 0 : next() % bound; }

 private:
  std::uint64_t state_;
};

struct Span {
  std::size_t begin = 0, end = 0;
};

bool in_word(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         c == '$' || c == '%';
}

// The token around a random place: a run of letters and digits, or one other character.
Span token_of(const std::string& text, Random& random) {
  if (text.empty()) return {};
  Span span;
  span.begin = random.below(text.size());
  span.end = span.begin + 1;
  if (!in_word(text[span.begin])) return span;
  while (span.begin > 0 && in_word(text[span.begin - 1])) --span.begin;
  while (span.end < text.size() && in_word(text[span.end])) ++span.end;
  return span;
}

Span line_of(const std::string& text, Random& random) {
  if (text.empty()) return {};
  const std::size_t at = random.below(text.size());
  const std::size_t before = at == 0 ? std::string::npos : text.rfind('\n', at - 1);
  const std::size_t after = text.find('\n', at);
  return {before == std::string::npos ? 0 : before + 1,
          after == std::string::npos ? text.size() : after + 1};
}

std::string cut(const std::string& text, Span span) {
  return text.substr(span.begin, span.end - span.begin);
}

void replace(std::string& text, Span span, std::string_view with) {
  text.replace(span.begin, span.end - span.begin, with);
}

constexpr std::string_view kWords[] = {"{",          "}",
                                       "[",          "]",
                                       "(",          ")",
                                       "<",          ">",
                                       ";",          ",",
                                       ":",          "|",
                                       "!",          "-",
                                       "@",          "/*",
                                       "\"",         ".b8",
                                       ".pred",      ".reg",
                                       "_",          "%r<9>",
                                       "%tid.x",     "WARP_SZ",
                                       "generic(",   "0xFF(",
                                       "0",          "4294967296",
                                       "-1",         "1e999",
                                       "0f7fc00",    "0xffffffffffffffff",
                                       ".param",     ".align",
                                       ".v4",        ".shared",
                                       ".loc",       ".file",
                                       ".section",   ".branchtargets",
                                       ".func",      ".entry",
                                       "bra",        "call",
                                       "1073741824", ".callprototype",
                                       "?",          "<<",
                                       "%",          "/",
                                       "0d",         "0x",
                                       "1.5e",       ".extern",
                                       "=",          "%r<999999>"};

void mutate(std::string& text, const std::vector<std::string>& seeds, Random& random) {
  switch (random.below(14)) {
    case 0:  // a bit
      if (!text.empty()) {
        char& byte = text[random.below(text.size())];
        byte = static_cast<char>(static_cast<unsigned char>(byte) ^ (1u << random.below(8)));
      }
      break;
    case 1:  // truncation, at either end
      if (random.below(2) == 0) {
        text.resize(random.below(text.size() + 1));
      } else {
        text.erase(0, random.below(text.size() + 1) / 16);
      }
      break;
    case 2:
      replace(text, line_of(text, random), "");
      break;
    case 3: {
      const Span line = line_of(text, random);
      text.insert(line.begin, cut(text, line));
      break;
    }
    case 4: {  // two tokens change places
      const Span a = token_of(text, random);
      const std::string first = cut(text, a);
      const Span b = token_of(text, random);
      const std::string second = cut(text, b);
      if (a.begin == b.begin || text.empty()) break;
      const bool a_is_later = a.begin > b.begin;
      replace(text, a_is_later ? a : b, a_is_later ? second : first);
      replace(text, a_is_later ? b : a, a_is_later ? first : second);
      break;
    }
    case 5: {
      const Span token = token_of(text, random);
      text.insert(token.begin, cut(text, token));
      break;
    }
    case 6:
      replace(text, token_of(text, random), kWords[random.below(std::size(kWords))]);
      break;
    case 7: {
      std::string word(kWords[random.below(std::size(kWords))]);
      text.insert(random.below(text.size() + 1), " " + word + " ");
      break;
    }
    case 8: {  // a line of another module
      const std::string& other = seeds[random.below(seeds.size())];
      text.insert(line_of(text, random).begin, cut(other, line_of(other, random)));
      break;
    }
    case 9:
      replace(text, token_of(text, random), "");
      break;
    case 10: {  // many times the same: depth and length
      const Span token = token_of(text, random);
      std::string many;
      const std::size_t times = random.below(2000);
      for (std::size_t i = 0; i < times; ++i) many += cut(text, token) + " ";
      text.insert(token.begin, many.substr(0, 20000));
      break;
    }
    default: {  // a token becomes another of its kind, which the parser is likelier to accept
      if (text.empty()) break;
      const Span token = token_of(text, random);
      for (int tries = 0; tries < 50; ++tries) {
        const Span other = token_of(text, random);
        if (text[other.begin] != text[token.begin] || other.begin == token.begin) continue;
        replace(text, token, cut(text, other));
        break;
      }
      break;
    }
  }
  if (text.size() > kLongestText) text.resize(kLongestText);
}

// Reads what the module's views point to, so that the sanitizers see a dangling one.
std::uint64_t look_at(const Module& module) {
  std::uint64_t sum = 0;
  for (const Function& function : module.functions) {
    for (const Instruction& instruction : function.body) {
      sum += instruction.text().size() + module.location_text(instruction.location).size();
      for (const Operand& operand : instruction.operands) {
        if (operand.is(Operand::Kind::reg)) sum += function.registers.at(operand.reg).name.size();
        if (operand.is(Operand::Kind::label) && instruction.opcode != "brx" &&
            static_cast<std::uint64_t>(operand.value) > function.body.size()) {
          std::abort();
        }
        for (char c : operand.name) sum += static_cast<unsigned char>(c);
      }
    }
  }
  return sum;
}

// Storage of the module's own that is worth a test's time.
constexpr std::uint64_t kMostBytes = std::uint64_t{16} << 20;

std::uint64_t decode_entries(Module&& parsed) {
  std::uint64_t bytes = 0;
  for (const Variable& variable : parsed.variables) bytes += variable.bytes + variable.align;
  if (bytes > kMostBytes) return 0;
  const auto module = std::make_shared<const Module>(std::move(parsed));
  std::uint64_t decoded = 0;
  const GlobalVariables globals(*module);
  for (const Function& function : module->functions) {
    if (!function.is_entry || !function.has_body) continue;
    try {
      decoded += decode(module, function.name, globals).ops.size() > 0;
    } catch (const EmulatorError&) {
      // What is sound PTX need not be modelled.
    }
  }
  return decoded;
}

void save(const std::string& text) {
  if (std::FILE* file = std::fopen("fuzz_ptx.crash", "wb")) {
    std::fwrite(text.data(), 1, text.size(), file);
    std::fclose(file);
  }
}

std::string read(const char* path) {
  std::string text;
  if (std::FILE* file = std::fopen(path, "rb")) {
    char buffer[1 << 16];
    for (std::size_t n; (n = std::fread(buffer, 1, sizeof buffer, file)) > 0;) {
      text.append(buffer, n);
    }
    std::fclose(file);
  }
  return text;
}

struct Counts {
  std::uint64_t iterations = 0, accepted = 0, decoded = 0, checksum = 0;
};

// 0 where it went well.
int try_text(const std::string& text, Counts* counts) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  try {
    Module module = parse_ptx(text);
    ++counts->accepted;
    counts->checksum += look_at(module);
    counts->decoded += decode_entries(std::move(module));
  } catch (const EmulatorError&) {
    // What bad text deserves.
  } catch (const std::exception& error) {
    std::fprintf(stderr, "unexpected exception: %s\n", error.what());
    return 1;
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  if (seconds < kSlowSeconds) return 0;
  std::fprintf(stderr, "%zu bytes took %.1f s\n", text.size(), seconds);
  return 1;
}

}  // namespace

int fuzz(double seconds, std::uint64_t seed, const std::vector<std::string>& seeds) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  Random random(seed);
  Counts counts;
  while (std::chrono::duration<double>(Clock::now() - begin).count() < seconds) {
    std::string text = seeds[random.below(seeds.size())];
    const std::size_t mutations = 1 + random.below(random.below(4) == 0 ? 30 : 3);
    for (std::size_t i = 0; i < mutations; ++i) mutate(text, seeds, random);
    // Written before it is tried where a sanitizer would end the program.
    if (std::getenv("FUZZ_PTX_KEEP") != nullptr) save(text);
    if (try_text(text, &counts) != 0) {
      save(text);
      return 1;
    }
    ++counts.iterations;
  }
  std::printf("%llu iterations, %llu modules, %llu programs (checksum %llx)\n",
              static_cast<unsigned long long>(counts.iterations),
              static_cast<unsigned long long>(counts.accepted),
              static_cast<unsigned long long>(counts.decoded),
              static_cast<unsigned long long>(counts.checksum));
  return 0;
}

}  // namespace kiln::runtime::emulator

int main(int argc, char** argv) {
  std::vector<std::string> seeds;
  for (int i = 3; i < argc; ++i) seeds.push_back(kiln::runtime::emulator::read(argv[i]));
  if (seeds.empty()) {
    std::fprintf(stderr, "usage: fuzz_ptx SECONDS SEED FILES...\n");
    return 2;
  }
  return kiln::runtime::emulator::fuzz(std::atof(argv[1]), std::strtoull(argv[2], nullptr, 10),
                                       seeds);
}
