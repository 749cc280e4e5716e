# Installs pages of the tree, with links that lead to where things are when they are installed: bindings
# and the header lie elsewhere then, and tests and the rules for changes do not come along.
file(RELATIVE_PATH nxd_bindings_from_pages /${CMAKE_INSTALL_DOCDIR} /${CMAKE_INSTALL_DATADIR}/nxd)
file(RELATIVE_PATH nxd_include_from_pages /${CMAKE_INSTALL_DOCDIR} /${CMAKE_INSTALL_INCLUDEDIR})

# nxd_install_page(PAGE DESTINATION)     PAGE: relative to the tree
function(nxd_install_page page destination)
  set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${page})
  file(READ ${PROJECT_SOURCE_DIR}/${page} text)
  foreach(up "" "../")
    string(REPLACE "](${up}bindings/" "](${up}${nxd_bindings_from_pages}/" text "${text}")
    string(REPLACE "](${up}include/" "](${up}${nxd_include_from_pages}/" text "${text}")
  endforeach()
  string(REGEX REPLACE "\\[([^]]*)\\]\\((\\.\\./)?(tests|CONTRIBUTING)[^)]*\\)" "\\1" text "${text}")
  file(WRITE ${PROJECT_BINARY_DIR}/pages/${page} "${text}")
  install(FILES ${PROJECT_BINARY_DIR}/pages/${page} DESTINATION ${destination} COMPONENT development)
endfunction()
