# `cmake --install` for C++ and C users: the library, its headers, find_package(kiln), pkg-config.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Files that differ between the kinds of library are made in a folder of each target.
function(kiln_install target component)
  set(config_folder ${CMAKE_INSTALL_LIBDIR}/cmake/kiln)
  set(made ${PROJECT_BINARY_DIR}/${target})
  get_target_property(kind ${target} TYPE)

  install(TARGETS ${target} EXPORT ${target}_targets COMPONENT ${component} ${ARGN})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/jit/include/
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT ${component} ${ARGN})
  install(EXPORT ${target}_targets NAMESPACE kiln:: FILE kiln_targets.cmake
    DESTINATION ${config_folder} COMPONENT ${component} ${ARGN})

  write_basic_package_version_file(${made}/kilnConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)
  set(needs_libraries FALSE)
  if(kind STREQUAL "STATIC_LIBRARY")
    set(needs_libraries TRUE)
  endif()
  configure_file(${PROJECT_SOURCE_DIR}/cmake/kilnConfig.cmake.in ${made}/kilnConfig.cmake @ONLY)
  install(FILES ${made}/kilnConfig.cmake ${made}/kilnConfigVersion.cmake
    DESTINATION ${config_folder} COMPONENT ${component} ${ARGN})

  # Only one kind is installed, so that a static one's needs are everybody's.
  set(pc_folder ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX
    BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX}/${pc_folder} OUTPUT_VARIABLE up)
  set(requires "")
  set(libraries "")
  if(needs_libraries)
    set(requires "zlib")
    set(libraries ${CMAKE_CXX_IMPLICIT_LINK_LIBRARIES})
    list(FILTER libraries INCLUDE REGEX "^(stdc\\+\\+|c\\+\\+)$")
    list(APPEND libraries m ${CMAKE_DL_LIBS})
    list(TRANSFORM libraries PREPEND " -l")
    string(JOIN "" libraries ${libraries} " -pthread")
  endif()
  configure_file(${PROJECT_SOURCE_DIR}/cmake/kiln.pc.in ${made}/kiln.pc @ONLY)
  install(FILES ${made}/kiln.pc DESTINATION ${pc_folder} COMPONENT ${component} ${ARGN})
endfunction()
