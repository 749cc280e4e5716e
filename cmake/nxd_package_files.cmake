# Run by CPack for what it has staged: adds what Debian wants of each package, and takes out the run
# paths that an installed tree needs only where the loader does not look by itself.
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
foreach(component libraries development tools)
  string(TOUPPER ${component} upper)
  set(package ${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
  set(root ${CPACK_TEMPORARY_DIRECTORY}/${component}/usr)
  if(NOT EXISTS ${root})
    continue()
  endif()
  set(documents ${root}/share/doc/${package})
  file(MAKE_DIRECTORY ${documents})
  file(WRITE ${documents}/copyright
    "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n"
    "Upstream-Name: libnxd\n\nFiles: *\nCopyright: 2026 The libnxd authors\nLicense: Apache-2.0\n"
    " The text is in /usr/share/common-licenses/Apache-2.0.\n")
  file(WRITE ${documents}/changelog.Debian
    "libnxd (${CPACK_PACKAGE_VERSION}-1) unstable; urgency=medium\n\n  * Release ${CPACK_PACKAGE_VERSION}.\n\n"
    " -- ${CPACK_PACKAGE_CONTACT}  ${date}\n")
  execute_process(COMMAND gzip -9nf ${documents}/changelog.Debian COMMAND_ERROR_IS_FATAL ANY)
  file(GLOB_RECURSE binaries ${root}/bin/* ${root}/lib/*.so.${CPACK_PACKAGE_VERSION})
  foreach(binary ${binaries})
    file(RPATH_REMOVE FILE ${binary})
  endforeach()
endforeach()
