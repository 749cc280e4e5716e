// An OpenMP runtime that counts the threads it is asked for, and makes none.
extern "C" {
int counted_regions = 0;
unsigned counted_threads = 0;

void GOMP_parallel(void (*region)(void*), void* data, unsigned threads, unsigned) {
  ++counted_regions;
  counted_threads = threads;
  region(data);
}
}
