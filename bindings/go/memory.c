#include "memory.h"

#include <stdlib.h>
#include <string.h>

enum { kAlignment = 64 };

nxdgo_memory_t* nxdgo_memory_new(size_t size) {
  const size_t rounded = (size / kAlignment + 1) * kAlignment;
  nxdgo_memory_t* memory = malloc(sizeof *memory);
  void* data = rounded > size ? aligned_alloc(kAlignment, rounded) : NULL;
  if (!memory || !data) {
    free(memory);
    free(data);
    return NULL;
  }
  memset(data, 0, rounded);
  memory->refs = 1;
  memory->data = data;
  return memory;
}

void nxdgo_memory_retain(nxdgo_memory_t* memory) {
  __atomic_add_fetch(&memory->refs, 1, __ATOMIC_RELAXED);
}

void nxdgo_memory_release(void* object) {
  nxdgo_memory_t* memory = object;
  if (__atomic_sub_fetch(&memory->refs, 1, __ATOMIC_ACQ_REL) > 0) return;
  free(memory->data);
  free(memory);
}
