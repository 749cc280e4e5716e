#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <ATen/core/symbol.h>

#include <memory>
#include <optional>
#include <string>

#include "engine/module/module.h"

// Operators in the code of TorchScript modules that libtorch does not run: those that draw random
// numbers, which with it no layout of ranks, and no second run of a forward, would repeat, and
// those of newer releases.
namespace nxd {

// Makes known to libtorch what files of newer releases of PyTorch call and this one lacks:
// scaled_dot_product_attention (2.0), which attention runs, and rms_norm (2.4). Before such a file
// is loaded.
void register_newer_operators(void (*attention)(torch::jit::Stack&));

// Makes an operator known to the interpreter alone: no dispatcher, and so no trace, sees it.
c10::Symbol known_to_interpreter(const char* name, const char* signature,
                                 void (*function)(torch::jit::Stack&));

constexpr const char* kScriptAttention = "aten::scaled_dot_product_attention";
constexpr const char* kScriptAttentionSignature =
    "(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0.0, "
    "bool is_causal=False, *, float? scale=None, bool enable_gqa=False) -> Tensor";

struct ScriptDropout {
  at::Tensor input;
  double p = 0;
  bool is_on = false;        // as the code says
  bool in_place = false;     // writes to the input
  bool of_channels = false;  // drops all places of a channel, dimension 1, or none
};

// scaled_dot_product_attention of PyTorch: softmax(scale q k^T + mask) v, with a dropout of the
// weights. q [..., heads, queries, d], k [..., kv heads, keys, d], v [..., kv heads, keys, e].
struct ScriptAttention {
  at::Tensor q, k, v;
  at::Tensor mask;               // added to the scores, or bool: true means keep; undefined: none
  double dropout = 0;            // probability
  bool causal = false;           // query i sees the keys 0 to i
  std::optional<double> scale;   // 1 / sqrt(d) without
  bool grouped_queries = false;  // there may be fewer heads of keys
};

// Random numbers that the code asks for itself, such as a stochastic depth's, or noise.
struct ScriptDraw {
  enum class Kind : int64_t {
    kUniform,      // from first to below second
    kNormal,       // of mean first and deviation second
    kBernoulli,    // 1 with probability first, else 0
    kExponential,  // of rate first
  };
  Kind kind = Kind::kUniform;
  double first = 0, second = 1;
};

// Where a call of an operator draws: a site of its own within the forward of the module.
struct ScriptSite {
  std::shared_ptr<const Module> module;
  std::string name;
  std::shared_ptr<const Module> mode;  // whose training flag says if it draws; null: its code does
};

// Each is one function of a trace, which draws for the step and microbatch of its run.

// INVALID_ARGUMENT for a p that is no probability, and for channels of a vector.
at::Tensor drop(const ScriptSite& site, const ScriptDropout& dropout);
// Blocked, by the library's kernels, where these have the form: q, k and v of 4 dimensions and one
// d, as many queries as keys if causal, and a mask that kernel_mask() reads. INVALID_ARGUMENT for a
// mask beside causal.
at::Tensor attend(const ScriptSite& site, const ScriptAttention& attention);
// Writes random numbers to the values and gives them. INVALID_ARGUMENT for values of no float dtype
// and for parameters that no such numbers have.
at::Tensor draw(const ScriptSite& site, const ScriptDraw& draw, at::Tensor values);

}  // namespace nxd
