# What every target of Kiln has in common.
find_package(Threads REQUIRED)

# Options of all our code. Warnings become errors through CMAKE_COMPILE_WARNING_AS_ERROR, which
# only the presets set: a user's newer compiler must not break the build.
function(kiln_target_defaults target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_compile_options(${target} PRIVATE -Wall -Wextra)
  # Inlined, GCC 12 finds faults in std::string's own operator+ (its bugs 105651 and 105329).
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(${target} PRIVATE
      -Wno-restrict -Wno-stringop-overflow -Wno-array-bounds)
  endif()
  set_target_properties(${target} PROPERTIES
    CXX_EXTENSIONS OFF
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON
    POSITION_INDEPENDENT_CODE ON)
endfunction()

# Reads headers once for many files, as they cost more than the code below them: with JOINED, by
# compiling files of one folder together, so that their unnamed namespaces must not clash; else by
# a precompiled header.
function(kiln_share_headers target)
  if(NOT KILN_SHARE_HEADERS)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 share "JOINED" "" "")
  if(share_JOINED)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
  else()
    target_precompile_headers(${target} PRIVATE "${PROJECT_SOURCE_DIR}/cmake/standard_headers.h")
  endif()
endfunction()

# A static library of one room: every *.cpp below its folder. JOINED: see kiln_share_headers.
function(kiln_add_room target)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS *.cpp)
  add_library(${target} STATIC ${sources})
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
  # Includes are written from the repository root.
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR})
  kiln_target_defaults(${target})
  kiln_share_headers(${target} ${ARGN})
  if(NOT BUILD_SHARED_LIBS AND NOT KILN_BUILD_TESTS)  # the tests make both kinds of library
    target_compile_definitions(${target} PRIVATE KILN_HIDE_API)
  endif()
endfunction()
