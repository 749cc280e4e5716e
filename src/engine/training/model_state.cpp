#include "engine/training/model_state.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/agree/agree.h"
#include "core/base/dtype.h"
#include "core/base/printable.h"
#include "core/checkpoint/collective_write.h"
#include "core/checkpoint/safetensors.h"
#include "core/checkpoint/shard_snapshot.h"
#include "engine/module/buffers.h"
#include "engine/module/full_parameter.h"
#include "engine/module/model.h"
#include "engine/module/module_tree.h"
#include "engine/module/stored_names.h"
#include "engine/ops/collectives.h"
#include "engine/tensor/dtype_map.h"
#include "engine/tensor/pooled_tensor.h"
#include "engine/training/local_module.h"
#include "engine/training/made_layout.h"

namespace nxd {
namespace {

// A parameter and the tensor of the file that it is read from.
struct Match {
  std::shared_ptr<Parameter> parameter;
  std::string stored_name;
};

// All that is read from a file.
struct Matches {
  std::vector<Match> parameters;
  std::vector<NamedBuffer> buffers;
};

std::vector<NamedBuffer> saved_buffers(const Module& root) {
  std::vector<NamedBuffer> buffers = named_buffers(root);
  buffers.erase(std::remove_if(buffers.begin(), buffers.end(),
                               [](const NamedBuffer& each) { return !each.buffer->is_saved; }),
                buffers.end());
  return buffers;
}

std::vector<int64_t> buffer_shape(const NamedBuffer& entry) {
  return entry.buffer->value.sizes().vec();
}

// The rotary frequencies of each layer follow from the configuration.
constexpr const char* kFrequencies = ".rotary_emb.inv_freq";

bool is_unused(const Module& root, const std::string& name) {
  const auto* model = dynamic_cast<const Model*>(&full_model(root));
  if (!model) return false;
  const std::vector<std::string> unused = model->unused_names();
  return std::find(unused.begin(), unused.end(), name) != unused.end();
}

// The names of each parameter, its owner's first, in the tree's order; behind them those that are
// unused.
using ParameterNames = std::vector<std::pair<std::shared_ptr<Parameter>, std::vector<std::string>>>;
ParameterNames names_by_parameter(const Module& root) {
  ParameterNames result;
  std::map<const Parameter*, size_t> index;
  const std::vector<NamedParameter> entries = all_parameter_names(root);
  for (const NamedParameter& entry : entries) {
    if (index.emplace(entry.parameter.get(), result.size()).second) {
      result.push_back({entry.parameter, {}});
    }
  }
  // An owner may stand behind its aliases in the tree.
  for (const bool aliases : {false, true}) {
    for (const NamedParameter& entry : entries) {
      if (entry.is_alias != aliases) continue;
      result[index.at(entry.parameter.get())].second.push_back(entry.name);
    }
  }
  for (auto& [parameter, names] : result) {
    std::stable_partition(names.begin(), names.end(),
                          [&](const std::string& name) { return !is_unused(root, name); });
  }
  return result;
}

// The parameters as files have them: one name for each, or two of which one is unused.
std::vector<NamedParameter> written_parameters(const Module& root) {
  std::vector<NamedParameter> written = named_parameters(root);
  for (const auto& [parameter, names] : names_by_parameter(root)) {
    if (names.size() < 2 || !is_unused(root, names.back())) continue;
    written.push_back({names.front(), parameter});
  }
  return written;
}

std::string listed(const char* what, const std::vector<std::string>& names) {
  constexpr size_t kShown = 3;
  if (names.empty()) return "";
  std::string out = text("; ", names.size(), " ", what, ": ");
  for (size_t i = 0; i < names.size() && i < kShown; ++i)
    out += (i ? ", " : "") + printable(names[i]);
  return names.size() > kShown ? out + ", ..." : out;
}

// The file may have a tied parameter's value under each of its names. Where they differ, the
// file is that of a model without the tie: transformers unties them, and one of the two would be
// lost here. The whole tensors are compared, so that all ranks come to the same answer.
void check_tie(const Module& root, const SafetensorsReader& reader,
               const std::vector<std::string>& names, const std::string& read, LoadReport& report) {
  const bool has_config = dynamic_cast<const Model*>(&full_model(root)) != nullptr;
  for (const std::string& name : names) {
    if (name == read || !reader.contains(name) || is_unused(root, name)) continue;
    if (reader.same(name, read)) continue;
    report.unexpected.push_back(name);
    report.details += text("; ", name, ": expected the values of ", read,
                           ", to which it is tied, the file has others",
                           has_config ? ": is tie_word_embeddings to be false?" : "");
  }
}

std::string without_prefix(const std::string& name, const std::string& prefix) {
  return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

// Names as the file of a built-in model's body alone has them: without that of the body in front,
// which is given. Nothing changes for a file that has such names, or none of the others.
std::string rename_to_bare(const Module& root, const SafetensorsReader& reader,
                           ParameterNames& named) {
  const auto* model = dynamic_cast<const Model*>(&root);
  const std::string prefix = model ? model->body_prefix() : "";
  const auto& stored = reader.tensors();
  const auto first = stored.lower_bound(prefix);
  if (prefix.empty() || (first != stored.end() && first->first.starts_with(prefix))) return "";
  ParameterNames bare = named;
  bool found = false;
  for (auto& [parameter, names] : bare) {
    for (std::string& name : names) {
      if (!name.starts_with(prefix)) continue;
      name = without_prefix(name, prefix);
      found = found || reader.contains(name);
    }
  }
  if (!found) return "";
  named = std::move(bare);
  return prefix;
}

// All names of a tree that files may have, as the file has them.
struct OtherNames {
  std::set<std::string> derived;
  std::map<std::string, std::string> by_name;  // of other releases
};

void add_other_names(const Module& module, const std::string& path, const std::string& prefix,
                     OtherNames& out) {
  const auto in_file = [&](const std::string& name) {
    return without_prefix(join_path(path, name), prefix);
  };
  if (const auto* stored = dynamic_cast<const StoredNames*>(&module)) {
    for (const std::string& name : stored->derived_tensors()) out.derived.insert(in_file(name));
    for (const auto& [name, other] : stored->other_names()) {
      out.by_name.emplace(in_file(name), in_file(other));
    }
  }
  for (const auto& [name, child] : module.children()) {
    add_other_names(*child, join_path(path, name), prefix, out);
  }
}

// Names as files of other releases have them, where this one lacks the model's own.
void rename_to_other(const OtherNames& other, const SafetensorsReader& reader,
                     ParameterNames& named) {
  for (auto& [parameter, names] : named) {
    for (std::string& name : names) {
      const auto found = other.by_name.find(name);
      if (found == other.by_name.end() || reader.contains(name)) continue;
      if (reader.contains(found->second)) name = found->second;
    }
  }
}

void report_shape(const std::string& name, const std::vector<int64_t>& expected,
                  const SafetensorsReader& reader, LoadReport& report) {
  report.shape.push_back(name);
  report.details += text("; ", name, ": expected shape ", shape_text(expected), ", the file has ",
                         shape_text(reader.tensor(name).shape));
}

// Each stage of a pipeline has all buffers of the model.
void match_buffers(const Module& root, const SafetensorsReader& reader, LoadReport& report,
                   std::set<std::string>& known, std::vector<NamedBuffer>& matches) {
  for (const NamedBuffer& entry : saved_buffers(full_model(root))) {
    known.insert(entry.name);
    if (!reader.contains(entry.name)) {
      report.missing.push_back(entry.name);
    } else if (reader.tensor(entry.name).shape != buffer_shape(entry)) {
      report_shape(entry.name, buffer_shape(entry), reader, report);
    } else {
      matches.push_back(entry);
    }
  }
}

// Compares the whole model with the file; gives those of the parameters that the root has.
Matches match(const Module& root, const SafetensorsReader& reader, LoadReport& report) {
  Matches matches;
  std::set<std::string> known;
  std::set<const Parameter*> own;
  for (const NamedParameter& entry : named_parameters(root)) own.insert(entry.parameter.get());
  ParameterNames named = names_by_parameter(full_model(root));
  OtherNames other;
  add_other_names(full_model(root), "", rename_to_bare(full_model(root), reader, named), other);
  rename_to_other(other, reader, named);
  for (const auto& [parameter, names] : named) {
    known.insert(names.begin(), names.end());
    const auto found = std::find_if(names.begin(), names.end(),
                                    [&](const std::string& n) { return reader.contains(n); });
    if (found == names.end()) {
      report.missing.push_back(names.front());
      continue;
    }
    check_tie(root, reader, names, *found, report);
    if (reader.tensor(*found).shape != parameter->shard().shape()) {
      report_shape(*found, parameter->shard().shape(), reader, report);
    } else if (own.count(parameter.get()) != 0 && !parameter->is_elsewhere()) {
      matches.parameters.push_back({parameter, *found});
    }
  }
  match_buffers(root, reader, report, known, matches.buffers);
  for (const auto& [name, stored] : reader.tensors()) {
    const bool is_derived = other.derived.count(name) != 0 || name.ends_with(kFrequencies);
    if (known.count(name) == 0 && !is_derived) report.unexpected.push_back(name);
  }
  report.details = listed("missing", report.missing) + listed("unexpected", report.unexpected) +
                   listed("of another shape", report.shape) + report.details;
  return matches;
}

// Everything that could be rejected, before the first parameter is changed.
void check_readable(const Matches& matches, const SafetensorsReader& reader) {
  for (const NamedBuffer& entry : matches.buffers) {
    const StoredTensor& stored = reader.tensor(entry.name);
    const nxd_dtype_t own = to_nxd_dtype(entry.buffer->value.scalar_type());
    const bool floats =
        dtype_is_float(own) && stored.dtype != NXD_DTYPE_INVALID && dtype_is_float(stored.dtype);
    if (!floats && stored.dtype != own) {
      fail(NXD_ERROR_UNSUPPORTED, entry.name, ": expected ", dtype_name(own), ", the file has ",
           stored.dtype_text);
    }
  }
  for (const Match& match : matches.parameters) {
    const StoredTensor& stored = reader.tensor(match.stored_name);
    if (stored.dtype == NXD_DTYPE_INVALID || !dtype_is_float(stored.dtype)) {
      fail(NXD_ERROR_UNSUPPORTED, match.stored_name, ": expected a float dtype, the file has ",
           stored.dtype_text);
    }
  }
}

constexpr const char* kParametersFormat = "pt";  // as PyTorch's own files say

// A rank whose parameters cannot be written says why.
void add_unwritable(Proposal& proposal, const std::vector<NamedParameter>& parameters) {
  for (const NamedParameter& entry : parameters) {
    if (!entry.parameter->is_elsewhere()) continue;
    proposal.reject(
        NXD_ERROR_INVALID_ARGUMENT,
        text("parameter ", entry.name,
             ": it has no values, since nxd_pp_create left it to another rank; expected "
             "the module of nxd_pp_get_local_module, got the whole model"));
  }
  for (const NamedParameter& entry : parameters) {
    if (entry.parameter->has_value()) continue;
    proposal.reject(
        NXD_ERROR_INVALID_ARGUMENT,
        text("parameter ", entry.name, ": it has no values, since it is on the meta device"));
  }
  for (const NamedParameter& entry : parameters) {
    proposal.reject(NXD_ERROR_INVALID_STATE, entry.parameter->why_partial());
  }
}

void load_buffer(const NamedBuffer& entry, const SafetensorsReader& reader) {
  at::Tensor& value = entry.buffer->value;
  at::Tensor read = pooled_empty(value.sizes(), value.scalar_type());
  reader.read_slice(entry.name, ShardSpec::replicated(buffer_shape(entry)), read.data_ptr(),
                    to_nxd_dtype(value.scalar_type()));
  value.copy_(read);
}

}  // namespace

void LoadReport::check(const std::string& path) const {
  check_argument(matches(), path, ": safetensors do not match the model", details);
}

LoadReport load_safetensors(Module& root, const std::string& path, bool strict) {
  at::NoGradGuard no_grad;
  root.context()->check_usable();
  const SafetensorsReader reader(path);
  LoadReport report;
  const Matches matches = match(root, reader, report);
  if (strict && !report.matches()) return report;
  check_readable(matches, reader);
  for (const NamedBuffer& entry : matches.buffers) load_buffer(entry, reader);
  for (const Match& match : matches.parameters) {
    Parameter& parameter = *match.parameter;
    const auto read = [&](at::Tensor& value) {
      reader.read_slice(match.stored_name, parameter.shard(), value.data_ptr(),
                        to_nxd_dtype(value.scalar_type()));
    };
    if (!parameter.has_value()) {
      parameter.materialize(read);
      continue;
    }
    at::Tensor value = pooled_empty(parameter.tensor().sizes(), parameter.tensor().scalar_type());
    read(value);
    parameter.set_value(std::move(value));
  }
  return report;
}

void save_safetensors(Module& root, const char* path) {
  const Context& context = *root.context();
  context.check_usable();
  const auto parallel = context.parallel();
  ProcessGroup* tensor = parallel->group(NXD_AXIS_TENSOR).get();
  ProcessGroup* pipeline = parallel->group(NXD_AXIS_PIPELINE).get();
  const std::vector<NamedParameter> parameters = written_parameters(root);
  Proposal proposal(context.rank());
  // All copies meet in the collectives of what was recorded, and one copy alone writes.
  proposal.attempt([] { run_recorded_before("nxd_module_save_safetensors"); });
  if (!path) proposal.reject(NXD_ERROR_INVALID_ARGUMENT, "path: expected a file name, got NULL");
  add_unwritable(proposal, parameters);
  proposal.reject(NXD_ERROR_INVALID_STATE, why_other_layout(root, parameters, *parallel));
  agree({tensor, pipeline}, proposal);
  // All other copies hold the same.
  if (parallel->rank(NXD_AXIS_DATA) != 0) return;
  at::Tensor full;  // of the parameter under way
  std::vector<StageTensor> tensors;
  for (const NamedParameter& entry : parameters) {
    const Parameter& parameter = *entry.parameter;
    const nxd_dtype_t dtype = to_nxd_dtype(parameter.tensor().scalar_type());
    tensors.push_back({{entry.name, dtype, parameter.shard().shape()}, [&full, &parameter] {
                         full.reset();
                         full = gather_full(parameter);
                         return static_cast<const void*>(full.data_ptr());
                       }});
  }
  for (const NamedBuffer& entry : saved_buffers(root)) {
    const at::Tensor& value = entry.buffer->value;
    tensors.push_back(
        {{entry.name, to_nxd_dtype(value.scalar_type()), buffer_shape(entry)}, [&full, value] {
           full = value.to(at::kCPU).contiguous();
           return static_cast<const void*>(full.data_ptr());
         }});
  }
  write_collective(path, {tensor, pipeline, nullptr, context.rank()}, tensors,
                   {{"format", kParametersFormat}});
}

std::unique_ptr<Snapshot> snapshot_parameters(Module& root, Context& context) {
  check_argument(root.context().get() == &context,
                 "root: expected a module of the checkpoint's context, got one of another");
  at::NoGradGuard no_grad;
  const auto parallel = context.parallel();
  const std::vector<NamedParameter> parameters = written_parameters(root);
  Proposal proposal(context.rank());
  add_unwritable(proposal, parameters);
  proposal.reject(NXD_ERROR_INVALID_STATE, why_other_layout(root, parameters, *parallel));
  proposal.own().rethrow();
  auto snapshot = std::make_unique<ShardSnapshot>(
      context.background_group(parallel->group(NXD_AXIS_TENSOR)),
      context.background_group(parallel->group(NXD_AXIS_PIPELINE)),
      parallel->rank(NXD_AXIS_DATA) == 0, context.rank(),
      std::map<std::string, std::string>{{"format", kParametersFormat}});
  for (const NamedParameter& entry : parameters) {
    const at::Tensor local = entry.parameter->tensor().to(at::kCPU).contiguous();
    snapshot->add(entry.name, to_nxd_dtype(local.scalar_type()), entry.parameter->shard(),
                  local.data_ptr());
  }
  for (const NamedBuffer& entry : saved_buffers(root)) {
    const at::Tensor local = entry.buffer->value.to(at::kCPU).contiguous();
    snapshot->add(entry.name, to_nxd_dtype(local.scalar_type()),
                  ShardSpec::replicated(buffer_shape(entry)), local.data_ptr());
  }
  return snapshot;
}

}  // namespace nxd
