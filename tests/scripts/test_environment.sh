#!/usr/bin/env bash
# nxd_environment_table lists every variable that a source file reads, and no other but for those that
# are read to say that they have no effect.
# usage: test_environment.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
cd "$1/src"

read_names() {
  grep -rhoE '\b(get|get_int|get_positive|get_flag|getenv|int_of_environment)\("[A-Z][A-Za-z0-9_]+"' . | cut -d'"' -f2
  # Names that several places use are constants.
  grep -rhE '\b(get|get_int|getenv)\(k[A-Z][A-Za-z]*\)' . | grep -oE 'get(_int|env)?\(k[A-Za-z]+' |
    cut -d'(' -f2 | sort -u | while read -r constant; do
      grep -rhoE "\b$constant = \"[A-Z][A-Za-z0-9_]+\"" . | cut -d'"' -f2
    done
  # Readers of the launcher, which take one name or two, and a choice between two.
  find . -name '*.cpp' -exec cat {} + | tr '\n' ' ' |
    grep -oE '\b(number_here|read_place)\(env, l, +"[A-Z_]+"(, +"[A-Z_]+")?|return env.get\("[A-Z_]+"\) \? "[A-Z_]+" : "[A-Z_]+"' |
    grep -oE '"[A-Z][A-Z0-9_]{3,}"' | tr -d '"'
  # Names that a loop reads one after another.
  find . -name '*.cpp' -exec cat {} + | tr '\n' ' ' | grep -oE 'for \(const char\* \w+ : +\{[^}]*\}' |
    grep -oE '"[A-Z][A-Z0-9_]{3,}"' | tr -d '"'
  # Variables of the device that do more than a warning.
  tr '\n' ' ' < core/base/device_variables.cpp |
    grep -oE '\{"[A-Z0-9_]+", VariableUse::(kRead|kNeuron|kNeuronOrReplay),' | cut -d'"' -f2
}
listed_names() { grep -oE '^ +(return )?"[A-Z][A-Za-z0-9_]+\\t' core/base/environment.cpp | grep -oE '[A-Z][A-Za-z0-9_]+'; }

difference=$(diff <(read_names | sort -u) <(listed_names | sort -u)) || {
  echo "variables read (<) and listed (>) differ:"
  echo "$difference"
  exit 1
}
[[ $(read_names | sort -u | wc -l) -ge 12 ]] || { echo "found too few variables: did the readers' names change?"; exit 1; }
