#!/usr/bin/env bash
# nxd.h alone compiles as C99, C11 and C++17 with gcc and clang, also after an older dlpack.h that
# has the same include guard.
# usage: test_header.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo '#include "nxd.h"' > "$work/alone.c"
# What a program that uses DLPack 0.6 has seen by the time it includes nxd.h.
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
inputs=(alone after)
aten=$(echo '#include <ATen/dlpack.h>' | g++ -x c++ -M - 2>/dev/null | grep -o '[^ ]*ATen/dlpack.h' || true)
if [[ -n $aten ]]; then
  printf '#include <ATen/dlpack.h>\n#include "nxd.h"\n' | tee "$work/aten.c" > "$work/aten.cpp"
  inputs+=(aten)
fi

flags=(-fsyntax-only -Wall -Wextra -Wpedantic -Werror -I"$source/include" -I"$work")
failed=0
compile() {
  "$@" || { echo "FAILED: $*"; failed=1; }
}
for input in "${inputs[@]}"; do
  for compiler in gcc clang-14; do
    for standard in c99 c11; do
      compile $compiler -std=$standard -Wstrict-prototypes "${flags[@]}" "$work/$input.c"
    done
  done
  for compiler in g++ clang++-14; do
    compile $compiler -std=c++17 "${flags[@]}" "$work/$input.cpp"
  done
done
exit $failed
