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

# A static library of one room: every *.cpp below its folder.
function(kiln_add_room target)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS *.cpp)
  add_library(${target} STATIC ${sources})
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
  # Includes are written from the repository root.
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR})
  kiln_target_defaults(${target})
  if(NOT BUILD_SHARED_LIBS AND NOT KILN_BUILD_TESTS)  # the tests make both kinds of library
    target_compile_definitions(${target} PRIVATE KILN_HIDE_API)
  endif()
endfunction()
