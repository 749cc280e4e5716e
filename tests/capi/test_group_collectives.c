/* Every collective, dtype and reduction against plain local computation. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/ranks.h"
#include "support/sanitized.h"

/* Counts that go inline, that do not, that no number of ranks divides, none at all, and more than
 * all buffers of a transport hold. */
static const size_t counts[] = {0, 1, 7, 512, 1000, 8193, 20011, 700001};
#define N_COUNTS (sizeof counts / sizeof *counts)
#define N_SHORT_COUNTS (N_COUNTS - 1)

/* Where the buffers lie. */
enum { kHeap, kArena, kSomeInArena };

/* With kSomeInArena it differs from rank to rank and from call to call. */
static int uses_arena(nxd_context_t* ctx, const void* memory, size_t bytes) {
  int32_t rank = 0;
  nxd_context_get_rank(ctx, &rank);
  const int kind = *(const int*)memory;
  return kind == kArena || (kind == kSomeInArena && (bytes + (size_t)rank) % 2 == 1);
}

static char* get(nxd_context_t* ctx, const void* memory, size_t bytes) {
  void* data = NULL;
  if (!uses_arena(ctx, memory, bytes)) return malloc(bytes);
  NXD_TEST_OK(nxd_arena_alloc(ctx, bytes, &data));
  return data;
}

static void put(nxd_context_t* ctx, const void* memory, size_t bytes, char* data) {
  if (uses_arena(ctx, memory, bytes)) {
    NXD_TEST_OK(nxd_arena_free(ctx, data));
  } else {
    free(data);
  }
}

static const nxd_dtype_t reducible[] = {NXD_DTYPE_F32, NXD_DTYPE_F64, NXD_DTYPE_BF16,
                                        NXD_DTYPE_F16, NXD_DTYPE_I32, NXD_DTYPE_I64};

static size_t size_of(nxd_dtype_t dtype) {
  switch (dtype) {
    case NXD_DTYPE_F64:
    case NXD_DTYPE_I64: return 8;
    case NXD_DTYPE_F32:
    case NXD_DTYPE_I32: return 4;
    case NXD_DTYPE_BF16:
    case NXD_DTYPE_F16:
    case NXD_DTYPE_I16: return 2;
    default: return 1;
  }
}

static int is_float(nxd_dtype_t dtype) {
  return dtype == NXD_DTYPE_F32 || dtype == NXD_DTYPE_F64 || dtype == NXD_DTYPE_BF16 ||
         dtype == NXD_DTYPE_F16;
}

/* Conversions of 16-bit floats by arithmetic alone, independent of the library's bit tricks. */
static double value_of16(uint16_t bits, int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) return mantissa ? (double)NAN : sign * (double)INFINITY;
  if (exponent == 0) return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * ldexp(1.0 + ldexp(mantissa, -mantissa_bits), exponent - bias);
}

/* The values of all of them: of bf16, then of f16. */
static double values16[2][1 << 16];

static void fill_values16(void) {
  for (size_t i = 0; i < 1 << 16; ++i) {
    values16[0][i] = value_of16((uint16_t)i, 8);
    values16[1][i] = value_of16((uint16_t)i, 5);
  }
}

static double decode16(uint16_t bits, int exponent_bits) {
  return values16[exponent_bits == 5][bits];
}

/* The 16-bit float nearest to a value, ties to even, found by bisection over the positive ones. */
static uint16_t encode16(double value, int exponent_bits) {
  const uint16_t infinity = (uint16_t)(((1 << exponent_bits) - 1) << (15 - exponent_bits));
  const uint16_t sign = signbit(value) ? 0x8000 : 0;
  const double magnitude = fabs(value);
  if (isnan(value)) return (uint16_t)(infinity | (infinity >> 1));
  uint16_t low = 0, high = infinity;
  while (high - low > 1) {
    const uint16_t middle = (uint16_t)((low + high) / 2);
    if (decode16(middle, exponent_bits) <= magnitude) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const double below = decode16(low, exponent_bits);
  double above = decode16(high, exponent_bits);
  if (isinf(above)) above = below + (below - decode16((uint16_t)(low - 1), exponent_bits));
  const double to_below = magnitude - below, to_above = above - magnitude;
  const int up = to_above < to_below || (to_above == to_below && (low & 1));
  return (uint16_t)(sign | (up ? high : low));
}

static double load(const void* data, size_t i, nxd_dtype_t dtype) {
  switch (dtype) {
    case NXD_DTYPE_F32: return ((const float*)data)[i];
    case NXD_DTYPE_F64: return ((const double*)data)[i];
    case NXD_DTYPE_BF16: return decode16(((const uint16_t*)data)[i], 8);
    case NXD_DTYPE_F16: return decode16(((const uint16_t*)data)[i], 5);
    case NXD_DTYPE_I32: return ((const int32_t*)data)[i];
    default: return (double)((const int64_t*)data)[i];
  }
}

static void store(void* data, size_t i, nxd_dtype_t dtype, double value) {
  switch (dtype) {
    case NXD_DTYPE_F32: ((float*)data)[i] = (float)value; break;
    case NXD_DTYPE_F64: ((double*)data)[i] = value; break;
    case NXD_DTYPE_BF16: ((uint16_t*)data)[i] = encode16((float)value, 8); break;
    case NXD_DTYPE_F16: ((uint16_t*)data)[i] = encode16((float)value, 5); break;
    case NXD_DTYPE_I32: ((int32_t*)data)[i] = (int32_t)value; break;
    default: ((int64_t*)data)[i] = (int64_t)value;
  }
}

/* Inputs come again after so many elements, and so does what they add up to. */
#define PERIOD 65521u

static size_t index_of(int rank, size_t i) {
  return ((uint64_t)rank * 2654435761u + i * 40503u + 12345u) % PERIOD;
}

static double value_at(size_t index) { return (double)index * (6.0 / PERIOD) - 3.0; }

/* All inputs as bf16 and as f16, which take long to find. */
static uint16_t inputs16[2][PERIOD];

static void fill_inputs16(void) {
  for (size_t i = 0; i < PERIOD; ++i) {
    inputs16[0][i] = encode16((float)value_at(i), 8);
    inputs16[1][i] = encode16((float)value_at(i), 5);
  }
}

/* Element i of a rank's input. Floats get fractions, so that the order of a sum shows. */
static double element(int rank, size_t i, nxd_dtype_t dtype) {
  const size_t index = index_of(rank, i);
  switch (dtype) {
    case NXD_DTYPE_F64: return value_at(index);
    case NXD_DTYPE_F32: return (float)value_at(index);
    case NXD_DTYPE_BF16: return decode16(inputs16[0][index], 8);
    case NXD_DTYPE_F16: return decode16(inputs16[1][index], 5);
    default: return (double)(index % 61) - 30;
  }
}

static void fill(void* data, size_t n, size_t first, int rank, nxd_dtype_t dtype) {
  for (size_t i = 0; i < n; ++i) {
    const int is_16_bits = dtype == NXD_DTYPE_BF16 || dtype == NXD_DTYPE_F16;
    if (is_16_bits) {
      ((uint16_t*)data)[i] = inputs16[dtype == NXD_DTYPE_F16][index_of(rank, first + i)];
    } else {
      store(data, i, dtype, element(rank, first + i, dtype));
    }
  }
}

static double combine(double a, double b, nxd_dtype_t dtype, nxd_reduce_t reduce) {
  const int in_f32 = is_float(dtype) && dtype != NXD_DTYPE_F64;
  if (reduce == NXD_REDUCE_MAX) return b > a ? b : a;
  if (reduce == NXD_REDUCE_MIN) return b < a ? b : a;
  if (reduce == NXD_REDUCE_PROD) return in_f32 ? (double)((float)a * (float)b) : a * b;
  return in_f32 ? (double)((float)a + (float)b) : a + b;
}

/* True if a transport that adds up within hosts first does so. */
static int sums_by_host(nxd_group_t* group) {
  nxd_transport_t transport = NXD_TRANSPORT_AUTO;
  NXD_TEST_OK(nxd_group_get_transport(group, &transport));
  return transport == NXD_TRANSPORT_HIERARCHICAL;
}

/* True if so many members between which Gloo carries the data are added up as many. */
static int adds_as_many(nxd_group_t* group, int members) {
  nxd_transport_t transport = NXD_TRANSPORT_AUTO;
  NXD_TEST_OK(nxd_group_get_transport(group, &transport));
  const char* many = getenv("NXD_LARGE_GROUP");
  return transport != NXD_TRANSPORT_SHARED_MEMORY && members >= (many ? atoi(many) : 33);
}

/* A balanced tree over neighbours: pairs are joined until the number is a power of two, from the
 * front, and then all. */
static double add_as_tree(double* parts, int n, nxd_dtype_t dtype, nxd_reduce_t reduce) {
  int leaves = 1;
  while (leaves * 2 <= n) leaves *= 2;
  for (int i = 0; i < leaves; ++i) {
    const int pairs = n - leaves;
    parts[i] =
        i < pairs ? combine(parts[2 * i], parts[2 * i + 1], dtype, reduce) : parts[i + pairs];
  }
  for (; leaves > 1; leaves /= 2)
    for (int i = 0; i < leaves / 2; ++i)
      parts[i] = combine(parts[2 * i], parts[2 * i + 1], dtype, reduce);
  return parts[0];
}

/* The value that ranks must agree on, 16-bit floats in f32: in rank order within hosts of so many
 * ranks, and then over the hosts, in order or, of many, as a tree. */
static void expect(void* out, size_t n, size_t first, int size, int per_host, int many,
                   nxd_dtype_t dtype, nxd_reduce_t reduce) {
  const int in_f32 = is_float(dtype) && dtype != NXD_DTYPE_F64;
  double parts[16];
  for (size_t i = 0; i < n && i < PERIOD; ++i) {
    int hosts = 0;
    for (int start = 0; start < size; start += per_host) {
      double host = 0;
      for (int rank = start; rank < size && rank < start + per_host; ++rank) {
        const double x = element(rank, first + i, dtype);
        host = rank == start ? x : combine(host, x, dtype, reduce);
      }
      parts[hosts++] = host;
    }
    double all = parts[0];
    for (int host = 1; host < hosts && !many; ++host)
      all = combine(all, parts[host], dtype, reduce);
    if (many) all = add_as_tree(parts, hosts, dtype, reduce);
    if (reduce == NXD_REDUCE_AVG) all = in_f32 ? (double)((float)all / (float)size) : all / size;
    store(out, i, dtype, all);
  }
  const size_t item = size_of(dtype), period = PERIOD * item;
  for (size_t done = period; done < n * item; done += period) {
    const size_t left = n * item - done;
    memcpy((char*)out + done, out, left < period ? left : period);
  }
}

static void check_bytes(const char* what, const void* got, const void* want, size_t n, size_t count,
                        nxd_dtype_t dtype, nxd_reduce_t reduce) {
  if (n == 0 || memcmp(got, want, n) == 0) return;
  size_t at = 0;
  while (((const char*)got)[at] == ((const char*)want)[at]) ++at;
  nxd_test_fail(__FILE__, __LINE__, "%s of %zu, dtype %d, reduce %d: byte %zu differs", what, count,
                dtype, reduce, at);
}

/* True over the transport that one host's ranks choose by themselves, which tries all counts with
 * all dtypes and reductions, but under sanitizers. The others add up by the same kernels, in
 * another order. */
static int tries_all(void) {
  return !kSanitized && !getenv("NXD_TRANSPORT") && !getenv("NXD_TEST_RANKS_PER_HOST");
}

static void reductions(nxd_context_t* ctx, int rank, int size, void* memory) {
  nxd_group_t* world = NULL;
  if (!NXD_TEST_OK(nxd_context_get_world_group(ctx, &world))) return;
  const char* ranks_per_host = getenv("NXD_TEST_RANKS_PER_HOST");
  const int by_host = sums_by_host(world) && ranks_per_host;
  const int per_host = by_host ? atoi(ranks_per_host) : 1;
  const int many = adds_as_many(world, (size + per_host - 1) / per_host);
  /* Hosts of unequal sizes scatter by Gloo alone. */
  const int per_scatter = size % per_host == 0 ? per_host : 1;
  const int many_scatter = adds_as_many(world, size / per_scatter);
  for (size_t d = 0; d < sizeof reducible / sizeof *reducible; ++d) {
    for (nxd_reduce_t reduce = NXD_REDUCE_SUM; reduce <= NXD_REDUCE_PROD; ++reduce) {
      const nxd_dtype_t dtype = reducible[d];
      if (reduce == NXD_REDUCE_AVG && !is_float(dtype)) continue;
      if (size > 4 && reduce > NXD_REDUCE_AVG) continue; /* the order is what differs */
      const int all =
          reduce == NXD_REDUCE_SUM && (dtype == NXD_DTYPE_F32 || dtype == NXD_DTYPE_I64);
      const size_t longest = all ? N_COUNTS : size > 4 ? N_SHORT_COUNTS - 1 : N_SHORT_COUNTS;
      for (size_t c = 0; c < longest; ++c) {
        const int is_typical = counts[c] == 7 || counts[c] == 8193 || counts[c] == 20011;
        if (!all && !is_typical && !tries_all()) continue;
        const size_t count = counts[c], item = size_of(dtype);
        const size_t in_size = count * item * (size_t)size + 1, out_size = count * item + 1;
        char* in = get(ctx, memory, in_size);
        char* out = get(ctx, memory, out_size);
        char* want = malloc(count * item + 1);
        fill(in, count, 0, rank, dtype);
        expect(want, count, 0, size, per_host, many, dtype, reduce);
        if (NXD_TEST_OK(nxd_all_reduce(world, in, out, count, dtype, reduce)))
          check_bytes("all_reduce", out, want, count * item, count, dtype, reduce);
        if (NXD_TEST_OK(nxd_all_reduce(world, in, in, count, dtype, reduce)))
          check_bytes("all_reduce in place", in, want, count * item, count, dtype, reduce);

        fill(in, count * (size_t)size, 0, rank, dtype);
        expect(want, count, count * (size_t)rank, size, per_scatter, many_scatter, dtype, reduce);
        if (NXD_TEST_OK(nxd_reduce_scatter(world, in, out, count, dtype, reduce)))
          check_bytes("reduce_scatter", out, want, count * item, count, dtype, reduce);
        char* own = in + count * item * (size_t)rank;
        if (NXD_TEST_OK(nxd_reduce_scatter(world, in, own, count, dtype, reduce)))
          check_bytes("reduce_scatter in place", own, want, count * item, count, dtype, reduce);
        put(ctx, memory, in_size, in);
        put(ctx, memory, out_size, out);
        free(want);
      }
    }
  }
}

/* Bytes come again after so many: each is the place's, and one more after each 251. */
#define BYTES_PERIOD (251u * 256u)

static char bytes_of_places[BYTES_PERIOD];

static void fill_bytes_of_places(void) {
  for (size_t i = 0; i < BYTES_PERIOD; ++i) bytes_of_places[i] = (char)(i * 7 + i / 251);
}

static void pattern(char* out, size_t n, int from, int to) {
  const char own = (char)(from * 31 + to * 101);
  for (size_t done = 0; done < n; done += BYTES_PERIOD) {
    const size_t left = n - done < BYTES_PERIOD ? n - done : BYTES_PERIOD;
    for (size_t i = 0; i < left; ++i) out[done + i] = (char)(bytes_of_places[i] + own);
  }
}

/* A copy takes elements for bytes. Each dtype is copied where all is tried, and elsewhere one of
 * each size, with BF16 for the longest. */
static int is_copied(nxd_dtype_t dtype) {
  if (tries_all()) return 1;
  return dtype == NXD_DTYPE_F32 || dtype == NXD_DTYPE_F64 || dtype == NXD_DTYPE_BF16 ||
         dtype == NXD_DTYPE_BOOL;
}

static void copies(nxd_context_t* ctx, int rank, int size, void* memory) {
  nxd_group_t* world = NULL;
  if (!NXD_TEST_OK(nxd_context_get_world_group(ctx, &world))) return;
  const size_t n = (size_t)size;
  for (nxd_dtype_t dtype = NXD_DTYPE_F32; dtype <= NXD_DTYPE_BOOL; ++dtype) {
    if (!is_copied(dtype)) continue;
    for (size_t c = 0; c < (dtype == NXD_DTYPE_BF16 ? N_COUNTS : N_SHORT_COUNTS); ++c) {
      const size_t bytes = counts[c] * size_of(dtype);
      char* in = get(ctx, memory, bytes * n + 1);
      char* out = get(ctx, memory, bytes * n + 1);
      char* want = malloc(bytes * n + 1);
      for (int r = 0; r < size; ++r) pattern(want + bytes * (size_t)r, bytes, r, 0);
      pattern(in, bytes, rank, 0);
      if (NXD_TEST_OK(nxd_all_gather(world, in, out, counts[c], dtype)))
        check_bytes("all_gather", out, want, bytes * n, counts[c], dtype, -1);
      memset(out, 0, bytes * n);
      pattern(out + bytes * (size_t)rank, bytes, rank, 0);
      if (NXD_TEST_OK(nxd_all_gather(world, out + bytes * (size_t)rank, out, counts[c], dtype)))
        check_bytes("all_gather in place", out, want, bytes * n, counts[c], dtype, -1);

      for (int r = 0; r < size; ++r) {
        pattern(in + bytes * (size_t)r, bytes, rank, r);
        pattern(want + bytes * (size_t)r, bytes, r, rank);
      }
      if (NXD_TEST_OK(nxd_all_to_all(world, in, out, counts[c], dtype)))
        check_bytes("all_to_all", out, want, bytes * n, counts[c], dtype, -1);

      for (int root = 0; root < size; ++root) {
        pattern(in, bytes, root == rank ? root : 77, 5);
        pattern(want, bytes, root, 5);
        if (NXD_TEST_OK(nxd_broadcast(world, in, counts[c], dtype, root)))
          check_bytes("broadcast", in, want, bytes, counts[c], dtype, -1);
      }
      put(ctx, memory, bytes * n + 1, in);
      put(ctx, memory, bytes * n + 1, out);
      free(want);
    }
    NXD_TEST_OK(nxd_barrier(world));
  }
}

static void messages(nxd_context_t* ctx, int rank, int size, void* memory) {
  nxd_group_t* world = NULL;
  if (!NXD_TEST_OK(nxd_context_get_world_group(ctx, &world)) || size < 2) return;
  for (size_t c = 0; c < N_COUNTS; ++c) {
    const size_t bytes = counts[c] * 4;
    char* data = get(ctx, memory, bytes + 1);
    char* want = malloc(bytes + 1);
    /* Around a ring, twice per tag, so that order shows. */
    for (int tag = 0; tag <= 65535; tag += 65535) {
      for (int turn = 0; turn < 2; ++turn) {
        const int to = (rank + 1) % size, from = (rank + size - 1) % size;
        for (int half = 0; half < 2; ++half) {
          const int sends = (rank == 0) == (half == 0);
          if (sends) {
            pattern(data, bytes, rank, turn);
            NXD_TEST_OK(nxd_send(world, data, counts[c], NXD_DTYPE_F32, to, tag));
          } else {
            pattern(want, bytes, from, turn);
            if (NXD_TEST_OK(nxd_receive(world, data, counts[c], NXD_DTYPE_F32, from, tag)))
              check_bytes("receive", data, want, bytes, counts[c], NXD_DTYPE_F32, -1);
          }
        }
      }
    }
    put(ctx, memory, bytes + 1, data);
    free(want);
  }
}

/* A NaN of any rank wins a maximum and a minimum. */
static void nan_wins(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)unused;
  nxd_group_t* world = NULL;
  if (!NXD_TEST_OK(nxd_context_get_world_group(ctx, &world))) return;
  for (size_t d = 0; d < 4; ++d) {
    const nxd_dtype_t dtype = reducible[d];
    char in[8 * 8], out[8 * 8];
    for (int i = 0; i < size; ++i) {
      store(in, (size_t)i, dtype, i == rank ? (double)NAN : (double)(rank - 2));
    }
    for (nxd_reduce_t reduce = NXD_REDUCE_MAX; reduce <= NXD_REDUCE_MIN; ++reduce) {
      NXD_TEST_OK(nxd_all_reduce(world, in, out, (size_t)size, dtype, reduce));
      for (int i = 0; i < size; ++i) NXD_TEST_CHECK(isnan(load(out, (size_t)i, dtype)));
    }
  }
}

/* Extremes of the 16-bit formats: overflow, subnormals, signed zeros, ties. */
static void extremes(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)unused;
  nxd_group_t* world = NULL;
  if (!NXD_TEST_OK(nxd_context_get_world_group(ctx, &world))) return;
  enum { kAll = 65536 };
  uint16_t* in = malloc(kAll * sizeof *in);
  uint16_t* out = malloc(kAll * sizeof *out);
  for (int format = 0; format < 2; ++format) {
    const nxd_dtype_t dtype = format ? NXD_DTYPE_F16 : NXD_DTYPE_BF16;
    const int bits = format ? 5 : 8;
    /* Every 16-bit value on rank 0, and a scrambled one on the others. */
    for (int i = 0; i < kAll; ++i) {
      in[i] = (uint16_t)(rank == 0 ? (uint32_t)i
                                   : ((uint32_t)i * 40503u + (uint32_t)rank * 12289u) & 0xffff);
    }
    NXD_TEST_OK(nxd_all_reduce(world, in, out, kAll, dtype, NXD_REDUCE_SUM));
    int wrong = 0;
    for (int i = 0; i < kAll; ++i) {
      float sum = (float)decode16((uint16_t)i, bits);
      for (int r = 1; r < size; ++r)
        sum += (float)decode16((uint16_t)(((uint32_t)i * 40503u + (uint32_t)r * 12289u) & 0xffff),
                               bits);
      if (isnan(sum)) {
        wrong += !isnan(decode16(out[i], bits));
      } else {
        wrong += out[i] != encode16(sum, bits);
      }
    }
    NXD_TEST_CHECK(wrong == 0);
  }
  free(in);
  free(out);
}

/* More than is reduced at a time, in place. */
static void large(nxd_context_t* ctx, int rank, int size, void* memory) {
  nxd_group_t* world = NULL;
  if (!NXD_TEST_OK(nxd_context_get_world_group(ctx, &world))) return;
  const size_t count = (size_t)20 * 1000 * 1000 + 13, bytes = count * sizeof(int32_t);
  int32_t* data = (int32_t*)(void*)get(ctx, memory, bytes);
  for (size_t i = 0; i < count; ++i) data[i] = (int32_t)(i % 100003) * (rank + 1);
  if (NXD_TEST_OK(nxd_all_reduce(world, data, data, count, NXD_DTYPE_I32, NXD_REDUCE_SUM))) {
    size_t wrong = 0;
    const int32_t factor = size * (size + 1) / 2;
    for (size_t i = 0; i < count; ++i) wrong += data[i] != (int32_t)(i % 100003) * factor;
    NXD_TEST_CHECK(wrong == 0);
  }
  put(ctx, memory, bytes, (char*)data);
}

/* More bytes than 31 bits count, of one and of four each. */
static void beyond_2_gib(nxd_context_t* ctx, int rank, int size, void* memory) {
  nxd_group_t* world = NULL;
  if (!NXD_TEST_OK(nxd_context_get_world_group(ctx, &world))) return;
  const size_t count = ((size_t)1 << 31) + 4099, words = ((size_t)1 << 29) + 4099;
  const size_t bytes = words * sizeof(float);
  char* data = get(ctx, memory, bytes);
  if (!NXD_TEST_CHECK(data != NULL)) return;
  memset(data, rank == 1 ? 5 : 1, count);
  data[count - 1] = (char)(rank == 1 ? 9 : 2);
  if (NXD_TEST_OK(nxd_broadcast(world, data, count, NXD_DTYPE_U8, 1))) {
    size_t wrong = data[count - 1] != 9;
    for (size_t i = 0; i + 1 < count; ++i) wrong += data[i] != 5;
    NXD_TEST_CHECK(wrong == 0);
  }

  float* sums = (float*)(void*)data; /* whose bytes are more */
  for (size_t i = 0; i < words; ++i) sums[i] = (float)((i % 1009 + 1) * ((size_t)rank + 1));
  if (NXD_TEST_OK(nxd_all_reduce(world, sums, sums, words, NXD_DTYPE_F32, NXD_REDUCE_SUM))) {
    size_t wrong = 0;
    const size_t factor = (size_t)(size * (size + 1) / 2);
    for (size_t i = 0; i < words; ++i) wrong += sums[i] != (float)((i % 1009 + 1) * factor);
    NXD_TEST_CHECK(wrong == 0);
  }
  put(ctx, memory, bytes, data);
}

#define IN_MEMORY(fn, n, memory)                  \
  static void fn##_##n##_##memory(void** state) { \
    (void)state;                                  \
    int kind = memory;                            \
    nxd_test_run_ranks(n, 0, fn, &kind);          \
  }
#define IN_EVERY_MEMORY(fn, n) \
  IN_MEMORY(fn, n, kHeap)      \
  IN_MEMORY(fn, n, kArena)     \
  IN_MEMORY(fn, n, kSomeInArena)
#define TESTS_IN_EVERY_MEMORY(fn, n)                                       \
  cmocka_unit_test(fn##_##n##_kHeap), cmocka_unit_test(fn##_##n##_kArena), \
      cmocka_unit_test(fn##_##n##_kSomeInArena)
#define ON_RANKS(fn, n)                 \
  static void fn##_##n(void** state) {  \
    (void)state;                        \
    nxd_test_run_ranks(n, 0, fn, NULL); \
  }
IN_EVERY_MEMORY(reductions, 1)
IN_EVERY_MEMORY(reductions, 2)
IN_EVERY_MEMORY(reductions, 3)
IN_EVERY_MEMORY(reductions, 4)
IN_EVERY_MEMORY(copies, 1)
IN_EVERY_MEMORY(copies, 2)
IN_EVERY_MEMORY(copies, 3)
IN_EVERY_MEMORY(copies, 5)
IN_EVERY_MEMORY(messages, 2)
IN_EVERY_MEMORY(messages, 3)
IN_EVERY_MEMORY(large, 2)
IN_MEMORY(beyond_2_gib, 2, kHeap)
IN_MEMORY(beyond_2_gib, 2, kArena)
ON_RANKS(nan_wins, 1)
ON_RANKS(nan_wins, 3)
ON_RANKS(extremes, 2)
/* For groups of many ranks: numbers that are no powers of two, and one that is. */
IN_MEMORY(reductions, 5, kHeap)
IN_MEMORY(reductions, 7, kHeap)
IN_MEMORY(reductions, 8, kHeap)
IN_MEMORY(copies, 9, kHeap)

/* Two ranks hold 2 GiB each; the rest is for other tests. */
static int has_memory_for_large(void) {
  char line[128];
  size_t kib = 0;
  FILE* memory = fopen("/proc/meminfo", "r");
  while (memory && kib == 0 && fgets(line, sizeof line, memory)) {
    if (sscanf(line, "MemAvailable: %zu kB", &kib) != 1) kib = 0;
  }
  if (memory) fclose(memory);
  const int enough = kib >= (size_t)8 << 20;
  if (!enough)
    printf("skip: collectives beyond 2 GiB: %zu MiB of memory are available; leave 8192\n",
           kib >> 10);
  return enough;
}

int main(void) {
  fill_values16();
  fill_inputs16();
  fill_bytes_of_places();
  const struct CMUnitTest tests[] = {
      TESTS_IN_EVERY_MEMORY(reductions, 1), TESTS_IN_EVERY_MEMORY(reductions, 2),
      TESTS_IN_EVERY_MEMORY(reductions, 3), TESTS_IN_EVERY_MEMORY(reductions, 4),
      TESTS_IN_EVERY_MEMORY(copies, 1),     TESTS_IN_EVERY_MEMORY(copies, 2),
      TESTS_IN_EVERY_MEMORY(copies, 3),     TESTS_IN_EVERY_MEMORY(copies, 5),
      TESTS_IN_EVERY_MEMORY(messages, 2),   TESTS_IN_EVERY_MEMORY(messages, 3),
      TESTS_IN_EVERY_MEMORY(large, 2),      cmocka_unit_test(nan_wins_1),
      cmocka_unit_test(nan_wins_3),         cmocka_unit_test(extremes_2),
      cmocka_unit_test(reductions_5_kHeap), cmocka_unit_test(reductions_7_kHeap),
      cmocka_unit_test(reductions_8_kHeap), cmocka_unit_test(copies_9_kHeap),
  };
  /* Gloo looks at no memory but the caller's, and how it adds has nothing to do with memory.
   * Between hosts the ranks of one need not differ in memory once more. */
  const char* transport = getenv("NXD_TRANSPORT");
  const int gloo = transport && strcmp(transport, "gloo") == 0;
  if (gloo || getenv("NXD_LARGE_GROUP"))
    cmocka_set_skip_filter("*Arena");
  else if (getenv("NXD_TEST_RANKS_PER_HOST"))
    cmocka_set_skip_filter("*SomeInArena");
  const struct CMUnitTest large_tests[] = {cmocka_unit_test(beyond_2_gib_2_kHeap),
                                           cmocka_unit_test(beyond_2_gib_2_kArena)};
  if (getenv("NXD_TEST_LARGE")) {
    if (!has_memory_for_large()) return 77;
    return cmocka_run_group_tests(large_tests, NULL, NULL);
  }
  return cmocka_run_group_tests(tests, NULL, NULL);
}
