# What is installed, and where consumers find it. Everything refers to its own place, so that an
# installed tree can be moved.
include(CMakePackageConfigHelpers)

set(nxd_installed nxd_core)
if(TARGET nxd)
  list(APPEND nxd_installed nxd)
  # libnxd_core lies beside libnxd.
  set_target_properties(nxd PROPERTIES INSTALL_RPATH "$ORIGIN")
endif()
set(nxd_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/nxd)
install(TARGETS ${nxd_installed} EXPORT nxdTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT nxdTargets NAMESPACE nxd:: DESTINATION ${nxd_package_dir})
install(FILES include/nxd.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES include/nxd/dlpack.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/nxd)

configure_package_config_file(cmake/nxdConfig.cmake.in ${PROJECT_BINARY_DIR}/nxdConfig.cmake
  INSTALL_DESTINATION ${nxd_package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/nxdConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/nxdConfig.cmake ${PROJECT_BINARY_DIR}/nxdConfigVersion.cmake
  DESTINATION ${nxd_package_dir})

file(RELATIVE_PATH NXD_PREFIX_FROM_PC /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
foreach(package nxd-core nxd)
  if(package STREQUAL nxd-core OR TARGET nxd)
    configure_file(pkgconfig/${package}.pc.in ${PROJECT_BINARY_DIR}/${package}.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/${package}.pc
      DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  endif()
endforeach()
