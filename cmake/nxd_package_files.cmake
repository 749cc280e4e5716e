# Run by CPack for what it has staged: adds what Debian wants of each package, and takes out the run
# paths that an installed tree needs only where the loader does not look by itself. A package is for
# all users, whatever the umask of the one who makes it.
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
  set(readable OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
  file(CHMOD ${documents}/copyright ${documents}/changelog.Debian.gz PERMISSIONS ${readable})
  file(GLOB_RECURSE paths LIST_DIRECTORIES true ${root}/*)  # CHMOD_RECURSE fails at links into another package
  foreach(path ${root} ${paths})
    if(IS_DIRECTORY ${path} AND NOT IS_SYMLINK ${path})
      file(CHMOD ${path} PERMISSIONS ${readable} OWNER_EXECUTE GROUP_EXECUTE WORLD_EXECUTE)
    endif()
  endforeach()
  file(GLOB_RECURSE binaries ${root}/bin/* ${root}/lib/*.so.${CPACK_PACKAGE_VERSION})
  foreach(binary ${binaries})
    file(RPATH_REMOVE FILE ${binary})
  endforeach()
endforeach()
