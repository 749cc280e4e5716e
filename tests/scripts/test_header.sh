#!/usr/bin/env bash
# nxd.h compiles as C99, C11 and C++17 with gcc and clang, alone and after an older dlpack.h that has
# the same include guard; so does each topic, and all of it as one file, which declares the same. A
# topic has at most 450 lines.
# usage: test_header.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
. "$(dirname "$0")/lib.sh"
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo '#include "nxd.h"' > "$work/alone.c"
# Declarations that a program with DLPack 0.6 has seen by the time it includes nxd.h.
cat > "$work/dlpack06.h" <<'EOF'
#ifndef DLPACK_DLPACK_H_
#define DLPACK_DLPACK_H_
#include <stddef.h>
#include <stdint.h>
#define DLPACK_VERSION 60
typedef struct { int32_t device_type; int device_id; } DLDevice;
typedef struct { uint8_t code; uint8_t bits; uint16_t lanes; } DLDataType;
typedef struct {
  void *data; DLDevice device; int ndim; DLDataType dtype; int64_t *shape; int64_t *strides;
  uint64_t byte_offset;
} DLTensor;
typedef struct DLManagedTensor {
  DLTensor dl_tensor; void *manager_ctx; void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;
#endif
EOF
printf '#include "dlpack06.h"\n#include "nxd.h"\n' > "$work/after.c"
cp "$work/alone.c" "$work/alone.cpp"
cp "$work/after.c" "$work/after.cpp"
inputs=(alone after single)
"$source/scripts/single_header" "$work/nxd_single.h"
{ echo "// a line before"; "$source/scripts/single_header"; } > "$work/behind"
sed 1d "$work/behind" | cmp - "$work/nxd_single.h" || { echo "FAILED: a line before nxd_single.h is lost"; exit 1; }
mkdir -p "$work/cut/scripts" "$work/cut/include"
cp "$source"/scripts/{single_header,options.sh} "$work/cut/scripts"
echo '#include "nxd/absent.h"' > "$work/cut/include/nxd.h"
if "$work/cut/scripts/single_header" "$work/cut/out" 2> "$work/why"; then echo "FAILED: a topic may be absent"; exit 1; fi
grep -q 'cannot read .*absent\.h' "$work/why"
echo '#include "nxd_single.h"' | tee "$work/single.c" > "$work/single.cpp"
# Without a directory to search: an umbrella finds its topics beside it.
for header in "$source"/include/nxd/*.h; do
  name=$(basename "$header" .h)
  [[ $name == dlpack ]] && continue
  echo "#include \"$header\"" | tee "$work/topic_$name.c" > "$work/topic_$name.cpp"
  inputs+=("topic_$name")
done
aten=$(echo '#include <ATen/dlpack.h>' | g++ -x c++ -M - 2>/dev/null | grep -o '[^ ]*ATen/dlpack.h' || true)
if [[ -n $aten ]]; then
  printf '#include <ATen/dlpack.h>\n#include "nxd.h"\n' | tee "$work/aten.c" > "$work/aten.cpp"
  inputs+=(aten)
fi

flags=(-fsyntax-only -Wall -Wextra -Wpedantic -Werror)
failed=0
declared() { gcc -E -P "$@" | tr -d '\n' | grep -o '\bnxd_[a-z0-9_]*(' | sort; }
diff <(declared -I"$source/include" "$work/alone.c") <(declared "$work/single.c") ||
  { echo "FAILED: nxd_single.h declares something else"; failed=1; }
for header in "$source"/include/nxd.h "$source"/include/nxd/*.h; do
  (($(wc -l < "$header") <= 450)) || { echo "FAILED: $header has more than 450 lines"; failed=1; }
done
compile() {
  "$@" || { echo "FAILED: $*"; failed=1; }
}
clang=clang-14
command -v $clang > /dev/null || { skip_part "header by clang" "clang-14 is missing" "install clang-14"; clang=; }
# Comments are of the parameters that their functions have.
[[ -z $clang ]] || compile $clang -std=c99 -Wdocumentation "${flags[@]}" -I"$source/include" "$work/alone.c"
for input in "${inputs[@]}"; do
  search=(-I"$source/include" -I"$work")
  case $input in topic_*) search=() ;; single) search=(-I"$work") ;; esac
  for compiler in gcc $clang; do
    for standard in c99 c11; do
      compile $compiler -std=$standard -Wstrict-prototypes "${flags[@]}" "${search[@]}" "$work/$input.c"
    done
  done
  for compiler in g++ ${clang/clang/clang++}; do
    compile $compiler -std=c++17 "${flags[@]}" "${search[@]}" "$work/$input.cpp"
  done
done
exit $failed
