// Threads that are inside Kiln when Python ends.
//
// Before version 3.14, CPython ends a thread that asks for the GIL during or after the
// interpreter's finalization: it calls pthread_exit, which unwinds the thread's stack. C++ does not
// survive that. Destructors drop references without the GIL, and the first one on the way that may
// not throw calls std::terminate. From 3.14 on, CPython puts such a thread to sleep, until the
// process ends a moment later.
//
// The same is done here for every version. The unwinder asks the personality routine of each frame
// before it runs anything of that frame, and all frames of this module share one routine, which the
// linker replaces by the one below (--wrap, see CMakeLists.txt).
#include <Python.h>
#include <unistd.h>
#include <unwind.h>

extern "C" {

_Unwind_Reason_Code __real___gxx_personality_v0(int version, _Unwind_Action actions,
                                                _Unwind_Exception_Class exception_class,
                                                _Unwind_Exception* exception,
                                                _Unwind_Context* context);

_Unwind_Reason_Code __wrap___gxx_personality_v0(int version, _Unwind_Action actions,
                                                _Unwind_Exception_Class exception_class,
                                                _Unwind_Exception* exception,
                                                _Unwind_Context* context) {
  // A forced unwinding is no C++ exception: it comes of pthread_exit or pthread_cancel.
  while ((actions & _UA_FORCE_UNWIND) != 0 && Py_IsInitialized() == 0) pause();
  return __real___gxx_personality_v0(version, actions, exception_class, exception, context);
}

}  // extern "C"
