# Flags of everything we compile; system headers are excepted by being SYSTEM includes.
add_library(nxd_flags INTERFACE)
target_compile_options(nxd_flags INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Werror
  $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes>)
if(NXD_SANITIZE)
  # Tests themselves, targets with property nxd_is_test, are not checked for undefined behaviour: that
  # takes two fifths of the time to compile them.
  string(REPLACE "," ";" of_tests ${NXD_SANITIZE})
  list(REMOVE_ITEM of_tests undefined)
  list(TRANSFORM of_tests PREPEND -fsanitize=)
  string(REPLACE "," "$<COMMA>" of_libraries ${NXD_SANITIZE})
  target_compile_options(nxd_flags INTERFACE -fno-omit-frame-pointer -fno-sanitize-recover=all
    "$<IF:$<BOOL:$<TARGET_PROPERTY:nxd_is_test>>,${of_tests},-fsanitize=${of_libraries}>")
  target_link_options(nxd_flags INTERFACE -fsanitize=${NXD_SANITIZE})
endif()

if(NXD_FUZZ)
  target_compile_options(nxd_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# Where ccache can keep nothing, it ends with an error and so would each compilation: builders of packages have
# no home.
find_program(NXD_CCACHE ccache)
if(NXD_CCACHE)
  execute_process(COMMAND sh -c "d=$(\"$1\" --get-config cache_dir) && mkdir -p \"$d\" && test -w \"$d\"" sh ${NXD_CCACHE}
    RESULT_VARIABLE without_ccache ERROR_QUIET)
  if(without_ccache EQUAL 0)
    set(launcher sh ${PROJECT_SOURCE_DIR}/cmake/ccache_compile.sh ${NXD_CCACHE} ${PROJECT_SOURCE_DIR})
    set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
    set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  else()
    message(STATUS "ccache is left out, since it can keep nothing: set CCACHE_DIR")
  endif()
endif()

find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS C CXX)
find_package(nlohmann_json REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)
pkg_check_modules(SODIUM REQUIRED IMPORTED_TARGET libsodium)
# Its header alone: the hash is compiled in.
pkg_check_modules(XXHASH REQUIRED libxxhash)
# Debian's dnnl-config.cmake insists on OpenCL's development files, which nothing here uses.
find_library(NXD_DNNL_LIBRARY dnnl REQUIRED)
find_path(NXD_DNNL_INCLUDE oneapi/dnnl/dnnl.hpp REQUIRED)
# Debian's Gloo ships a library and headers, but no package file that names them.
find_library(NXD_GLOO_LIBRARY gloo REQUIRED)
find_path(NXD_GLOO_INCLUDE gloo/context.h REQUIRED)
if(NXD_BUILD_ENGINE)
  find_package(Torch REQUIRED)
endif()
