/* Memory of arrays, counted: Go has one count, and each tensor over it another. */
#ifndef NXDGO_MEMORY_H
#define NXDGO_MEMORY_H

#include <stddef.h>
#include <stdint.h>

typedef struct nxdgo_memory {
  int64_t refs; /* 0: not counted */
  void* data;   /* aligned to 64 bytes */
} nxdgo_memory_t;

/* Zeros; NULL when there is no memory. */
nxdgo_memory_t* nxdgo_memory_new(size_t size);
void nxdgo_memory_retain(nxdgo_memory_t* memory);
void nxdgo_memory_release(void* memory);

#endif /* NXDGO_MEMORY_H */
