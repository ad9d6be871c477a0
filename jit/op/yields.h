// Rules that say where a warp gives way to the others of its multiprocessor's quarter. A bit of
// each instruction of machine code says so. ptxas sets it, and neither C++ nor PTX has a word for
// it.
#pragma once

#include <cstdint>

namespace kiln {

// Kinds of instructions that may be told to yield: float32's, and integers' of the uniform
// datapath.
enum class YieldKind : std::uint8_t { multiply_add, multiply, add, uniform };

// Instructions of a kind that follow each other are a run. The Nth, 2Nth, … of each run yield, and
// the others do not, where N is `every`.
struct YieldRule {
  YieldKind kind;
  int every;
  bool keeps_choice = false;  // a run in which ptxas lets some yield stays as it is
};

}  // namespace kiln
