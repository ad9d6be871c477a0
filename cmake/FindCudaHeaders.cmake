# Finds cuda.h and nvrtc.h and defines CudaHeaders::CudaHeaders. Headers only: the driver and NVRTC
# are opened with dlopen at run time, so neither nvcc nor libcuda is looked for.
set(hints)
foreach(root IN ITEMS "$ENV{CUDA_HOME}" "$ENV{CUDA_PATH}")
  if(root)
    list(APPEND hints "${root}/include" "${root}/targets/x86_64-linux/include")
  endif()
endforeach()
# pip's wheels: one folder since CUDA 13, one per package before.
foreach(site IN LISTS KILN_SITE_PACKAGES)
  file(GLOB folders "${site}/nvidia/cu[0-9]*/include")
  list(SORT folders COMPARE NATURAL ORDER DESCENDING)
  list(APPEND hints ${folders}
    "${site}/nvidia/cuda_runtime/include" "${site}/nvidia/cuda_nvrtc/include")
endforeach()
list(APPEND hints /usr/local/cuda/include /opt/cuda/include)

find_path(CudaHeaders_CUDA_DIR cuda.h HINTS ${hints})
find_path(CudaHeaders_NVRTC_DIR nvrtc.h HINTS ${hints})
mark_as_advanced(CudaHeaders_CUDA_DIR CudaHeaders_NVRTC_DIR)

include(FindPackageHandleStandardArgs)
set(cure "set CUDA_HOME to a CUDA toolkit of 12.4 or later")
if(Python_EXECUTABLE)
  set(cure "${Python_EXECUTABLE} -m pip install nvidia-cuda-runtime nvidia-cuda-nvrtc, or ${cure}")
else()
  string(APPEND cure ", or to a folder whose include/ holds the headers (pip install --target <F> \
nvidia-cuda-runtime nvidia-cuda-nvrtc puts them into <F>/nvidia/cu13)")
endif()
find_package_handle_standard_args(CudaHeaders
  REQUIRED_VARS CudaHeaders_CUDA_DIR CudaHeaders_NVRTC_DIR
  REASON_FAILURE_MESSAGE "cuda.h or nvrtc.h was not found in CUDA_HOME, the packages of Python, \
where it is used, or /usr/local/cuda. Cure: ${cure}.")

if(CudaHeaders_FOUND AND NOT TARGET CudaHeaders::CudaHeaders)
  add_library(CudaHeaders::CudaHeaders INTERFACE IMPORTED)
  target_include_directories(CudaHeaders::CudaHeaders SYSTEM INTERFACE
    "${CudaHeaders_CUDA_DIR}" "${CudaHeaders_NVRTC_DIR}")
endif()
