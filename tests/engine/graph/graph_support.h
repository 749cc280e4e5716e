// Support for tests of graphs: a trace's stages, run one after another on one thread.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "capi/engine_handles.h"
#include "engine/autograd/gradients.h"
#include "engine/graph/stage_executor.h"
#include "engine/graph/tracer.h"
#include "engine/module/module_tree.h"
#include "support/model_support.h"
#include "support/ranks.h"

namespace nxd_test {

using nxd::Graph;
using nxd::Partition;
using Tensors = nxd::Module::Tensors;

struct Outcome {
  Tensors outputs, gradients;  // of the root, and of its parameters
};

// Takes the parameters' gradients away.
inline Tensors take_gradients(const nxd::Module& root) {
  Tensors gradients;
  for (const auto& entry : nxd::named_parameters(root)) {
    gradients.push_back(entry.parameter->gradient());
    entry.parameter->forget_gradient();
  }
  return gradients;
}

// A sum of weighted outputs, so that every one that is differentiable has a gradient of its own.
inline std::pair<Tensors, Tensors> roots_of(const Tensors& outputs) {
  Tensors roots, grads;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].defined() || !outputs[i].requires_grad()) continue;
    roots.push_back(outputs[i]);
    grads.push_back(at::full_like(outputs[i], 1.0 + static_cast<double>(i)));
  }
  return {roots, grads};
}

inline void backward(const Tensors& roots, const Tensors& grads) {
  if (!roots.empty()) nxd::run_backward(roots, grads, false);
}

// The module itself, forwards and backwards.
inline Outcome run_whole(nxd::Module& root, const Tensors& inputs, size_t n_outputs) {
  Outcome result;
  const Tensors outputs = root.call(inputs, n_outputs);
  const auto [roots, grads] = roots_of(outputs);
  backward(roots, grads);
  for (const at::Tensor& x : outputs) result.outputs.push_back(x.defined() ? x.detach() : x);
  result.gradients = take_gradients(root);
  return result;
}

// The stages in order, each on detached copies of what the one before gave, and backwards.
inline Outcome run_stages(const std::shared_ptr<const Graph>& graph, const Partition& partition,
                          const nxd::Module& root, const Tensors& inputs) {
  const size_t n = partition.stages.size();
  std::vector<Tensors> given(n), made(n);
  for (size_t s = 0; s < n; ++s) {
    const nxd::StageExecutor executor(graph, partition, static_cast<int>(s));
    Tensors used(inputs.size());
    for (const size_t i : executor.root_inputs()) used[i] = inputs[i];
    if (s > 0) {
      for (size_t i = 0; i < made[s - 1].size(); ++i) {
        at::Tensor copy = made[s - 1][i].detach().clone(at::MemoryFormat::Contiguous);
        const auto id = static_cast<size_t>(partition.stages[s].inputs[i]);
        copy.set_requires_grad(graph->values[id].needs_grad);
        given[s].push_back(copy);
      }
    }
    made[s] = executor.run(given[s], used);
  }
  Outcome result;
  for (const at::Tensor& x : made[n - 1]) result.outputs.push_back(x.defined() ? x.detach() : x);
  auto [roots, grads] = roots_of(made[n - 1]);
  for (size_t s = n; s-- > 0;) {
    backward(roots, grads);
    roots.clear();
    grads.clear();
    for (size_t i = 0; i < given[s].size(); ++i) {
      if (!given[s][i].grad().defined()) continue;
      roots.push_back(made[s - 1][i]);
      grads.push_back(given[s][i].grad());
    }
  }
  result.gradients = take_gradients(root);
  return result;
}

inline void check_same(const std::string& what, const Tensors& got, const Tensors& want,
                       double tolerance = 0) {
  if (!NXD_TEST_CHECK(got.size() == want.size())) return;
  for (size_t i = 0; i < got.size(); ++i) {
    const bool same = got[i].defined() == want[i].defined() &&
                      (!got[i].defined() ||
                       (got[i].sizes() == want[i].sizes() && got[i].dtype() == want[i].dtype() &&
                        (tolerance == 0 ? at::equal(got[i], want[i])
                                        : at::allclose(got[i], want[i], tolerance, tolerance))));
    if (!same) nxd_test_fail(__FILE__, __LINE__, "%s: %zu differs", what.c_str(), i);
  }
}

// Traces the module and compares its stages with itself.
inline void check_stages(const std::string& what, const std::shared_ptr<nxd::Module>& root,
                         const Tensors& inputs, size_t n_outputs, const nxd::TraceOptions& options,
                         const std::vector<std::string>& cuts, double tolerance = 0) {
  const auto graph = std::make_shared<Graph>(nxd::trace(root, inputs, n_outputs, options));
  const Partition partition = nxd::partition_at(*graph, cuts);
  const Outcome want = run_whole(*root, inputs, n_outputs);
  const Outcome got = run_stages(graph, partition, *root, inputs);
  check_same(what + ": output", got.outputs, want.outputs);
  check_same(what + ": gradient", got.gradients, want.gradients, tolerance);
}

// The function must throw an Error of this status, with the part in its message.
inline void refused(nxd_status_t status, const std::string& part,
                    const std::function<void()>& function) {
  try {
    function();
  } catch (const nxd::Error& error) {
    if (error.status() == status && std::string(error.what()).find(part) != std::string::npos) {
      return;
    }
    nxd_test_fail(__FILE__, __LINE__, "expected %s with \"%s\", got %s: %s",
                  nxd_status_string(status), part.c_str(), nxd_status_string(error.status()),
                  error.what());
    return;
  } catch (const std::exception& error) {
    nxd_test_fail(__FILE__, __LINE__, "expected \"%s\", got: %s", part.c_str(), error.what());
    return;
  }
  nxd_test_fail(__FILE__, __LINE__, "not refused: expected \"%s\"", part.c_str());
}

}  // namespace nxd_test
