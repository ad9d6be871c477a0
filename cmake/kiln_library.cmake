# The library that C++ and C users link, libkiln.a or libkiln.so, made of the rooms' objects.
include(GNUInstallDirs)

# `target`: kiln, or another name for the kind that BUILD_SHARED_LIBS did not ask for.
function(kiln_add_library target kind)
  add_library(${target} ${kind}
    $<TARGET_OBJECTS:kiln_jit> $<TARGET_OBJECTS:kiln_cache> $<TARGET_OBJECTS:kiln_runtime>)
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/jit/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(${target} INTERFACE cxx_std_20)
  target_link_libraries(${target} PRIVATE ZLIB::ZLIB Threads::Threads ${CMAKE_DL_LIBS})
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME kiln EXPORT_NAME kiln LINKER_LANGUAGE CXX
    ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${target}
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${target})
  if(kind STREQUAL "SHARED")
    set(script ${PROJECT_BINARY_DIR}/kiln.map)
    configure_file(${PROJECT_SOURCE_DIR}/cmake/kiln.map.in ${script} @ONLY)
    target_link_options(${target} PRIVATE "LINKER:--version-script=${script}")
    set_target_properties(${target} PROPERTIES
      VERSION ${PROJECT_VERSION} SOVERSION ${KILN_ABI_VERSION} LINK_DEPENDS ${script})
  endif()
endfunction()

# kiln/c.h is the one place of the ABI's number.
file(STRINGS ${PROJECT_SOURCE_DIR}/jit/include/kiln/c.h abi_line REGEX "^#define KILN_ABI_VERSION ")
string(REGEX MATCH "[0-9]+" KILN_ABI_VERSION "${abi_line}")
