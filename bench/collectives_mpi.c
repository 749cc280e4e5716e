/* The collectives of an MPI library in the loop of collectives_loop.h. Built by
 * scripts/bench_collectives with the compiler wrapper of each MPI that is installed. */
#include "collectives_loop.h"

#include <mpi.h>

static int world_rank, world_size;

static const char* result(int code) {
  static char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (code == MPI_SUCCESS) return NULL;
  MPI_Error_string(code, text, &length);
  return text;
}

static int ping_pong(void* send, void* recv, int bytes) {
  const MPI_Comm world = MPI_COMM_WORLD;
  int code = MPI_SUCCESS;
  if (world_rank == 0) {
    code = MPI_Send(send, bytes, MPI_BYTE, 1, 0, world);
    if (code == MPI_SUCCESS) code = MPI_Recv(recv, bytes, MPI_BYTE, 1, 0, world, MPI_STATUS_IGNORE);
  } else if (world_rank == 1) {
    code = MPI_Recv(recv, bytes, MPI_BYTE, 0, 0, world, MPI_STATUS_IGNORE);
    if (code == MPI_SUCCESS) code = MPI_Send(recv, bytes, MPI_BYTE, 0, 0, world);
  }
  return code;
}

static const char* call(const case_t* what, void* send, void* recv) {
  const MPI_Comm world = MPI_COMM_WORLD;
  if (what->is_bf16) return "MPI has no bf16";
  const int n = (int)elements_of(what);
  const int part = n / world_size;
  switch (what->operation) {
    case ALL_REDUCE: return result(MPI_Allreduce(MPI_IN_PLACE, recv, n, MPI_FLOAT, MPI_SUM, world));
    case REDUCE_SCATTER:
      return result(MPI_Reduce_scatter_block(send, recv, part, MPI_FLOAT, MPI_SUM, world));
    case ALL_GATHER:
      return result(MPI_Allgather(send, part, MPI_FLOAT, recv, part, MPI_FLOAT, world));
    case BROADCAST: return result(MPI_Bcast(recv, n, MPI_FLOAT, 0, world));
    case ALL_TO_ALL:
      return result(MPI_Alltoall(send, part, MPI_FLOAT, recv, part, MPI_FLOAT, world));
    case PING_PONG: return result(ping_pong(send, recv, (int)what->bytes));
    default: return result(MPI_Barrier(world));
  }
}

static const char* barrier(void) { return result(MPI_Barrier(MPI_COMM_WORLD)); }

static const char* largest(double* values, size_t count) {
  return result(
      MPI_Allreduce(MPI_IN_PLACE, values, (int)count, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
}

int main(int argc, char** argv) {
  arguments_t a = {.cases = "all_reduce:f32:4096", .label = "MPI", .seconds = 0.2};
  MPI_Init(&argc, &argv);
  static const struct option options[] = {COMMON_OPTIONS, {NULL, 0, NULL, 0}};
  for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
    if (!take_option(&a, c)) MPI_Abort(MPI_COMM_WORLD, 2);
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);
  if (a.pin) pin_rank(world_rank);

  const library_t library = {.label = a.label,
                             .rank = world_rank,
                             .size = world_size,
                             .call = call,
                             .barrier = barrier,
                             .largest = largest};
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(version, &length);
  for (char* c = version; *c; ++c) {
    if (*c == '\t') *c = ' ';
  }
  write_version(&library, &a, version);
  const size_t bytes = largest_bytes(a.cases);
  void* send = malloc(bytes);
  void* recv = malloc(bytes);
  const subject_t subject = {library, send, recv};
  const int code = send && recv ? run_cases(&subject, 1, &a) : 1;
  free(send);
  free(recv);
  MPI_Finalize();
  return code;
}
