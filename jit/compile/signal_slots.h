// NVRTC installs handlers for SIGINT and SIGTERM for the whole process while it compiles: a signal
// that arrives then ends the process with exit(4), and a handler that the application installs
// meanwhile is undone. This takes the two functions away from it.
#pragma once

namespace kiln {

// From now on the library's own calls of signal() and sigaction() change nothing: the slots through
// which it calls them point to functions of ours. `handle`: of dlopen, and not to be closed again.
// False if there is no such slot or one cannot be written; the library then does as it did before.
// Reference: System V ABI, "Dynamic Section" and "Procedure Linkage Table".
bool detach_signal_handlers(void* handle);

}  // namespace kiln
