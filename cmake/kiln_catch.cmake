# Catch2 as the target kiln_catch: version 3 (a library) or version 2 (one header). Our own
# tests/support/catch_main.cpp serves both, so that only Catch2's objects differ.
find_package(Catch2 QUIET CONFIG)
if(Catch2_FOUND)
  set(catch_target Catch2::Catch2)
else()
  find_path(KILN_CATCH2_INCLUDE_DIR NAMES catch2/catch.hpp catch2/catch_all.hpp)
  find_library(KILN_CATCH2_LIBRARY Catch2)
  if(NOT KILN_CATCH2_INCLUDE_DIR OR
      (EXISTS "${KILN_CATCH2_INCLUDE_DIR}/catch2/catch_all.hpp" AND NOT KILN_CATCH2_LIBRARY))
    message(FATAL_ERROR "Catch2 2.13 or 3 was not found (found headers: "
      "${KILN_CATCH2_INCLUDE_DIR}; version 3 also needs its library, found: "
      "${KILN_CATCH2_LIBRARY}). Install it (Debian: apt install catch2), fill .deps/ with "
      "scripts/deps.sh, or configure with -DKILN_BUILD_TESTS=OFF.")
  endif()
  add_library(kiln_catch_found INTERFACE)
  target_include_directories(kiln_catch_found SYSTEM INTERFACE "${KILN_CATCH2_INCLUDE_DIR}")
  if(KILN_CATCH2_LIBRARY)
    target_link_libraries(kiln_catch_found INTERFACE "${KILN_CATCH2_LIBRARY}")
  endif()
  set(catch_target kiln_catch_found)
endif()

# The main file is compiled once; tests use Catch2's header precompiled (version 2 costs seconds).
add_library(kiln_catch STATIC support/catch_main.cpp)
target_link_libraries(kiln_catch PUBLIC ${catch_target})
target_include_directories(kiln_catch PUBLIC ${PROJECT_SOURCE_DIR})
kiln_target_defaults(kiln_catch)
target_compile_options(kiln_catch PRIVATE -O1)  # 25 s with the build type's -O3
