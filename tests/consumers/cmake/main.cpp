// Fits a small network to a rotation on two tensor-parallel ranks, and on one to compare.
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>

#include "network.h"

namespace {

constexpr int kFeatures = 8, kHidden = 16, kSamples = 32, kSteps = 60;

void check(nxd_status_t status) {
  if (status != NXD_OK) throw std::runtime_error(nxd_last_error());
}

template <class T, void (*destroy)(T*)>
struct Destroy {
  void operator()(T* object) const { destroy(object); }
};
using Context = std::unique_ptr<nxd_context_t, Destroy<nxd_context_t, nxd_context_destroy>>;
using Tensor = std::unique_ptr<nxd_tensor_t, Destroy<nxd_tensor_t, nxd_tensor_destroy>>;
using Optimizer = std::unique_ptr<nxd_optimizer_t, Destroy<nxd_optimizer_t, nxd_optimizer_destroy>>;
using Job = std::unique_ptr<nxd_job_t, Destroy<nxd_job_t, nxd_job_destroy>>;

Tensor waves(int shift) {
  std::array<float, kSamples * kFeatures> values{};
  for (int s = 0; s < kSamples; ++s) {
    for (int f = 0; f < kFeatures; ++f)
      values[s * kFeatures + f] = std::sin(0.37F * float(s * ((f + shift) % kFeatures + 1)));
  }
  const int64_t shape[] = {kSamples, kFeatures};
  nxd_tensor_t* tensor = nullptr;
  check(nxd_tensor_from_data(values.data(), sizeof values, shape, 2, NXD_DTYPE_F32, &tensor));
  return Tensor(tensor);
}

double step(network& n, Optimizer& adamw, const Tensor& x, const Tensor& target) {
  nxd_tensor_t* inputs[] = {x.get(), target.get()};
  nxd_tensor_t* out = nullptr;
  double value = 0;
  check(nxd_module_forward(n.root, inputs, 2, &out, 1));
  const Tensor loss(out);
  check(nxd_backward(&out, nullptr, 1, 0));
  check(nxd_optimizer_step(adamw.get(), nullptr, nullptr));
  check(nxd_module_zero_grad(n.root));
  check(nxd_tensor_get_item(loss.get(), &value));
  return value;
}

void fit() {
  nxd_context_t* joined = nullptr;
  check(nxd_context_create(nullptr, &joined));
  const Context ctx(joined);
  nxd_parallel_options_t layout = NXD_PARALLEL_OPTIONS_INIT;
  check(nxd_context_get_size(ctx.get(), &layout.tensor_parallel_size));
  check(nxd_init_model_parallel(ctx.get(), &layout));
  network n{};
  check(network_create(ctx.get(), kFeatures, kHidden, &n));
  nxd_adamw_options_t options = NXD_ADAMW_OPTIONS_INIT;
  options.learning_rate = 0.01;
  nxd_optimizer_t* made = nullptr;
  check(nxd_optimizer_create_adamw(n.root, &options, &made));
  Optimizer adamw(made);
  const Tensor x = waves(0), target = waves(1);
  const double first = step(n, adamw, x, target);
  double last = first;
  for (int i = 1; i < kSteps; ++i) last = step(n, adamw, x, target);
  char line[64];
  std::snprintf(line, sizeof line, "loss %.3f to %.3f", first, last);
  check(nxd_master_print(ctx.get(), line));
  if (!(last < 0.6 * first)) throw std::runtime_error("the network does not learn");
  adamw.reset();
  network_destroy(&n);
  check(nxd_context_finalize(ctx.get()));
}

// False where a launcher has started this process.
bool start(int ranks) {
  nxd_spawn_options_t options = NXD_SPAWN_OPTIONS_INIT;
  options.num_processes = ranks;
  nxd_job_t* started = nullptr;
  const nxd_status_t status = nxd_spawn(&options, &started);
  if (status == NXD_ERROR_INVALID_STATE) return false;
  check(status);
  const Job job(started);
  check(nxd_job_wait(job.get(), 60000));
  return true;
}

}  // namespace

int main(int argc, char** argv) try {
  if (nxd_abi_version() != NXD_ABI_VERSION) throw std::runtime_error("another ABI");
  if (!start(argc > 1 ? std::atoi(argv[1]) : 2)) fit();
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "fit: %s\n", e.what());
  return 1;
}
