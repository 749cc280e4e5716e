# shellcheck shell=bash
# Scripts that take options and numbers tell of wrong ones alike, with status 2. They source it:
#   . "$(dirname "${BASH_SOURCE[0]}")/options.sh"

# reject WHY
reject() {
  echo "${0##*/}: $*" >&2
  exit 2
}

# usage: the comment that begins the script.
usage() {
  awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "$0" >&2
  exit 2
}

# need_value NAME [VALUE]...: NAME is an option or a variable; what stands behind the value does not matter.
need_value() { (($# > 1)) || reject "$1: expected a value"; }

# need_number LEAST NAME [VALUE]...
need_number() {
  need_value "${@:2}"
  [[ $3 =~ ^(0|[1-9][0-9]{0,17})$ ]] && (($3 >= $1)) || reject "$2: expected a number, $1 at least, got $3"
}

# need_word WORDS NAME [VALUE]...: one of them.
need_word() {
  need_value "${@:2}"
  [[ $3 && " $1 " == *" $3 "* && $3 != *" "* ]] || reject "$2: expected one of $1, got $3"
}
