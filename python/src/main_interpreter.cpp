// The entry of the module kiln._core. The one that pybind11 writes begins by taking the GIL of the
// main interpreter, which hangs in every other interpreter, so this entry first checks which
// interpreter it runs in.
#include <pybind11/pybind11.h>

extern "C" PyObject* init_by_pybind11();  // in module.cpp

extern "C" PYBIND11_EXPORT PyObject* PyInit__core() {
  if (PyInterpreterState_Get() == PyInterpreterState_Main()) return init_by_pybind11();
  PyErr_SetString(PyExc_ImportError,
                  "kiln can only be imported in the main interpreter, and this is a "
                  "subinterpreter; use threads, or processes with the start method spawn");
  return nullptr;
}
