# `cmake --install` for C++ users: static libraries, public headers and find_package(kiln).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS kiln kiln_jit kiln_cache kiln_runtime EXPORT kiln_targets COMPONENT cpp)
install(DIRECTORY jit/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT cpp)

set(config_folder ${CMAKE_INSTALL_LIBDIR}/cmake/kiln)
install(EXPORT kiln_targets NAMESPACE kiln:: DESTINATION ${config_folder} COMPONENT cpp)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/kilnConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
configure_file(cmake/kilnConfig.cmake.in ${PROJECT_BINARY_DIR}/kilnConfig.cmake @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/kilnConfig.cmake ${PROJECT_BINARY_DIR}/kilnConfigVersion.cmake
  DESTINATION ${config_folder} COMPONENT cpp)
