// Buffers of a ddp that move: gradients that a framework allocates anew at each step, in the middle
// of the reduction, and parameters.
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/buffer_model.h"
#include "support/temp_dir.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

nxd_ddp_options_t in_buckets(int64_t bytes, int32_t zero_stage = 0) {
  nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
  options.bucket_bytes = bytes;
  options.zero_stage = zero_stage;
  return options;
}

// Whole numbers, which add up without rounding.
double grad_of(int rank, size_t parameter, int64_t i, int step) {
  const auto k = static_cast<int64_t>(parameter);
  return static_cast<double>((7 * i + 5 * k + 11 * rank + 3 * step) % 23 - 11);
}

// Hooks of a framework that allocates gradients anew at each step: each gradient is bound when it
// is complete, while buckets of others travel, and its memory is freed after the step.
void gradients_that_are_allocated_anew(void**) {
  for (const int64_t bucket_bytes : {1, 700}) {
    for (const int zero_stage : {0, 1}) {
      on_ranks<int>(3, [&](nxd_context_t* ctx, int rank, int size) {
        const Shapes shapes = ragged_shapes();
        BufferModel model(shapes, NXD_DTYPE_F32, NXD_DTYPE_F32);
        Ddp ddp;
        if (!NXD_TEST_OK(model.create_ddp(ctx, in_buckets(bucket_bytes, zero_stage), ddp)))
          return 0;
        nxd_sgd_options_t sgd = NXD_SGD_OPTIONS_INIT;
        sgd.learning_rate = 0.25;
        nxd_optimizer_t* handle = nullptr;
        if (!NXD_TEST_OK(nxd_optimizer_create_sgd_ddp(ddp.get(), &sgd, &handle))) return 0;
        const Optimizer optimizer(handle);
        for (int step = 0; step < 3; ++step) {
          const std::vector<double> before = model.values();
          for (auto& grad : model.grads) grad.reset();
          for (size_t k = shapes.size(); k-- > 0;) {
            model.grads[k] = std::make_unique<Array>(shapes[k], NXD_DTYPE_F32);
            for (int64_t i = 0; i < model.grads[k]->count(); ++i) {
              model.grads[k]->set(i, grad_of(rank, k, i, step));
            }
            NXD_TEST_OK(nxd_ddp_rebind(ddp.get(), k, nullptr, model.grads[k]->tensor()));
            // The last step marks nothing.
            if (step < 2) NXD_TEST_OK(nxd_ddp_mark_ready(ddp.get(), k));
          }
          NXD_TEST_OK(nxd_optimizer_step(optimizer.get(), nullptr, nullptr));
          const std::vector<double> after = model.values();
          size_t at = 0, wrong = 0;
          for (size_t k = 0; k < shapes.size(); ++k) {
            for (int64_t i = 0; i < model.params[k]->count(); ++i, ++at) {
              double sum = 0;
              for (int r = 0; r < size; ++r) sum += grad_of(r, k, i, step);
              wrong += !(std::fabs(after[at] - (before[at] - 0.25 * sum)) <= 1e-5);
            }
          }
          NXD_TEST_CHECK(wrong == 0);
        }
        return 0;
      });
    }
  }
}

// A bucket of gradients that were bound in this step travels before the others are complete.
void rebound_gradients_overlap(void**) {
  on_ranks<int>(2, [](nxd_context_t* ctx, int rank, int) {
    BufferModel model({{4}, {4}, {4}}, NXD_DTYPE_F32, NXD_DTYPE_F32);
    nxd_group_t* world = nullptr;
    NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
    Ddp ddp;
    if (!NXD_TEST_OK(model.create_ddp(ctx, in_buckets(1), ddp))) return 0;
    Array moved[3] = {{{4}, NXD_DTYPE_F32}, {{4}, NXD_DTYPE_F32}, {{4}, NXD_DTYPE_F32}};
    for (size_t k = 3; k-- > 0;) {
      for (int64_t i = 0; i < 4; ++i) moved[k].set(i, rank + 1);
      NXD_TEST_OK(nxd_ddp_rebind(ddp.get(), k, nullptr, moved[k].tensor()));
      NXD_TEST_OK(nxd_ddp_mark_ready(ddp.get(), k));
      NXD_TEST_OK(nxd_barrier(world));  // behind the bucket's reduction, in the group's order
      NXD_TEST_CHECK(moved[k].get(3) == 3);
    }
    NXD_TEST_OK(nxd_ddp_finish(ddp.get(), nullptr, nullptr));
    return 0;
  });
}

// Masters in F32 are kept while a parameter is bound to the memory it has, and taken anew from
// other memory.
void masters_of_rebound_parameters(void**) {
  on_ranks<int>(2, [](nxd_context_t* ctx, int, int) {
    std::vector<std::vector<char>> ends;
    for (const int rebinds : {0, 1, 2}) {
      BufferModel model({{9}, {40}}, NXD_DTYPE_BF16, NXD_DTYPE_F32);
      nxd_ddp_options_t options = in_buckets(0);
      options.zero_stage = 1;
      Ddp ddp;
      if (!NXD_TEST_OK(model.create_ddp(ctx, options, ddp))) return 0;
      nxd_sgd_options_t sgd = NXD_SGD_OPTIONS_INIT;
      sgd.learning_rate = 1e-4;  // far less than the spacing of BF16: only masters move
      nxd_optimizer_t* handle = nullptr;
      if (!NXD_TEST_OK(nxd_optimizer_create_sgd_ddp(ddp.get(), &sgd, &handle))) return 0;
      const Optimizer optimizer(handle);
      for (int step = 0; step < 30; ++step) {
        for (size_t k = 0; k < 2; ++k) {
          for (int64_t i = 0; i < model.grads[k]->count(); ++i) model.grads[k]->set(i, 1);
          if (rebinds == 2) {
            auto other = std::make_unique<Array>(model.params[k]->shape(), NXD_DTYPE_BF16);
            for (int64_t i = 0; i < other->count(); ++i) other->set(i, model.params[k]->get(i));
            std::swap(model.params[k], other);
            NXD_TEST_OK(nxd_ddp_rebind(ddp.get(), k, model.params[k]->tensor(), nullptr));
          } else if (rebinds == 1) {
            NXD_TEST_OK(nxd_ddp_rebind(ddp.get(), k, model.params[k]->tensor(), nullptr));
          }
        }
        NXD_TEST_OK(nxd_optimizer_step(optimizer.get(), nullptr, nullptr));
      }
      ends.push_back(model.bytes());
    }
    NXD_TEST_CHECK(ends[0] == ends[1] && ends[0] != ends[2]);
    return 0;
  });
}

// Masters that are loaded belong to the values that are there, also where the program has put these
// in other memory: training goes on from the file's, which are finer than BF16.
void masters_that_are_loaded(void**) {
  const TempDir directory;
  const std::string path = directory.path() + "/state";
  on_ranks<int>(1, [&](nxd_context_t* ctx, int, int) {
    BufferModel model({{9}, {40}}, NXD_DTYPE_BF16, NXD_DTYPE_F32);
    std::vector<double> halfway;
    const auto run = [&](bool loads, const std::string& save) {
      Ddp ddp;
      if (!NXD_TEST_OK(model.create_ddp(ctx, in_buckets(0), ddp))) return;
      nxd_sgd_options_t sgd = NXD_SGD_OPTIONS_INIT;
      sgd.learning_rate = 1e-4;  // far less than the spacing of BF16: only masters move
      nxd_optimizer_t* handle = nullptr;
      if (!NXD_TEST_OK(nxd_optimizer_create_sgd_ddp(ddp.get(), &sgd, &handle))) return;
      const Optimizer optimizer(handle);
      if (loads) {
        for (size_t k = 0; k < 2; ++k) {
          auto other = std::make_unique<Array>(model.params[k]->shape(), NXD_DTYPE_BF16);
          for (int64_t i = 0; i < other->count(); ++i) other->set(i, model.params[k]->get(i));
          std::swap(model.params[k], other);
          NXD_TEST_OK(nxd_ddp_rebind(ddp.get(), k, model.params[k]->tensor(), nullptr));
        }
        NXD_TEST_OK(nxd_optimizer_load(handle, path.c_str()));
      }
      for (int step = 0; step < 30; ++step) {
        for (const auto& grad : model.grads) {
          for (int64_t i = 0; i < grad->count(); ++i) grad->set(i, 1);
        }
        NXD_TEST_OK(nxd_optimizer_step(handle, nullptr, nullptr));
        if (step == 14 && !save.empty()) {
          NXD_TEST_OK(nxd_optimizer_save(handle, save.c_str()));
          halfway = model.values();
        }
        if (step == 14 && loads) break;
      }
    };
    run(false, path);
    const std::vector<char> expected = model.bytes();
    size_t at = 0;
    for (const auto& array : model.params) {
      for (int64_t i = 0; i < array->count(); ++i) array->set(i, halfway[at++]);
    }
    run(true, "");
    NXD_TEST_CHECK(model.bytes() == expected);
    return 0;
  });
}

// A file has the values that a program has written, and not those of masters from before.
void masters_of_rewritten_parameters(void**) {
  const TempDir directory;
  const std::string path = directory.path() + "/state";
  for (const int32_t zero_stage : {0, 1}) {
    on_ranks<int>(2, [&](nxd_context_t* ctx, int, int) {
      BufferModel model({{9}, {40}}, NXD_DTYPE_BF16, NXD_DTYPE_F32);
      Ddp ddp;
      if (!NXD_TEST_OK(model.create_ddp(ctx, in_buckets(0, zero_stage), ddp))) return 0;
      const auto make = [&] {
        nxd_optimizer_t* handle = nullptr;
        NXD_TEST_OK(nxd_optimizer_create_sgd_ddp(ddp.get(), nullptr, &handle));
        return Optimizer(handle);
      };
      Optimizer optimizer = make();
      NXD_TEST_OK(nxd_optimizer_step(optimizer.get(), nullptr, nullptr));
      for (const auto& array : model.params) {
        for (int64_t i = 0; i < array->count(); ++i) array->set(i, 2 + static_cast<double>(i));
      }
      NXD_TEST_OK(nxd_ddp_mark_reloaded(ddp.get()));
      const std::vector<char> written = model.bytes();
      NXD_TEST_OK(nxd_optimizer_save(optimizer.get(), path.c_str()));
      optimizer = make();
      NXD_TEST_OK(nxd_optimizer_load(optimizer.get(), path.c_str()));
      NXD_TEST_OK(nxd_optimizer_step(optimizer.get(), nullptr, nullptr));  // by gradients of 0
      NXD_TEST_CHECK(model.bytes() == written);
      return 0;
    });
  }
}

// A state that was saved without masters goes on with them: they are made from the values, by the
// next update and by a save before that.
void masters_of_a_state_without(void**) {
  const TempDir directory;
  const std::string path = directory.path() + "/state", again = directory.path() + "/again";
  for (const int32_t zero_stage : {0, 1}) {
    on_ranks<int>(2, [&](nxd_context_t* ctx, int, int) {
      BufferModel model({{9}, {40}}, NXD_DTYPE_BF16, NXD_DTYPE_F32);
      Ddp ddp;
      if (!NXD_TEST_OK(model.create_ddp(ctx, in_buckets(0, zero_stage), ddp))) return 0;
      const auto make = [&](nxd_bf16_update_t update, double momentum) {
        nxd_sgd_options_t sgd = NXD_SGD_OPTIONS_INIT;
        sgd.learning_rate = 0.25;
        sgd.momentum = momentum;
        sgd.bf16_update = update;
        nxd_optimizer_t* handle = nullptr;
        NXD_TEST_OK(nxd_optimizer_create_sgd_ddp(ddp.get(), &sgd, &handle));
        return Optimizer(handle);
      };
      const auto step = [&](const Optimizer& optimizer, double gradient) {
        for (const auto& grad : model.grads) {
          for (int64_t i = 0; i < grad->count(); ++i) grad->set(i, gradient / 2);
        }
        NXD_TEST_OK(nxd_optimizer_step(optimizer.get(), nullptr, nullptr));
      };
      for (const auto& array : model.params) {
        for (int64_t i = 0; i < array->count(); ++i) array->set(i, 3);
      }
      Optimizer optimizer = make(NXD_BF16_UPDATE_NEAREST, 0);
      step(optimizer, 1);
      NXD_TEST_OK(nxd_optimizer_save(optimizer.get(), path.c_str()));
      optimizer = make(NXD_BF16_UPDATE_MASTER, 0);
      NXD_TEST_OK(nxd_optimizer_load(optimizer.get(), path.c_str()));
      NXD_TEST_OK(nxd_optimizer_save(optimizer.get(), again.c_str()));
      // Steps that the master alone adds up: each is a quarter of the way to the next BF16.
      for (int i = 0; i < 3; ++i) step(optimizer, 0x1p-6);
      for (const double value : model.values()) NXD_TEST_CHECK(value == 2.75 - 0x1p-6);
      optimizer = make(NXD_BF16_UPDATE_MASTER, 0);
      NXD_TEST_OK(nxd_optimizer_load(optimizer.get(), again.c_str()));
      step(optimizer, 0);
      for (const double value : model.values()) NXD_TEST_CHECK(value == 2.75);
      optimizer = make(NXD_BF16_UPDATE_MASTER, 0.5);
      NXD_TEST_REFUSED(nxd_optimizer_load(optimizer.get(), path.c_str()),
                       NXD_ERROR_INVALID_ARGUMENT, "expected the states that this sgd keeps");
      return 0;
    });
  }
}

// An optimizer goes on from what another one over the same ddp has made of the values, and not from
// its own masters of before. The values, and the steps, are numbers of BF16.
void masters_of_two_optimizers(void**) {
  for (const int32_t zero_stage : {0, 1}) {
    on_ranks<int>(2, [&](nxd_context_t* ctx, int, int) {
      BufferModel model({{9}, {40}}, NXD_DTYPE_BF16, NXD_DTYPE_BF16);
      for (const auto& array : model.params) {
        for (int64_t i = 0; i < array->count(); ++i) array->set(i, 3);
      }
      Ddp ddp;
      if (!NXD_TEST_OK(model.create_ddp(ctx, in_buckets(0, zero_stage), ddp))) return 0;
      std::vector<Optimizer> optimizers;
      for (int i = 0; i < 2; ++i) {
        nxd_sgd_options_t sgd = NXD_SGD_OPTIONS_INIT;
        sgd.learning_rate = 0.25;
        nxd_optimizer_t* handle = nullptr;
        NXD_TEST_OK(nxd_optimizer_create_sgd_ddp(ddp.get(), &sgd, &handle));
        optimizers.emplace_back(handle);
      }
      for (int step = 0; step < 4; ++step) {
        for (const auto& grad : model.grads) {
          for (int64_t i = 0; i < grad->count(); ++i) grad->set(i, 0.5);  // 1 over both ranks
        }
        const Optimizer& optimizer = optimizers[static_cast<size_t>(step % 2)];
        NXD_TEST_OK(nxd_optimizer_step(optimizer.get(), nullptr, nullptr));
      }
      for (const double value : model.values()) NXD_TEST_CHECK(value == 2);
      return 0;
    });
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(gradients_that_are_allocated_anew),
                              cmocka_unit_test(rebound_gradients_overlap),
                              cmocka_unit_test(masters_of_rebound_parameters),
                              cmocka_unit_test(masters_that_are_loaded),
                              cmocka_unit_test(masters_of_rewritten_parameters),
                              cmocka_unit_test(masters_of_a_state_without),
                              cmocka_unit_test(masters_of_two_optimizers)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
