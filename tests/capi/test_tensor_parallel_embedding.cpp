// The vocabulary-parallel embedding over a caller's arrays: against values recorded from NxD Core,
// its ranges of the vocabulary, and plain loops over the undivided table, for all dtypes, options
// and layouts in memory, on 1, 2 and 4 ranks.
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/layer_arrays.h"
#include "support/npy.h"
#include "support/paths.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

struct Case {
  nxd_dtype_t dtype;
  nxd_dtype_t ids_dtype = NXD_DTYPE_I64;
  Sizes lead;              // of the ids
  int64_t rows;            // of each rank
  int64_t num_embeddings;  // 0: all rows
  int64_t hidden;
  int sequence_dim = -1;  // -1: no sequence parallelism
  int64_t padding_idx = -1;
  bool accumulate = false, wide = false;
  Layout layout = Layout::kDense;
  bool arena = false, workspace = false;

  std::string text() const {
    std::string shape;
    for (const int64_t size : lead) shape += std::to_string(size) + " ";
    return "embedding dtype " + std::to_string(dtype) + ", ids [" + shape + "] " +
           std::to_string(ids_dtype) + ", rows " + std::to_string(rows) + " of " +
           std::to_string(num_embeddings) + ", hidden " + std::to_string(hidden) + ", sequence " +
           std::to_string(sequence_dim) + ", padding " + std::to_string(padding_idx) +
           ", accumulate " + std::to_string(accumulate) + ", layout " +
           std::to_string(static_cast<int>(layout)) + ", workspace " + std::to_string(workspace);
  }
  nxd_vocab_parallel_embedding_options_t options() const {
    nxd_vocab_parallel_embedding_options_t options = NXD_VOCAB_PARALLEL_EMBEDDING_OPTIONS_INIT;
    options.num_embeddings = num_embeddings;
    options.has_padding_idx = padding_idx >= 0;
    options.padding_idx = padding_idx >= 0 ? padding_idx : 77;  // which does not count
    options.sequence_parallel = sequence_dim >= 0;
    // From the end.
    if (sequence_dim >= 0) options.sequence_dim = sequence_dim - static_cast<int>(lead.size()) - 1;
    options.accumulate_grads = accumulate;
    return options;
  }
};

Numbers ids_of(const Case& c, int ranks) {
  Numbers ids(c.lead);
  const int64_t count = c.num_embeddings ? c.num_embeddings : c.rows * ranks;
  for (size_t i = 0; i < ids.values.size(); ++i) {
    ids.values[i] = static_cast<double>((static_cast<int64_t>(i * i) * 5 + 3) % count);
  }
  return ids;
}

void check_case(nxd_context_t* ctx, const Case& c, int rank, int ranks) {
  const Numbers all_ids = ids_of(c, ranks);
  Sizes shape = c.lead;
  shape.push_back(c.hidden);
  const Numbers table = Numbers::pattern({c.rows * ranks, c.hidden}, 1);
  const Numbers dy = Numbers::pattern(shape, 2);
  Numbers y(shape), dtable(table.shape);
  for (int64_t i = 0; i < count_of(c.lead); ++i) {
    const auto id = static_cast<int64_t>(all_ids.at(i));
    for (int64_t j = 0; j < c.hidden; ++j) {
      y.at(i * c.hidden + j) = table.at(id * c.hidden + j);
      if (id != c.padding_idx) dtable.at(id * c.hidden + j) += dy.at(i * c.hidden + j);
    }
  }
  const auto own = [&](const Numbers& whole) {
    return c.sequence_dim >= 0 ? whole.part(c.sequence_dim, rank, ranks) : whole;
  };
  const std::string what = c.text();
  nxd_context_t* arena = c.arena ? ctx : nullptr;
  Workspace workspace;
  auto options = c.options();
  Buffer ids(all_ids, c.ids_dtype, c.layout);
  Buffer weight(table.part(0, rank, ranks), c.dtype, c.layout);
  Buffer out(own(y).shape, c.dtype, c.layout, arena);
  if (c.workspace) {
    size_t bytes = 0;
    NXD_TEST_OK(nxd_vocab_parallel_embedding_forward_get_workspace(
        ctx, ids.tensor(), weight.tensor(), &options, out.tensor(), &bytes));
    options.workspace = workspace.take(options.workspace_bytes = bytes);
  }
  if (NXD_TEST_OK(nxd_vocab_parallel_embedding_forward(ctx, ids.tensor(), weight.tensor(), &options,
                                                       out.tensor()))) {
    out.equals(own(y), 0, "y of " + what);
  }
  if (c.workspace) NXD_TEST_CHECK(workspace.is_intact());

  const bool narrow = c.dtype == NXD_DTYPE_BF16 || c.dtype == NXD_DTYPE_F16;
  Buffer grad_y(own(dy), c.dtype, c.layout);
  const Numbers own_grad = dtable.part(0, rank, ranks);
  const Numbers before = Numbers::pattern(own_grad.shape, 5);
  Buffer grad(before, narrow && c.wide ? NXD_DTYPE_F32 : c.dtype, c.layout, arena);
  options = c.options();
  if (c.workspace) {
    size_t bytes = 0;
    NXD_TEST_OK(nxd_vocab_parallel_embedding_backward_get_workspace(
        ctx, ids.tensor(), grad_y.tensor(), &options, grad.tensor(), &bytes));
    options.workspace = workspace.take(options.workspace_bytes = bytes);
  }
  if (!NXD_TEST_OK(nxd_vocab_parallel_embedding_backward(ctx, ids.tensor(), grad_y.tensor(),
                                                         &options, grad.tensor()))) {
    return;
  }
  if (c.workspace) NXD_TEST_CHECK(workspace.is_intact());
  grad.equals(c.accumulate ? own_grad.plus(before) : own_grad, 1, "grad_weight of " + what);
}

constexpr nxd_dtype_t kFloats[] = {NXD_DTYPE_F32, NXD_DTYPE_F64, NXD_DTYPE_BF16, NXD_DTYPE_F16};

// Options and layouts in memory, in turn.
void check_modes(nxd_context_t* ctx, int rank, int ranks, void*) {
  int number = 0;
  for (const nxd_dtype_t dtype : kFloats) {
    for (const Layout layout : kLayouts) {
      for (const int sequence_dim : {-1, 0, 1}) {
        Case c{dtype, NXD_DTYPE_I64, {4, 8}, 5, 0, 12};
        c.layout = layout;
        c.sequence_dim = sequence_dim;
        for (int twice = 0; twice < 2; ++twice) {
          const int bits = number++ * 11 + static_cast<int>(layout);
          c.ids_dtype = bits & 1 ? NXD_DTYPE_I32 : NXD_DTYPE_I64;
          c.accumulate = bits & 2;
          c.wide = bits & 8;
          c.workspace = bits & 16;
          c.arena = bits & 32;
          c.num_embeddings = bits & 64 ? 5 * ranks - 4 : 0;  // a vocabulary that is padded
          c.padding_idx = bits & 4 ? (bits & 64 ? 0 : 3) : -1;
          check_case(ctx, c, rank, ranks);
        }
      }
    }
  }
}

// Sizes that are 1 or 0, a single id, more padding than a rank has rows, exchanges that take long.
void check_sizes(nxd_context_t* ctx, int rank, int ranks, void*) {
  for (const nxd_dtype_t dtype : kFloats) {
    for (Case c :
         {Case{dtype, NXD_DTYPE_I64, {4, 4}, 1, 0, 1}, Case{dtype, NXD_DTYPE_I32, {}, 3, 0, 7},
          Case{dtype, NXD_DTYPE_I64, {0, 4}, 2, 0, 5}, Case{dtype, NXD_DTYPE_I64, {4, 0}, 2, 0, 5},
          Case{dtype, NXD_DTYPE_I64, {4, 4}, 2, 0, 0}, Case{dtype, NXD_DTYPE_I64, {8}, 6, 2, 33},
          Case{dtype, NXD_DTYPE_I64, {512, 4}, 300, 0, 67}}) {
      check_case(ctx, c, rank, ranks);
      if (c.lead.empty()) continue;
      c.sequence_dim = 0;
      c.accumulate = true;
      check_case(ctx, c, rank, ranks);
    }
  }
}

void on_all_ranks(nxd_test_rank_fn body) {
  for (const int ranks : {1, 2, 4}) nxd_test_run_ranks(ranks, ranks, body, nullptr);
}

void all_modes(void**) { on_all_ranks(check_modes); }
void all_sizes(void**) { on_all_ranks(check_sizes); }

// Each rank has the range of the vocabulary that NxD Core gives it: row i of its shard is number
// first + i, and an id gives itself. Vocabularies that NxD Core rejects are padded.
void check_ranges(nxd_context_t* ctx, int rank, int ranks, void*) {
  std::ifstream file(oracles() + "/nxd/vocab_ranges.json");
  const auto recorded = nlohmann::json::parse(file);
  int found = 0;
  for (const auto& row : recorded) {
    if (row[1] != ranks || row[2] != rank) continue;
    ++found;
    const int64_t vocabulary = row[0], rows = (vocabulary + ranks - 1) / ranks;
    const bool divides = !row[3].is_string();
    const int64_t first = divides ? row[3][0].get<int64_t>() : rows * rank;
    if (divides) NXD_TEST_CHECK(row[3][1] == first + rows);
    Numbers shard({rows, 1}), numbers({vocabulary});
    for (int64_t i = 0; i < rows; ++i) shard.at(i) = static_cast<double>(first + i);
    for (int64_t i = 0; i < vocabulary; ++i) numbers.at(i) = static_cast<double>(i);
    Buffer ids(numbers, NXD_DTYPE_I64), weight(shard, NXD_DTYPE_F64);
    Buffer y({vocabulary, 1}, NXD_DTYPE_F64);
    auto options = Case{}.options();
    options.num_embeddings = vocabulary;
    NXD_TEST_OK(nxd_vocab_parallel_embedding_forward(ctx, ids.tensor(), weight.tensor(), &options,
                                                     y.tensor()));
    numbers.shape = {vocabulary, 1};
    y.equals(numbers, 0, "ids of " + std::to_string(vocabulary));
  }
  NXD_TEST_CHECK(found == 5);
}

void vocabulary_ranges(void**) { on_all_ranks(check_ranges); }

template <class T>
Numbers recorded(const std::string& name, const std::string& array, int rank) {
  const auto read = read_npy<T>(oracles() + "/nxd/" + name + "/" + array + ".rank" +
                                std::to_string(rank) + ".npy");
  Numbers numbers(read.shape);
  numbers.values.assign(read.values.begin(), read.values.end());
  return numbers;
}

void check_recorded(nxd_context_t* ctx, int rank, int, void*) {
  const std::string name = "embedding_across0";
  const Numbers numbers = recorded<int64_t>(name, "ids", rank);
  const Numbers y = recorded<double>(name, "y", rank), dw = recorded<double>(name, "dw", rank);
  Buffer ids(numbers, NXD_DTYPE_I64), weight(recorded<double>(name, "w", rank), NXD_DTYPE_F32);
  Buffer out(y.shape, NXD_DTYPE_F32), grad(dw.shape, NXD_DTYPE_F32);
  Buffer grad_y(recorded<double>(name, "g", rank), NXD_DTYPE_F32);
  NXD_TEST_OK(nxd_vocab_parallel_embedding_forward(ctx, ids.tensor(), weight.tensor(), nullptr,
                                                   out.tensor()));
  out.equals(y, 2, "y as NxD Core has it");
  NXD_TEST_OK(nxd_vocab_parallel_embedding_backward(ctx, ids.tensor(), grad_y.tensor(), nullptr,
                                                    grad.tensor()));
  grad.equals(dw, 10, "grad_weight as NxD Core has it");
  // With sequence parallelism NxD Core turns the ids of the same table to [sequence, batch].
  const Numbers part = recorded<double>("embedding_sp", "y", rank);
  Buffer own(part.shape, NXD_DTYPE_F32), turned(numbers.transposed(), NXD_DTYPE_I64);
  Buffer shared(recorded<double>("embedding_sp", "w", rank), NXD_DTYPE_F32);
  nxd_vocab_parallel_embedding_options_t options = NXD_VOCAB_PARALLEL_EMBEDDING_OPTIONS_INIT;
  options.sequence_parallel = 1;
  NXD_TEST_OK(nxd_vocab_parallel_embedding_forward(ctx, turned.tensor(), shared.tensor(), &options,
                                                   own.tensor()));
  own.equals(part, 2, "y of a part of the sequence as NxD Core has it");
}

void values_of_nxd_core(void**) { nxd_test_run_ranks(2, 2, check_recorded, nullptr); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(values_of_nxd_core),
                              cmocka_unit_test(vocabulary_ranges), cmocka_unit_test(all_modes),
                              cmocka_unit_test(all_sizes)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
