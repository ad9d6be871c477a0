// What a launch on the emulated device needs in addition: permission, options, and no locks held.
#pragma once

#include "jit/op/blocking.h"
#include "jit/op/recipe.h"

namespace kiln {

// Throws kiln::Error if the emulated device was not chosen and the call would take more than a
// minute. Logs once per process that this device is used because there is no GPU. `flops` are those
// of the whole operation `op`.
void admit_emulation(const char* op, double flops, const Recipe& recipe);

// While an object exists, the device uses the thread's options, and a language binding holds no
// lock, because a launch may take minutes.
class EmulationScope {
 public:
  EmulationScope();

 private:
  BlockingScope blocking_;
};

}  // namespace kiln
