# Installed files, and where consumers find them. Everything refers to its own place, so that an
# installed tree can be moved. Components are the packages of nxd_packages.cmake.
include(CMakePackageConfigHelpers)
include(cmake/nxd_pages.cmake)

set(nxd_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/nxd)
install(TARGETS nxd_core EXPORT nxdTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  COMPONENT libraries NAMELINK_COMPONENT development)
if(TARGET nxd)
  # libnxd_core lies beside libnxd.
  set_target_properties(nxd PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS nxd EXPORT nxdTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    COMPONENT libraries NAMELINK_SKIP)
  configure_file(cmake/libnxd.so.in ${PROJECT_BINARY_DIR}/link/libnxd.so @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/link/libnxd.so DESTINATION ${CMAKE_INSTALL_LIBDIR}
    COMPONENT development)
endif()
install(EXPORT nxdTargets NAMESPACE nxd:: DESTINATION ${nxd_package_dir} COMPONENT development)
install(DIRECTORY include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
  FILES_MATCHING PATTERN "*.h")
# The same as one file, for projects that keep a copy of it.
file(GLOB nxd_headers CONFIGURE_DEPENDS include/*.h include/nxd/*.h)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${nxd_headers})
execute_process(COMMAND ${PROJECT_SOURCE_DIR}/scripts/single_header ${PROJECT_BINARY_DIR}/nxd_single.h
  COMMAND_ERROR_IS_FATAL ANY)
install(FILES ${PROJECT_BINARY_DIR}/nxd_single.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  COMPONENT development)

configure_package_config_file(cmake/nxdConfig.cmake.in ${PROJECT_BINARY_DIR}/nxdConfig.cmake
  INSTALL_DESTINATION ${nxd_package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/nxdConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/nxdConfig.cmake ${PROJECT_BINARY_DIR}/nxdConfigVersion.cmake
  DESTINATION ${nxd_package_dir} COMPONENT development)

# A directory below the prefix is found from the place of the file, if that is below it too.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  set(NXD_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
else()
  file(RELATIVE_PATH NXD_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  set(NXD_PC_PREFIX "\${pcfiledir}/${NXD_PC_PREFIX}")
endif()
foreach(kind LIBDIR INCLUDEDIR)
  set(NXD_PC_${kind} ${CMAKE_INSTALL_${kind}})
  if(NOT IS_ABSOLUTE "${NXD_PC_${kind}}")
    set(NXD_PC_${kind} "\${prefix}/${NXD_PC_${kind}}")
  endif()
endforeach()
foreach(package nxd-core nxd)
  if(package STREQUAL nxd-core OR TARGET nxd)
    configure_file(pkgconfig/${package}.pc.in ${PROJECT_BINARY_DIR}/${package}.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/${package}.pc
      DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
  endif()
endforeach()

# Bindings are installed as sources, which each language builds in its own way.
foreach(package rust/nxd-sys rust/nxd go julia/NXD python/nxd)
  if(EXISTS ${PROJECT_SOURCE_DIR}/bindings/${package})
    install(DIRECTORY bindings/${package}/ DESTINATION ${CMAKE_INSTALL_DATADIR}/nxd/${package}
      COMPONENT development FILES_MATCHING
      REGEX "/(tests?|target|bench|testdata|__pycache__|\\.[^/]*)$" EXCLUDE
      REGEX "(_test\\.go|\\.pyc|Manifest\\.toml)$" EXCLUDE
      PATTERN "*")
  endif()
  get_filename_component(language ${package} DIRECTORY)
  if(language AND EXISTS ${PROJECT_SOURCE_DIR}/bindings/${language}/README.md)
    nxd_install_page(bindings/${language}/README.md ${CMAKE_INSTALL_DATADIR}/nxd/${language})
  endif()
endforeach()
install(FILES bindings/python/pyproject.toml DESTINATION ${CMAKE_INSTALL_DATADIR}/nxd/python
  COMPONENT development)
install(DIRECTORY bindings/python/examples DESTINATION ${CMAKE_INSTALL_DATADIR}/nxd/python
  COMPONENT development FILES_MATCHING PATTERN "*.py")

file(GLOB nxd_pages CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} docs/*.md)
foreach(page ${nxd_pages})
  nxd_install_page(${page} ${CMAKE_INSTALL_DOCDIR}/docs)
endforeach()
nxd_install_page(README.md ${CMAKE_INSTALL_DOCDIR})
nxd_install_page(CHANGELOG.md ${CMAKE_INSTALL_DOCDIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT development)
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT development
  FILES_MATCHING PATTERN "*.c" PATTERN "*.h" PATTERN "*.cpp" PATTERN "*.py" PATTERN "*.md"
  PATTERN "*.rs" PATTERN "Cargo.lock" PATTERN "requirements.txt" PATTERN "*.go" PATTERN "*.jl"
  PATTERN "Project.toml" PATTERN "__pycache__" EXCLUDE PATTERN "target" EXCLUDE)
# Installs an example's recipe, which names the place of a binding, with that of the installed one.
function(nxd_install_recipe example file language)
  file(READ examples/${example}/${file} recipe)
  file(RELATIVE_PATH place ${CMAKE_INSTALL_FULL_DOCDIR}/examples/${example}
    ${CMAKE_INSTALL_FULL_DATADIR}/nxd/${language})
  string(REPLACE "../../bindings/${language}" "${place}" recipe "${recipe}")
  file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/${example}/${file} CONTENT "${recipe}")
  install(FILES ${PROJECT_BINARY_DIR}/${example}/${file}
    DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples/${example} COMPONENT development)
endfunction()
nxd_install_recipe(candle Cargo.toml rust)
nxd_install_recipe(go go.mod go)
