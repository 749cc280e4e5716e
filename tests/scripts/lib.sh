# shellcheck shell=bash
# What the script tests have in common. They source it:  . "$(dirname "$0")/lib.sh"

# skip_part WHAT WHY REMEDY: says that a part of a test is left out, in a line that scripts/test lists.
# REMEDY: "install PACKAGE", or what else would let it run.
skip_part() {
  echo "skip: $1: $2; $3"
}

# skip WHY REMEDY: leaves out all (the rest) of this test, which ctest counts as skipped.
skip() {
  local name
  name=$(basename "$0" .sh)
  skip_part "${name#test_}${part:+ $part}" "$@"
  exit 77
}

# need_commands COMMAND[:PACKAGE]...: PACKAGE where it has another name.
need_commands() {
  local entry
  for entry in "$@"; do
    command -v "${entry%%:*}" > /dev/null || skip "${entry%%:*} is missing" "install ${entry#*:}"
  done
}

# need_python MODULE...: of Debian's Python.
need_python() {
  [[ -x /usr/bin/python3 ]] || skip "python3 is missing" "install python3"
  local module
  for module in "$@"; do
    /usr/bin/python3 -c "import $module" 2> /dev/null || skip "python3-$module is missing" "install python3-$module"
  done
}

# need_built FILE: of the build directory, which a build without the engine may lack.
need_built() {
  [[ -e $1 ]] || skip "this build has no $(basename "$1")" "build it with scripts/build"
}

# loads_no_libtorch PROGRAM: fails where it does. A mere "! ldd ... | grep" would never end a script.
loads_no_libtorch() {
  local libraries
  libraries=$(ldd "$1") || { echo "ldd cannot read $1: $libraries"; return 1; }
  if grep -Ei "libtorch|libc10" <<< "$libraries"; then
    echo "$1 loads libtorch"
    return 1
  fi
}

# find_c_examples BUILD_DIR: the directory of the examples in C, those of the build or the installed ones.
find_c_examples() {
  local directory
  for directory in "$1/examples/c" "${NXD_PREFIX:-/nowhere}/examples"; do
    [[ ! -x $directory/train_llama ]] || { echo "$directory"; return; }
  done
}
