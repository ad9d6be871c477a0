#include "tests/emulator/mutation.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <optional>

namespace kiln::testing {
namespace {

// Instructions that order work; deleting one is a mutant. Matched at the opcode's begin.
constexpr std::string_view kDeleted[] = {
    "bar.",
    "barrier.",
    "cp.async.wait",
    "cp.async.commit_group",
    "cp.async.mbarrier.arrive",
    "cp.async.bulk.commit_group",
    "cp.async.bulk.wait_group",
    "fence.",
    "membar.",
    "mbarrier.init",
    "mbarrier.arrive",
    "mbarrier.expect_tx",
    "mbarrier.try_wait",
    "mbarrier.test_wait",
    "wgmma.fence",
    "wgmma.commit_group",
    "wgmma.wait_group",
    "griddepcontrol.wait",
};

// An edit of an operand that is an integer literal: which instructions, which operand, by how much.
struct Nudge {
  std::string_view opcode;
  int operand;  // from 0
  long long delta;
  std::string_view change;
};
constexpr Nudge kNudges[] = {
    {"cp.async.wait_group", 0, 1, "waits for one group less"},
    {"cp.async.bulk.wait_group", 0, 1, "waits for one group less"},
    {"wgmma.wait_group", 0, 1, "waits for one group less"},
    {"mbarrier.init", 1, 1, "expects one arrival more"},
    {"mbarrier.init", 1, -1, "expects one arrival less"},
    {"mbarrier.arrive.expect_tx", 1, 16, "expects 16 bytes more"},
    {"mbarrier.arrive.expect_tx", 1, -16, "expects 16 bytes less"},
    {"mbarrier.expect_tx", 1, 16, "expects 16 bytes more"},
    {"mbarrier.expect_tx", 1, -16, "expects 16 bytes less"},
};

struct Statement {
  std::size_t begin = 0, end = 0;  // of the line in the text, without its newline
  std::size_t opcode = 0;          // where the opcode begins, behind a guard
  std::uint32_t line = 0;
};

std::string_view opcode_text(std::string_view ptx, const Statement& statement) {
  return ptx.substr(statement.opcode, statement.end - statement.opcode);
}

// A line of PTX as compilers write it: one statement, perhaps guarded.
std::optional<Statement> statement_at(std::string_view ptx, std::size_t begin, std::size_t end,
                                      std::uint32_t line) {
  std::size_t at = ptx.find_first_not_of(" \t{", begin);
  if (at == std::string_view::npos || at >= end) return std::nullopt;
  if (ptx[at] == '@') {
    at = ptx.find_first_of(" \t", at);
    if (at == std::string_view::npos || at >= end) return std::nullopt;
    at = ptx.find_first_not_of(" \t", at);
    if (at == std::string_view::npos || at >= end) return std::nullopt;
  }
  return Statement{begin, end, at, line};
}

// The statement's operands as (begin, end) offsets in the text, split at commas outside brackets.
std::vector<std::pair<std::size_t, std::size_t>> operands_of(std::string_view ptx,
                                                             const Statement& statement) {
  std::vector<std::pair<std::size_t, std::size_t>> operands;
  std::size_t at = ptx.find_first_of(" \t;", statement.opcode);
  int depth = 0;
  std::size_t begin = at;
  for (; at < statement.end; ++at) {
    const char c = ptx[at];
    if (c == '[' || c == '{' || c == '(') ++depth;
    if (c == ']' || c == '}' || c == ')') --depth;
    if (c == ';' || (c == ',' && depth == 0)) {
      operands.emplace_back(begin, at);
      begin = at + 1;
      if (c == ';') break;
    }
  }
  return operands;
}

std::string replaced(std::string_view ptx, std::size_t begin, std::size_t end,
                     std::string_view with) {
  std::string text(ptx.substr(0, begin));
  text += with;
  text += ptx.substr(end);
  return text;
}

std::optional<long long> literal(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) {
    text.remove_prefix(1);
  }
  long long value = 0;
  if (text.empty() || text.size() > 9) return std::nullopt;
  for (char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  return value;
}

void add_mutants(std::string_view ptx, const Statement& statement, std::vector<Mutant>& mutants) {
  const std::string_view opcode = opcode_text(ptx, statement);
  const std::string instruction(opcode.substr(0, opcode.find(';')));
  for (std::string_view deleted : kDeleted) {
    if (!opcode.starts_with(deleted)) continue;
    const std::size_t semicolon = ptx.find(';', statement.opcode);
    if (semicolon >= statement.end) break;
    // A guard goes with its instruction.
    const std::size_t from = ptx.find_first_not_of(" \t{", statement.begin);
    mutants.push_back(
        {statement.line, instruction, "deleted", replaced(ptx, from, semicolon + 1, "")});
    break;
  }
  for (const Nudge& nudge : kNudges) {
    if (!opcode.starts_with(nudge.opcode)) continue;
    const auto operands = operands_of(ptx, statement);
    if (static_cast<std::size_t>(nudge.operand) >= operands.size()) continue;
    const auto [begin, end] = operands[static_cast<std::size_t>(nudge.operand)];
    const auto value = literal(ptx.substr(begin, end - begin));
    if (!value || *value + nudge.delta < 0) continue;
    mutants.push_back({statement.line, instruction, std::string(nudge.change),
                       replaced(ptx, begin, end, " " + std::to_string(*value + nudge.delta))});
  }
  // The other parity: whoever waits goes on a phase early or never.
  if (opcode.starts_with("mbarrier.try_wait.parity") ||
      opcode.starts_with("mbarrier.test_wait.parity")) {
    const auto operands = operands_of(ptx, statement);
    if (operands.size() < 3) return;
    const auto [begin, end] = operands[2];
    std::string parity(ptx.substr(begin, end - begin));
    std::string text;
    if (const auto value = literal(parity)) {
      text = replaced(ptx, begin, end, " " + std::to_string(*value ^ 1));
    } else {
      text = replaced(ptx, begin, end, " %mutant_parity");
      text.insert(statement.begin,
                  "{ .reg .b32 %mutant_parity; xor.b32 %mutant_parity, " + parity + ", 1; ");
      const std::size_t close = text.find(';', text.find("mbarrier.", statement.opcode)) + 1;
      text.insert(close, " }");
    }
    mutants.push_back({statement.line, instruction, "waits for the other parity", text});
  }
}

}  // namespace

std::vector<Mutant> mutants_of(std::string_view ptx) {
  std::vector<Mutant> mutants;
  std::uint32_t line = 1;
  for (std::size_t begin = 0; begin < ptx.size(); ++line) {
    std::size_t end = ptx.find('\n', begin);
    if (end == std::string_view::npos) end = ptx.size();
    if (const auto statement = statement_at(ptx, begin, end, line)) {
      add_mutants(ptx, *statement, mutants);
    }
    begin = end + 1;
  }
  return mutants;
}

std::string trapping(std::string_view ptx, std::uint32_t line) {
  std::size_t begin = 0;
  for (std::uint32_t before = 1; before < line; ++before) begin = ptx.find('\n', begin) + 1;
  const std::size_t end = std::min(ptx.find('\n', begin), ptx.size());
  const auto statement = statement_at(ptx, begin, end, line);
  return replaced(ptx, statement->opcode, ptx.find(';', statement->opcode), "trap");
}

}  // namespace kiln::testing
