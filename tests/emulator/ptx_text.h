// What the tests of the PTX parser share: texts around a kernel's body, and the errors they give.
#pragma once

#include <cstring>
#include <string>

#include "runtime/emulator/machine/faults.h"
#include "runtime/emulator/ptx/ptx.h"
#include "tests/support/catch.h"

namespace kiln::runtime::emulator {

using Kind = Operand::Kind;

inline constexpr const char* kHeader = ".version 8.4\n.target sm_90a, debug\n.address_size 64\n";

inline std::string kernel(const std::string& body, const std::string& before = "") {
  return kHeader + before + ".visible .entry k(.param .u64 p)\n{\n" + body + "\nret;\n}\n";
}

// The text of the error that `text` gives, with its line in front; empty where there is none.
inline std::string error_of(const std::string& text) {
  try {
    parse_ptx(text);
  } catch (const EmulatorError& error) {
    CHECK(error.fault() == Fault::bad_ptx);
    return std::to_string(error.site().ptx_line) + ": " + error.what();
  }
  return {};
}

inline bool fails(const std::string& text, const std::string& line_and_message) {
  const std::string error = error_of(text);
  const std::size_t colon = line_and_message.find(": ");
  INFO(error);
  const bool line = error.starts_with(line_and_message.substr(0, colon + 2));
  const bool message = error.find(line_and_message.substr(colon + 2)) != std::string::npos;
  CHECK(line);
  CHECK(message);
  return line && message;
}

// The operands of the first instruction of a kernel's body.
struct Parsed {
  Module module;
  const Instruction& at(std::size_t index) const { return module.functions.back().body.at(index); }
  const Operand& operand(std::size_t index) const { return at(0).operands.at(index); }
};
inline Parsed parse(const std::string& body, const std::string& before = "") {
  return {parse_ptx(kernel(body, before))};
}

inline std::uint64_t word(const Variable& variable, std::size_t at, std::size_t bytes) {
  std::uint64_t value = 0;
  REQUIRE(at + bytes <= variable.initial.size());
  std::memcpy(&value, variable.initial.data() + at, bytes);
  return value;
}

}  // namespace kiln::runtime::emulator
