#include "core/model/rope_fields.h"

#include <cmath>

#include "core/base/error.h"

namespace nxd {
namespace {

nxd_rope_t read_rope_type(const ConfigFields& rope) {
  // The oldest files call it "type". Releases of transformers differ in the one that counts, so
  // that two values are none.
  const char* name = rope.either("rope_type", "type");
  return rope.choice<nxd_rope_t>(name, "default",
                                 {{"default", NXD_ROPE_DEFAULT},
                                  {"linear", NXD_ROPE_LINEAR},
                                  {"dynamic", NXD_ROPE_DYNAMIC},
                                  {"yarn", NXD_ROPE_YARN},
                                  {"llama3", NXD_ROPE_LLAMA3}});
}

void read_yarn(const ConfigFields& fields, RopeOptions& rope) {
  rope.truncate = fields.boolean("truncate", true);
  rope.beta_fast = fields.positive("beta_fast", 32);
  rope.beta_slow = fields.positive("beta_slow", 1);
  if (fields.has("attention_factor")) {
    rope.attention_factor = fields.positive("attention_factor");
  } else if (fields.number("mscale", 0) != 0 && fields.number("mscale_all_dim", 0) != 0) {
    const double log_factor = rope.factor > 1 ? 0.1 * std::log(rope.factor) : 0;
    rope.attention_factor = (fields.positive("mscale") * log_factor + 1) /
                            (fields.positive("mscale_all_dim") * log_factor + 1);
  }
}

// The model's own field comes before that of the rotary embedding, as in transformers.
int64_t original_positions(const ConfigFields& fields, const ConfigFields& rope,
                           int64_t max_positions) {
  constexpr const char* kName = "original_max_position_embeddings";
  return fields.has(kName) ? fields.size(kName) : rope.size(kName, max_positions);
}

void read_llama3(const ConfigFields& fields, RopeOptions& rope) {
  rope.low_freq_factor = fields.positive("low_freq_factor");
  rope.high_freq_factor = fields.positive("high_freq_factor");
  check_argument(rope.high_freq_factor > rope.low_freq_factor,
                 "config_json: ", fields.path("high_freq_factor"),
                 ": expected more than low_freq_factor (", rope.low_freq_factor, "), got ",
                 rope.high_freq_factor);
}

}  // namespace

std::optional<ConfigFields> rope_fields(const ConfigFields& fields) {
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    std::optional<ConfigFields> found = fields.object(name);
    if (found && !found->empty()) {
      found->reject_objects("all layers turn alike; expected parameters of one kind");
      return found;
    }
  }
  return std::nullopt;
}

RopeOptions read_rope(const ConfigFields& fields, int64_t max_positions, const char* theta_name) {
  RopeOptions rope;
  rope.theta = fields.positive(theta_name, 10000);
  const std::optional<ConfigFields> scaling = rope_fields(fields);
  if (!scaling) return rope;
  rope.theta = scaling->positive("rope_theta", rope.theta);
  rope.type = read_rope_type(*scaling);
  if (rope.type == NXD_ROPE_DEFAULT) return rope;
  rope.original_max_position_embeddings = rope.type == NXD_ROPE_LLAMA3 || rope.type == NXD_ROPE_YARN
                                              ? original_positions(fields, *scaling, max_positions)
                                              : max_positions;
  rope.factor = scaling->positive("factor");
  check_argument(rope.factor >= 1, "config_json: ", scaling->path("factor"),
                 ": expected at least 1, got ", rope.factor);
  if (rope.type == NXD_ROPE_LLAMA3) read_llama3(*scaling, rope);
  if (rope.type == NXD_ROPE_YARN) read_yarn(*scaling, rope);
  return rope;
}

}  // namespace nxd
