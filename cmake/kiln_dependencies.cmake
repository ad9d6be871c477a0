# Third-party code: zlib, nlohmann/json (headers), CUDA's headers. Where no packages can be
# installed, scripts/deps.sh fills .deps/ with them.
if(EXISTS "${PROJECT_SOURCE_DIR}/.deps/usr")
  list(APPEND CMAKE_PREFIX_PATH "${PROJECT_SOURCE_DIR}/.deps/usr")
endif()

find_package(ZLIB)
if(NOT ZLIB_FOUND)
  message(FATAL_ERROR "zlib was not found. Install it (Debian: apt install zlib1g-dev) or run "
    "scripts/deps.sh on a machine with a network and copy its .deps/ folder here.")
endif()

find_package(nlohmann_json 3.7 CONFIG QUIET)
if(NOT nlohmann_json_FOUND)
  find_path(KILN_JSON_INCLUDE_DIR nlohmann/json.hpp)
  if(NOT KILN_JSON_INCLUDE_DIR)
    message(FATAL_ERROR "nlohmann/json.hpp was not found. Install it (Debian: apt install "
      "nlohmann-json3-dev), pass -DKILN_JSON_INCLUDE_DIR=<folder that holds nlohmann/>, or fill "
      ".deps/ with scripts/deps.sh.")
  endif()
  add_library(nlohmann_json::nlohmann_json INTERFACE IMPORTED)
  target_include_directories(nlohmann_json::nlohmann_json SYSTEM INTERFACE
    "${KILN_JSON_INCLUDE_DIR}")
endif()

find_package(CudaHeaders REQUIRED)
