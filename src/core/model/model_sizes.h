#pragma once

#include <cstdint>
#include <string>

namespace nxd {

// Sizes enter formulas as doubles.
inline double number(int64_t value) { return static_cast<double>(value); }

// The fewest heads of which each of so many tensor-parallel ranks has one.
int64_t fewest_heads(int64_t kv_heads, int ranks);

// The sizes of a model of tokens, and all that follows from them alone: parameters and operations.
// Counts for `tensor` ranks are those of the last of so many tensor-parallel ranks. Where the ranks
// do not divide a size their shares are nearly equal, and no rank has more than the last. Pure.
struct ModelSizes {
  int64_t hidden = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t intermediate = 0;
  int64_t vocabulary = 0;
  int64_t positions = 0;  // rows of a table that is learned; 0: rotary positions
  bool gated_mlp = false;
  bool attention_bias = false;  // of queries, keys and values
  bool output_bias = false;     // of the attention's output
  bool head_norms = false;      // queries and keys pass a norm of each head
  bool mlp_bias = false;
  bool norm_bias = false;
  bool tied_embeddings = false;
  bool causal = true;       // a query sees no later key
  int64_t token_types = 0;  // rows of BERT's table of token types; 0: no BERT
  // Layers in which a query sees so many keys at most.
  int64_t window = 0;
  int64_t window_layers = 0;

  // Features of queries, of keys, and inside of the MLP. Key heads fewer than ranks are held
  // several times, and ranks with the same one share its queries.
  int64_t query_width(int tensor = 1) const;
  int64_t key_width(int tensor = 1) const;
  int64_t mlp_width(int tensor = 1) const;

  // Elements of a layer's matrices, and of all of its parameters.
  int64_t layer_matrix_elements(int tensor = 1) const;
  int64_t layer_elements(int tensor = 1) const;
  int64_t embedding_elements(int tensor = 1) const;
  // Elements of one norm, of the head's matrix, and of all that is behind the layers beside it: the
  // last norm, or the heads of BERT's pre-training.
  int64_t norm_elements() const;
  int64_t head_elements(int tensor = 1) const;
  int64_t last_elements(int tensor = 1) const;

  // Operations of one sequence, forwards: all layers' matrices; attention's scores and what they
  // weigh, for all keys, or where half of them are twice those in the window; the head.
  double matrix_operations(int64_t sequence) const;
  double attention_operations(int64_t sequence) const;
  double head_operations(int64_t sequence) const;
  // A training step takes three times a forward pass, in which causal attention sees half of the
  // scores.
  double step_operations(double sequences, int64_t sequence) const;
};

// The sizes of a Hugging Face config.json of any family that is known. INVALID_ARGUMENT and
// UNSUPPORTED as the family's own reading says.
ModelSizes sizes_of_config(const std::string& json_text);

}  // namespace nxd
