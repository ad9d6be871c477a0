// Around each use of NVRTC in this process, which knows neither fork nor the end of a process:
// a child of fork inherits the locks of threads that it does not have, and at exit NVRTC's objects
// are destroyed under the threads that still compile.
#pragma once

namespace kiln {

// One compile. exit() waits until the compiles under way have ended, unless one of them is the
// first of the process. Throws CompileError where NVRTC can no longer be used: in a process that is
// exiting, and in one that was forked while another thread compiled.
class CompileScope {
 public:
  CompileScope();
  ~CompileScope();
  CompileScope(const CompileScope&) = delete;
  CompileScope& operator=(const CompileScope&) = delete;
};

// Waits until the compiles under way have ended, and lets no other begin. For a language's own end,
// which comes before exit() and so serves for the first compile too.
void end_compiles();

}  // namespace kiln
