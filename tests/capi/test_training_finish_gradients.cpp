// Finishing gradients: against NxD Core's recorded clipping, against sums done by hand, and with
// arguments and ranks that do not agree.
#include <limits>

#include "support/model_support.h"
#include "support/npy.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Tensor make_f32(const std::vector<float>& data, std::vector<int64_t> shape) {
  nxd_tensor_t* out = nullptr;
  NXD_TEST_OK(nxd_tensor_from_data(data.data(), data.size() * sizeof(float), shape.data(),
                                   static_cast<int32_t>(shape.size()), NXD_DTYPE_F32, &out));
  return Tensor(out);
}

Module make_container(nxd_context_t* ctx) {
  nxd_module_t* out = nullptr;
  NXD_TEST_OK(nxd_module_create(ctx, "Holder", nullptr, nullptr, nullptr, &out));
  return Module(out);
}

nxd_parameter_t* add(nxd_module_t* module, const std::string& name, std::vector<int64_t> shape,
                     int32_t shard_dim_plus_one, int32_t sequence_parallel = 0,
                     nxd_dtype_t dtype = NXD_DTYPE_F32) {
  nxd_parameter_options_t options = NXD_PARAMETER_OPTIONS_INIT;
  options.dtype = dtype;
  options.has_shard_dim = shard_dim_plus_one > 0;
  options.shard_dim = shard_dim_plus_one - 1;
  options.sequence_parallel = sequence_parallel;
  nxd_parameter_t* out = nullptr;
  NXD_TEST_OK(nxd_module_add_parameter(module, name.c_str(), shape.data(),
                                       static_cast<int32_t>(shape.size()), &options, &out));
  return out;
}

void set_grad(nxd_parameter_t* parameter, const std::vector<float>& grad,
              const std::vector<int64_t>& shape) {
  nxd_tensor_t* tensor = nullptr;
  if (!NXD_TEST_OK(nxd_parameter_get_tensor(parameter, &tensor))) return;
  NXD_TEST_OK(nxd_tensor_set_grad(tensor, make_f32(grad, shape).get()));
}

std::vector<double> get_grad(nxd_parameter_t* parameter) {
  nxd_tensor_t *tensor = nullptr, *grad = nullptr;
  NXD_TEST_OK(nxd_parameter_get_tensor(parameter, &tensor));
  NXD_TEST_OK(nxd_tensor_share_grad(tensor, &grad));
  return values(Tensor(grad).get());
}

nxd_finish_options_t clip_to(double max_norm, double type = 2) {
  nxd_finish_options_t options = NXD_FINISH_OPTIONS_INIT;
  options.max_norm = max_norm;
  options.norm_type = type;
  return options;
}

// Six gradients on two ranks, of which those in the recording's layout are sharded: g of one rank
// differs from that of the other; the equal ones are replicated and count once.
void against_nxd_core(void**) {
  nxd_test_run_ranks(
      2, 2,
      [](nxd_context_t* ctx, int rank, int, void*) {
        const std::string base = oracles() + "/nxd/clip_grad_norm/";
        const auto read = [&](const std::string& name, int of) {
          return read_npy<float>(base + name + ".rank" + std::to_string(of) + ".npy");
        };
        const Module module = make_container(ctx);
        std::vector<nxd_parameter_t*> parameters;
        for (int i = 0; i < 6; ++i) {
          const std::string name = "g" + std::to_string(i);
          const auto own = read(name, rank);
          const bool sharded = own.values != read(name, 1 - rank).values;
          std::vector<int64_t> whole = own.shape;
          if (sharded) whole[0] *= 2;
          parameters.push_back(add(module.get(), name, whole, sharded ? 1 : 0));
          set_grad(parameters.back(), own.values, own.shape);
        }
        const auto total = read("total", rank);
        const nxd_finish_options_t options = clip_to(1.0);
        double norm = 0;
        NXD_TEST_OK(nxd_finish_grads(module.get(), &options, &norm));
        check_loss("norm", norm, static_cast<double>(total.values[0]), 1e-6);
        for (int i = 0; i < 6; ++i) {
          const auto want = read("c" + std::to_string(i), rank);
          check_values("c" + std::to_string(i), get_grad(parameters[static_cast<size_t>(i)]),
                       std::vector<double>(want.values.begin(), want.values.end()), 1e-6);
        }
      },
      nullptr);
}

struct NormCase {
  double type, scale, want;
};

// A sharded [4], and a replicated [2] whose gradients are partial per rank, on two ranks.
void norm_types(void**) {
  // After the sum the replicated gradient is {4, -6}; the sharded one is {1, -2} and {3, 0.5}.
  static const NormCase cases[] = {{2, 0, std::sqrt(1 + 4 + 9 + 0.25 + 16 + 36)},
                                   {0, 0, std::sqrt(1 + 4 + 9 + 0.25 + 16 + 36)},
                                   {1, 0, 1 + 2 + 3 + 0.5 + 4 + 6},
                                   {1, 0.5, 0.5 * (1 + 2 + 3 + 0.5 + 4 + 6)},
                                   {kInfinity, 0, 6}};
  for (const NormCase& one : cases) {
    nxd_test_run_ranks(
        2, 2,
        [](nxd_context_t* ctx, int rank, int, void* user_data) {
          const auto& c = *static_cast<const NormCase*>(user_data);
          const Module module = make_container(ctx);
          nxd_parameter_t* sharded = add(module.get(), "sharded", {4}, 1);
          nxd_parameter_t* partial = add(module.get(), "partial", {2}, 0, 1);
          set_grad(sharded, rank == 0 ? std::vector<float>{1, -2} : std::vector<float>{3, 0.5F},
                   {2});
          set_grad(partial, rank == 0 ? std::vector<float>{1, -2} : std::vector<float>{3, -4}, {2});
          nxd_finish_options_t options = clip_to(0, c.type);
          options.scale = c.scale;
          double norm = 0;
          NXD_TEST_OK(nxd_finish_grads(module.get(), &options, &norm));
          NXD_TEST_CHECK(std::fabs(norm - c.want) < 1e-12);
          const double factor = c.scale == 0 ? 1 : c.scale;
          check_values("partial", get_grad(partial), {4 * factor, -6 * factor}, 0);
        },
        const_cast<NormCase*>(&one));
  }
}

// Sharded [1, 2 | 3, 4], replicated [5, 6]: NxD Core's own figures.
void small_golden(void**) {
  static const NormCase cases[] = {{2, 0, 9.539392}, {1, 0, 21}, {kInfinity, 0, 6}};
  for (const NormCase& one : cases) {
    nxd_test_run_ranks(
        2, 2,
        [](nxd_context_t* ctx, int rank, int, void* user_data) {
          const auto& c = *static_cast<const NormCase*>(user_data);
          const Module module = make_container(ctx);
          nxd_parameter_t* sharded = add(module.get(), "sharded", {4}, 1);
          nxd_parameter_t* replicated = add(module.get(), "replicated", {2}, 0);
          const auto first = static_cast<float>(1 + 2 * rank);
          set_grad(sharded, {first, first + 1}, {2});
          set_grad(replicated, {5, 6}, {2});
          const nxd_finish_options_t options = clip_to(1, c.type);
          double norm = 0;
          NXD_TEST_OK(nxd_finish_grads(module.get(), &options, &norm));
          check_loss("norm", norm, c.want, 1e-7);
          const double factor = c.type == 2 ? 0.104828 : 1 / c.want;
          check_values("sharded", get_grad(sharded),
                       {(1 + 2 * rank) * factor, (2 + 2 * rank) * factor}, 1e-5);
          check_values("replicated", get_grad(replicated), {5 * factor, 6 * factor}, 1e-5);
        },
        const_cast<NormCase*>(&one));
  }
}

// Four ranks, two of them tensor parallel: reduction over the two data-parallel copies.
struct ReduceCase {
  nxd_reduce_t reduce;
  double factor;
};

void data_parallel(void**) {
  static const ReduceCase cases[] = {{NXD_REDUCE_SUM, 1}, {NXD_REDUCE_AVG, 0.5}};
  for (const ReduceCase& one : cases) {
    nxd_test_run_ranks(
        4, 2,
        [](nxd_context_t* ctx, int rank, int, void* user_data) {
          const auto& c = *static_cast<const ReduceCase*>(user_data);
          const int copy = rank / 2, part = rank % 2;
          const Module module = make_container(ctx);
          nxd_parameter_t* sharded = add(module.get(), "sharded", {4}, 1);
          nxd_parameter_t* partial = add(module.get(), "partial", {1}, 0, 1);
          nxd_parameter_t* one_sided = add(module.get(), "one_sided", {1}, 0);
          add(module.get(), "unused", {3}, 0);
          const auto base = static_cast<float>(10 * copy + part);
          set_grad(sharded, {base, base + 0.5F}, {2});
          set_grad(partial, {base}, {1});
          if (copy == 1) set_grad(one_sided, {8}, {1});  // zeros on the other copy
          nxd_finish_options_t options = NXD_FINISH_OPTIONS_INIT;
          options.data_parallel_reduce = c.reduce;
          double norm = 0;
          NXD_TEST_OK(nxd_finish_grads(module.get(), &options, &norm));
          const double sum = 10 + 2 * part;
          check_values("sharded", get_grad(sharded), {sum * c.factor, (sum + 1) * c.factor}, 0);
          check_values("partial", get_grad(partial), {22 * c.factor}, 0);
          check_values("one_sided", get_grad(one_sided), {8 * c.factor}, 0);
          const double squares = 10. * 10 + 11 * 11 + 12 * 12 + 13 * 13 + 22 * 22 + 8 * 8;
          NXD_TEST_CHECK(std::fabs(norm - c.factor * std::sqrt(squares)) < 1e-12);
          nxd_parameter_t* unused = nullptr;
          NXD_TEST_OK(nxd_module_find_parameter(module.get(), "unused", &unused));
          NXD_TEST_CHECK(get_grad(unused).empty());
        },
        const_cast<ReduceCase*>(&one));
  }
}

// Clipping happens only above the limit, and divides by the norm and a little.
void clipping(void**) {
  nxd_test_run_ranks(
      1, 1,
      [](nxd_context_t* ctx, int, int, void*) {
        const Module module = make_container(ctx);
        nxd_parameter_t* parameter = add(module.get(), "w", {2}, 0);
        double norm = 0;
        set_grad(parameter, {3, 4}, {2});
        nxd_finish_options_t options = clip_to(5.1);
        NXD_TEST_OK(nxd_finish_grads(module.get(), &options, &norm));
        NXD_TEST_CHECK(norm == 5);
        check_values("below", get_grad(parameter), {3, 4}, 0);
        options.max_norm = 0.5;
        NXD_TEST_OK(nxd_finish_grads(module.get(), &options, &norm));
        const double factor = 0.5 / (5 + 1e-6);
        check_values("above", get_grad(parameter), {3 * factor, 4 * factor}, 1e-7);
        NXD_TEST_OK(nxd_finish_grads(module.get(), nullptr, nullptr));
        // No gradient at all.
        NXD_TEST_OK(nxd_module_zero_grad(module.get()));
        NXD_TEST_OK(nxd_finish_grads(module.get(), &options, &norm));
        NXD_TEST_CHECK(norm == 0);
      },
      nullptr);
}

// A replicated parameter counts once in each layout, whichever it was made in, or before any.
void other_layouts(void**) {
  nxd_test_run_ranks(
      2, 0,
      [](nxd_context_t* ctx, int, int, void*) {
        const auto lay_out = [ctx](int tensor) {
          nxd_parallel_options_t options = NXD_PARALLEL_OPTIONS_INIT;
          options.tensor_parallel_size = tensor;
          NXD_TEST_OK(nxd_init_model_parallel(ctx, &options));
        };
        const auto check_norm = [](const Module& module) {
          nxd_parameter_t* parameter = nullptr;
          NXD_TEST_OK(nxd_module_find_parameter(module.get(), "w", &parameter));
          set_grad(parameter, {3, 4}, {2});
          nxd_finish_options_t options = clip_to(0.5);
          options.data_parallel_reduce = NXD_REDUCE_AVG;
          double norm = 0;
          NXD_TEST_OK(nxd_finish_grads(module.get(), &options, &norm));
          NXD_TEST_CHECK(norm == 5);
        };
        const Module before = make_container(ctx), within = make_container(ctx);
        add(before.get(), "w", {2}, 0);
        lay_out(2);
        add(within.get(), "w", {2}, 0);
        for (const int tensor : {1, 2}) {
          check_norm(before);
          check_norm(within);
          NXD_TEST_OK(nxd_destroy_model_parallel(ctx));
          lay_out(tensor);
        }
        check_norm(before);
        check_norm(within);
      },
      nullptr);
}

void not_finite(void**) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const double type : {1.0, 2.0, kInfinity}) {
      struct Case {
        float bad;
        double type;
      } one{bad, type};
      nxd_test_run_ranks(
          2, 2,
          [](nxd_context_t* ctx, int rank, int, void* user_data) {
            const auto& c = *static_cast<const Case*>(user_data);
            const Module module = make_container(ctx);
            nxd_parameter_t* parameter = add(module.get(), "w", {4}, 1);
            // Only rank 1 has the bad value, and every rank must hear of it.
            set_grad(parameter, {1, rank == 1 ? c.bad : 2}, {2});
            nxd_finish_options_t options = clip_to(0.1, c.type);
            double norm = 7;
            NXD_TEST_REFUSED(nxd_finish_grads(module.get(), &options, &norm),
                             NXD_ERROR_INVALID_STATE, "norm of the gradients");
            NXD_TEST_CHECK(norm == 0);
            NXD_TEST_CHECK(get_grad(parameter)[0] == 1);
            options.check_finite = NXD_TOGGLE_OFF;
            NXD_TEST_OK(nxd_finish_grads(module.get(), &options, &norm));
            NXD_TEST_CHECK(!std::isfinite(norm));
            NXD_TEST_CHECK(get_grad(parameter)[0] == 1);
          },
          &one);
    }
  }
}

// A finite norm that is too large to clip from is as one that is not: gradients stay as they are.
void too_large(void**) {
  nxd_test_run_ranks(
      2, 2,
      [](nxd_context_t* ctx, int, int, void*) {
        const Module module = make_container(ctx);
        nxd_parameter_t* parameter = add(module.get(), "w", {4}, 1);
        const float large = 2e38F;
        set_grad(parameter, {large, large}, {2});
        const nxd_finish_options_t options = clip_to(1);
        NXD_TEST_REFUSED(nxd_finish_grads(module.get(), &options, nullptr), NXD_ERROR_INVALID_STATE,
                         "left unclipped");
        check_values("gradient", get_grad(parameter), {large, large}, 0);
      },
      nullptr);
}

void bad_arguments(void**) {
  nxd_test_run_ranks(
      2, 2,
      [](nxd_context_t* ctx, int rank, int, void*) {
        NXD_TEST_REFUSED(nxd_finish_grads(nullptr, nullptr, nullptr), NXD_ERROR_INVALID_ARGUMENT,
                         "root");
        const Module module = make_container(ctx);
        nxd_parameter_t* parameter = add(module.get(), "w", {2}, 1);
        set_grad(parameter, {1}, {1});
        nxd_finish_options_t options = NXD_FINISH_OPTIONS_INIT;
        const auto refused = [&](const char* part) {
          double norm = 3;
          NXD_TEST_REFUSED(nxd_finish_grads(module.get(), &options, &norm),
                           NXD_ERROR_INVALID_ARGUMENT, part);
          NXD_TEST_CHECK(norm == 0);
          options = NXD_FINISH_OPTIONS_INIT;
        };
        options.max_norm = -1;
        refused("max_norm");
        options.norm_type = 3;
        refused("norm_type");
        options.norm_type = -kInfinity;
        refused("norm_type");
        options.scale = NAN;
        refused("scale");
        options.data_parallel_reduce = NXD_REDUCE_MAX;
        refused("data_parallel_reduce");
        // One rank's bad argument, and ranks that differ: no rank is left waiting.
        if (rank == 1) options.scale = kInfinity;
        refused(rank == 1 ? "scale" : "rank 1");
        options.max_norm = 1 + rank;
        refused("max_norm: expected the same on all ranks");
        options.struct_size = 4;
        NXD_TEST_REFUSED(nxd_finish_grads(module.get(), &options, nullptr), NXD_ERROR_ABI_MISMATCH,
                         "struct_size");
        if (rank == 0) add(module.get(), "more", {2}, 0);
        options = NXD_FINISH_OPTIONS_INIT;
        refused("number of trainable parameters");
        check_values("gradient", get_grad(parameter), {1}, 0);
      },
      nullptr);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(against_nxd_core), cmocka_unit_test(small_golden),
      cmocka_unit_test(norm_types),       cmocka_unit_test(data_parallel),
      cmocka_unit_test(clipping),         cmocka_unit_test(other_layouts),
      cmocka_unit_test(not_finite),       cmocka_unit_test(too_large),
      cmocka_unit_test(bad_arguments),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
