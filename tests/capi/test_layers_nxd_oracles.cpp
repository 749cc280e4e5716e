// Layers, mappings and the loss on two ranks against values recorded from NxD Core on two ranks.
#include "support/npy.h"
#include "support/paths.h"
#include "support/tensor.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

constexpr double kTolerance = 1e-5;

// One recorded case as one rank held it.
class Recording {
 public:
  Recording(std::string name, int rank) : name_(std::move(name)), rank_(rank) {}

  Tensor operator()(const std::string& tensor) const { return of(tensor, rank_); }

  Tensor of(const std::string& tensor, int rank) const {
    const std::string path =
        oracles() + "/nxd/" + name_ + "/" + tensor + ".rank" + std::to_string(rank) + ".npy";
    if (tensor == "ids" || tensor == "target") {
      const auto array = read_npy<int64_t>(path);
      return from_ints(array.values, array.shape);
    }
    const auto array = read_npy<double>(path);
    return from_doubles(array.values, array.shape, NXD_DTYPE_F32);
  }

  // The values of both ranks, one after the other along the first dimension.
  Tensor joined(const std::string& tensor) const {
    const Tensor first = of(tensor, 0), second = of(tensor, 1);
    std::vector<double> both = values(first);
    const std::vector<double> tail = values(second);
    both.insert(both.end(), tail.begin(), tail.end());
    std::vector<int64_t> shape = first.shape();
    shape[0] *= 2;
    return from_doubles(both, shape, NXD_DTYPE_F32);
  }

  void check(const std::string& what, const Tensor& got, const Tensor& want) const {
    NXD_TEST_CLOSE(name_ + " " + what + " of rank " + std::to_string(rank_), got, want, kTolerance);
  }

  const std::string& name() const { return name_; }
  int rank() const { return rank_; }

 private:
  std::string name_;
  int rank_;
};

nxd_parameter_t* find(const Module& module, const char* name) {
  nxd_parameter_t* parameter = nullptr;
  NXD_TEST_OK(nxd_module_find_parameter(module.get(), name, &parameter));
  return parameter;
}

void set(const Module& module, const char* name, const Tensor& whole) {
  NXD_TEST_OK(nxd_parameter_set_full(find(module, name), whole.get()));
}

// The gradient of this rank's shard.
Tensor shard_grad(const Module& module, const char* name) {
  nxd_tensor_t* shard = nullptr;
  Tensor grad;
  NXD_TEST_OK(nxd_parameter_get_tensor(find(module, name), &shard));
  NXD_TEST_OK(nxd_tensor_share_grad(shard, grad.out()));
  return grad;
}

Tensor as_input(const Tensor& x) { return leaf(x, NXD_DTYPE_F32, true); }

Tensor sum(const Tensor& a, const Tensor& b) {
  return op("add", "Tensor", {{"self", a}, {"other", b}});
}

void finish(const Module& module) { NXD_TEST_OK(nxd_finish_grads(module.get(), nullptr, nullptr)); }

struct ColumnRow {
  bool bias, sequence_parallel;
};

void column_row(nxd_context_t* ctx, int rank, int size, void* user_data) {
  const auto& c = *static_cast<const ColumnRow*>(user_data);
  const Recording recorded(
      "col_row_bias" + std::to_string(c.bias) + "_sp" + std::to_string(c.sequence_parallel), rank);
  nxd_linear_options_t options = NXD_LINEAR_OPTIONS_INIT;
  options.bias = c.bias ? NXD_TOGGLE_ON : NXD_TOGGLE_OFF;
  options.gather_output = NXD_TOGGLE_OFF;
  options.input_is_parallel = 1;
  options.sequence_parallel = c.sequence_parallel;
  Module column, row;
  NXD_TEST_OK(nxd_layer_create_column_parallel_linear(ctx, 16, 24, &options, column.out()));
  NXD_TEST_OK(nxd_layer_create_row_parallel_linear(ctx, 24, 16, &options, row.out()));
  set(column, "weight", recorded("w_col_full"));
  set(row, "weight", recorded("w_row_full"));
  if (c.bias) {
    set(column, "bias", recorded.joined("b_col"));
    set(row, "bias", recorded("b_row"));
  }
  const int sliced = c.sequence_parallel ? 0 : -1;
  const Tensor x = as_input(part(recorded("x"), sliced, rank, size));
  const Tensor h = column({x});
  const Tensor y = row({op("gelu", {{"self", h}})});
  recorded.check("h", h, recorded("h"));
  recorded.check("y", y, recorded("y"));
  backward(y, part(recorded("g"), sliced, rank, size));
  finish(column);
  finish(row);
  recorded.check("dx", x.grad(), recorded("dx"));
  recorded.check("dw_col", shard_grad(column, "weight"), recorded("dw_col"));
  recorded.check("dw_row", shard_grad(row, "weight"), recorded("dw_row"));
  if (!c.bias) return;
  recorded.check("db_col", shard_grad(column, "bias"), recorded("db_col"));
  // NxD Core leaves a row bias partial under sequence parallelism; finished, it is the sum.
  recorded.check("db_row", shard_grad(row, "bias"),
                 c.sequence_parallel ? sum(recorded.of("db_row", 0), recorded.of("db_row", 1))
                                     : recorded("db_row"));
}

void test_column_row(void**) {
  for (const bool bias : {false, true}) {
    for (const bool sequence_parallel : {false, true}) {
      ColumnRow c{bias, sequence_parallel};
      nxd_test_run_ranks(2, 2, column_row, &c);
    }
  }
}

void gather_scatter(nxd_context_t* ctx, int rank, int, void*) {
  const Recording recorded("col_gather_row_scatter", rank);
  const nxd_linear_options_t options = NXD_LINEAR_OPTIONS_INIT;
  Module column, row;
  NXD_TEST_OK(nxd_layer_create_column_parallel_linear(ctx, 16, 24, &options, column.out()));
  NXD_TEST_OK(nxd_layer_create_row_parallel_linear(ctx, 24, 16, &options, row.out()));
  set(column, "weight", recorded("w_col_full"));
  set(column, "bias", recorded("b_col"));
  set(row, "weight", recorded("w_row_full"));
  set(row, "bias", recorded("b_row"));
  const Tensor x = as_input(recorded("x"));
  const Tensor h = column({x});
  const Tensor y = row({h});
  recorded.check("h", h, recorded("h"));
  recorded.check("y", y, recorded("y"));
  backward(y, recorded("g"));
  finish(column);
  finish(row);
  recorded.check("dx", x.grad(), recorded("dx"));
  recorded.check("dw_col", shard_grad(column, "weight"), recorded("dw_col"));
  recorded.check("db_col", shard_grad(column, "bias"), recorded("db_col"));
  recorded.check("dw_row", shard_grad(row, "weight"), recorded("dw_row"));
  recorded.check("db_row", shard_grad(row, "bias"), recorded("db_row"));
}

void test_gather_scatter(void**) { nxd_test_run_ranks(2, 2, gather_scatter, nullptr); }

// A weight of two fused blocks: each rank has its part of both.
void stride(nxd_context_t* ctx, int rank, int, void*) {
  const Recording recorded("col_stride2", rank);
  nxd_linear_options_t options = NXD_LINEAR_OPTIONS_INIT;
  options.bias = NXD_TOGGLE_OFF;
  options.gather_output = NXD_TOGGLE_OFF;
  options.stride = 2;
  Module column;
  NXD_TEST_OK(nxd_layer_create_column_parallel_linear(ctx, 8, 16, &options, column.out()));
  set(column, "weight", recorded("w_full"));
  nxd_tensor_t* shard = nullptr;
  NXD_TEST_OK(nxd_parameter_get_tensor(find(column, "weight"), &shard));
  Tensor held;
  NXD_TEST_OK(nxd_tensor_detach(shard, held.out()));
  NXD_TEST_CHECK(max_difference(held, recorded("w")) == 0);
  NXD_TEST_CHECK(max_difference(whole(find(column, "weight")), recorded("w_full")) == 0);
}

void test_stride(void**) { nxd_test_run_ranks(2, 2, stride, nullptr); }

void embedding(nxd_context_t* ctx, int rank, int, void* user_data) {
  const int across = *static_cast<const int*>(user_data);
  const Recording recorded("embedding_across" + std::to_string(across), rank);
  nxd_embedding_options_t options = NXD_EMBEDDING_OPTIONS_INIT;
  options.shard_across_embedding = across;
  Module layer;
  NXD_TEST_OK(nxd_layer_create_parallel_embedding(ctx, 10, 8, &options, layer.out()));
  nxd_tensor_t* shard = nullptr;
  NXD_TEST_OK(nxd_parameter_get_tensor(find(layer, "weight"), &shard));
  const std::vector<double> mine = values(recorded("w"));
  const std::vector<float> narrow(mine.begin(), mine.end());
  NXD_TEST_OK(
      nxd_tensor_copy_from_host(shard, narrow.data(), narrow.size() * sizeof(narrow.front())));
  const Tensor y = layer({recorded("ids")});
  recorded.check("y", y, recorded("y"));
  backward(y, recorded("g"));
  recorded.check("dw", shard_grad(layer, "weight"), recorded("dw"));
}

void test_embedding(void**) {
  for (int across : {0, 1}) nxd_test_run_ranks(2, 2, embedding, &across);
}

// The recording has no ids of its own: they are those of embedding_across0, whose table it shares.
// NxD Core takes [batch, sequence] and turns it; ours is [sequence, batch] as the output is.
void embedding_sequence(nxd_context_t* ctx, int rank, int, void*) {
  const Recording recorded("embedding_sp", rank), ids("embedding_across0", rank);
  nxd_embedding_options_t options = NXD_EMBEDDING_OPTIONS_INIT;
  options.sequence_parallel = 1;
  Module layer;
  NXD_TEST_OK(nxd_layer_create_parallel_embedding(ctx, 10, 8, &options, layer.out()));
  set(layer, "weight", recorded.joined("w"));
  const Tensor turned = op("transpose", "int", {{"self", ids("ids")}, {"dim0", 0}, {"dim1", 1}});
  recorded.check("y", layer({turned}), recorded("y"));
}

void test_embedding_sequence(void**) { nxd_test_run_ranks(2, 2, embedding_sequence, nullptr); }

void mappings(nxd_context_t* ctx, int rank, int, void*) {
  using Map = std::function<nxd_status_t(nxd_tensor_t*, nxd_tensor_t**)>;
  const std::vector<std::pair<const char*, Map>> maps = {
      {"copy_to_tensor_model_parallel_region",
       [&](auto* x, auto** y) { return nxd_copy_to_tensor_region(ctx, x, y); }},
      {"reduce_from_tensor_model_parallel_region",
       [&](auto* x, auto** y) { return nxd_reduce_from_tensor_region(ctx, x, y); }},
      {"scatter_to_tensor_model_parallel_region",
       [&](auto* x, auto** y) { return nxd_scatter_to_tensor_region(ctx, x, y); }},
      {"gather_from_tensor_model_parallel_region",
       [&](auto* x, auto** y) { return nxd_gather_from_tensor_region(ctx, x, y); }},
      {"scatter_to_sequence_parallel_region",
       [&](auto* x, auto** y) { return nxd_scatter_to_sequence_region(ctx, x, 0, y); }},
      {"gather_from_sequence_parallel_region",
       [&](auto* x, auto** y) { return nxd_gather_from_sequence_region(ctx, x, 0, 1, y); }},
      {"reduce_scatter_to_sequence_parallel_region",
       [&](auto* x, auto** y) { return nxd_reduce_scatter_to_sequence_region(ctx, x, 0, y); }},
  };
  for (const auto& [name, map] : maps) {
    const Recording recorded(std::string("map_") + name, rank);
    const Tensor x = as_input(recorded("x"));
    Tensor y;
    if (!NXD_TEST_OK(map(x.get(), y.out()))) continue;
    recorded.check("y", y, recorded("y"));
    backward(y, recorded("g"));
    recorded.check("dx", x.grad(), recorded("dx"));
  }
}

void test_mappings(void**) { nxd_test_run_ranks(2, 2, mappings, nullptr); }

// Where NxD Core smooths labels its values depend on the rank, so that of its second recording only
// the inputs count, and torch's values for them without smoothing.
void cross_entropy(nxd_context_t* ctx, int rank, int size, void*) {
  const std::pair<const char*, const char*> cases[] = {
      {"xent_ls0.0", ""}, {"xent_ls0.0", "torch_plain_"}, {"xent_ls0.1", "torch_plain_"}};
  for (const auto& [name, prefix] : cases) {
    const Recording recorded(name, rank);
    nxd_cross_entropy_options_t options = NXD_CROSS_ENTROPY_OPTIONS_INIT;
    options.reduction = NXD_REDUCTION_NONE;
    const Tensor logits = as_input(part(recorded("logits_full"), 2, rank, size));
    Tensor loss;
    if (!NXD_TEST_OK(nxd_parallel_cross_entropy(ctx, logits.get(), recorded("target").get(),
                                                &options, loss.out()))) {
      continue;
    }
    recorded.check("loss", loss, recorded(prefix + std::string("loss")));
    backward(loss, recorded("gout"));
    recorded.check("dlogits", logits.grad(), recorded(prefix + std::string("dlogits")));
  }
}

void test_cross_entropy(void**) { nxd_test_run_ranks(2, 2, cross_entropy, nullptr); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_column_row),
      cmocka_unit_test(test_gather_scatter),
      cmocka_unit_test(test_stride),
      cmocka_unit_test(test_embedding),
      cmocka_unit_test(test_embedding_sequence),
      cmocka_unit_test(test_mappings),
      cmocka_unit_test(test_cross_entropy),
  };
  return cmocka_run_group_tests_name("nxd_oracles", tests, nullptr, nullptr);
}
