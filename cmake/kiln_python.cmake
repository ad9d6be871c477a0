# The Python interpreter: builds the module, and knows where pip put NVRTC and the CUDA headers.
# Sets Python_EXECUTABLE and KILN_SITE_PACKAGES (folders that hold pip's `nvidia` packages).

# The project's own virtual environment goes before a system Python.
if(NOT DEFINED Python_EXECUTABLE AND EXISTS "${PROJECT_SOURCE_DIR}/.venv/bin/python")
  set(Python_EXECUTABLE "${PROJECT_SOURCE_DIR}/.venv/bin/python" CACHE FILEPATH
    "Python that the module is built for")
endif()
if(KILN_BUILD_PYTHON)
  set(components Interpreter Development.Module)
else()
  set(components Interpreter)
endif()
find_package(Python 3.9 REQUIRED COMPONENTS ${components})

# A namespace package: one interpreter may see several folders of it (build isolation, user site).
set(list_sites [[
import importlib.util, os
spec = importlib.util.find_spec("nvidia")
paths = list(spec.submodule_search_locations or []) if spec else []
print(";".join(os.path.dirname(os.path.abspath(path)) for path in paths))
]])
execute_process(COMMAND "${Python_EXECUTABLE}" -c "${list_sites}"
  OUTPUT_VARIABLE KILN_SITE_PACKAGES OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
