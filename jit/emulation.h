// What a launch on the emulated device needs beside what a GPU needs: leave, options, patience.
#pragma once

#include "jit/blocking.h"
#include "jit/calls.h"

namespace kiln {

// Throws kiln::Error when nobody chose the emulated device and the call would take over a minute;
// tells once per process when it stands in for a GPU.
void admit_emulation(const AttentionProblem& problem, const LaunchChoice& choice);
void admit_emulation(const GemmProblem& problem, const LaunchChoice& choice);

// While alive: the thread's options are the device's, and a language binding holds no lock. A
// launch may take minutes.
class EmulationScope {
 public:
  EmulationScope();

 private:
  BlockingScope blocking_;
};

}  // namespace kiln
