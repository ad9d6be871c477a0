// Direct calls of device functions (PTX ISA, "call"): the callee's body takes the call's place, so
// that the executor knows of no stack.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "runtime/emulator/ptx/ptx.h"

namespace kiln::runtime::emulator {

// A function without calls, and the names that were made for it.
struct FlatFunction {
  Function function;
  std::deque<std::string> names;
};

// Null for a function that calls nobody. What has no body to put in (recursion, calls through a
// register, functions that the module only declares) is an unknown instruction. A failed assertion
// becomes trap.
std::shared_ptr<const FlatFunction> flatten_calls(const Module& module, const Function& entry);

}  // namespace kiln::runtime::emulator
