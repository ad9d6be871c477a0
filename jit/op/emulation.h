// What a launch on the emulated device needs beside what a GPU needs: leave, options, patience.
#pragma once

#include "jit/op/blocking.h"
#include "jit/op/recipe.h"

namespace kiln {

// Throws kiln::Error when nobody chose the emulated device and the call would take over a minute;
// tells once per process when it stands in for a GPU.
// `flops`: of the operation `op` as a whole.
void admit_emulation(const char* op, double flops, const Recipe& recipe);

// While alive: the thread's options are the device's, and a language binding holds no lock. A
// launch may take minutes.
class EmulationScope {
 public:
  EmulationScope();

 private:
  BlockingScope blocking_;
};

}  // namespace kiln
