#include "engine/training/model_state.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/base/dtype.h"
#include "core/checkpoint/safetensors.h"
#include "core/checkpoint/write_outcome.h"
#include "engine/device/collectives.h"
#include "engine/device/dtype_map.h"
#include "engine/device/pooled_tensor.h"
#include "engine/nn/module_tree.h"
#include "engine/nn/whole_parameter.h"

namespace nxd {
namespace {

// A parameter and the tensor of the file that it is read from.
struct Match {
  std::shared_ptr<Parameter> parameter;
  std::string stored_name;
};

// Old files carry the rotary frequencies of each layer, which follow from the configuration.
bool is_derived(const std::string& name) {
  static const std::string kSuffix = ".rotary_emb.inv_freq";
  return name.size() > kSuffix.size() &&
         name.compare(name.size() - kSuffix.size(), kSuffix.size(), kSuffix) == 0;
}

// The names of each parameter, its owner's first, in the tree's order.
std::vector<std::pair<std::shared_ptr<Parameter>, std::vector<std::string>>> names_by_parameter(
    const Module& root) {
  std::vector<std::pair<std::shared_ptr<Parameter>, std::vector<std::string>>> result;
  std::map<const Parameter*, size_t> index;
  for (const NamedParameter& entry : all_parameter_names(root)) {
    const auto [it, added] = index.emplace(entry.parameter.get(), result.size());
    if (added) result.push_back({entry.parameter, {}});
    result[it->second].second.push_back(entry.name);
  }
  return result;
}

std::string listed(const char* what, const std::vector<std::string>& names) {
  constexpr size_t kShown = 3;
  if (names.empty()) return "";
  std::string out = text("; ", names.size(), " ", what, ": ");
  for (size_t i = 0; i < names.size() && i < kShown; ++i) out += (i ? ", " : "") + names[i];
  return names.size() > kShown ? out + ", ..." : out;
}

std::vector<Match> match(const Module& root, const SafetensorsReader& reader, LoadReport& report) {
  std::vector<Match> matches;
  std::set<std::string> known;
  for (const auto& [parameter, names] : names_by_parameter(root)) {
    known.insert(names.begin(), names.end());
    const auto found = std::find_if(names.begin(), names.end(),
                                    [&](const std::string& n) { return reader.contains(n); });
    if (found == names.end()) {
      report.missing.push_back(names.front());
    } else if (reader.tensor(*found).shape != parameter->shard().shape()) {
      report.shape.push_back(*found);
      report.details +=
          text("; ", *found, ": expected shape ", shape_text(parameter->shard().shape()),
               ", the file has ", shape_text(reader.tensor(*found).shape));
    } else {
      matches.push_back({parameter, *found});
    }
  }
  for (const auto& [name, stored] : reader.tensors()) {
    if (known.count(name) == 0 && !is_derived(name)) report.unexpected.push_back(name);
  }
  report.details = listed("missing", report.missing) + listed("unexpected", report.unexpected) +
                   listed("of another shape", report.shape) + report.details;
  return matches;
}

// Everything that could be refused, before the first parameter is changed.
void check_readable(const std::vector<Match>& matches, const SafetensorsReader& reader) {
  for (const Match& match : matches) {
    const StoredTensor& stored = reader.tensor(match.stored_name);
    if (stored.dtype == NXD_DTYPE_INVALID || !dtype_is_float(stored.dtype)) {
      fail(NXD_ERROR_UNSUPPORTED, match.stored_name, ": expected a float dtype, the file has ",
           stored.dtype_text);
    }
    check_argument(!match.parameter->tensor().is_meta(), match.stored_name,
                   ": a parameter on the meta device cannot be loaded");
  }
}

void write_whole(const std::string& path, const std::vector<std::string>& names,
                 const std::vector<at::Tensor>& wholes) {
  std::vector<TensorToStore> tensors;
  for (size_t i = 0; i < names.size(); ++i) {
    tensors.push_back({names[i], to_nxd_dtype(wholes[i].scalar_type()), wholes[i].sizes().vec(),
                       wholes[i].data_ptr()});
  }
  write_safetensors(path, tensors, {{"format", "pt"}});
}

}  // namespace

void LoadReport::check() const {
  check_argument(matches(), "safetensors do not match the model", details);
}

LoadReport load_safetensors(Module& root, const std::string& path, bool strict) {
  at::NoGradGuard no_grad;
  root.context()->check_usable();
  const SafetensorsReader reader(path);
  LoadReport report;
  const std::vector<Match> matches = match(root, reader, report);
  if (strict && !report.matches()) return report;
  check_readable(matches, reader);
  for (const Match& match : matches) {
    at::Tensor& target = match.parameter->tensor();
    at::Tensor read = pooled_empty(target.sizes(), target.scalar_type());
    reader.read_slice(match.stored_name, match.parameter->shard(), read.data_ptr(),
                      to_nxd_dtype(read.scalar_type()));
    target.copy_(read);
  }
  return report;
}

void save_safetensors(Module& root, const char* path) {
  const Context& context = *root.context();
  context.check_usable();
  const ParallelState& parallel = context.parallel();
  ProcessGroup& group = *parallel.group(NXD_AXIS_TENSOR);
  check_with_group(group, path != nullptr, "save_safetensors",
                   "path: expected a file name, got NULL");
  if (parallel.size(NXD_AXIS_PIPELINE) > 1) {
    fail(NXD_ERROR_UNSUPPORTED,
         "save_safetensors: stages of a pipeline would each write their "
         "part to the one file; expected pipeline_parallel_size 1, got ",
         parallel.size(NXD_AXIS_PIPELINE));
  }
  // All other copies hold the same.
  if (parallel.rank(NXD_AXIS_DATA) != 0) return;
  const bool writes = group.rank() == 0;
  std::vector<std::string> names;
  std::vector<at::Tensor> wholes;
  for (const NamedParameter& entry : named_parameters(root)) {
    at::Tensor whole = gather_whole(*entry.parameter);
    if (!writes) continue;
    names.push_back(entry.name);
    wholes.push_back(std::move(whole));
  }
  WriteOutcome outcome;
  if (writes) outcome.attempt([&] { write_whole(path, names, wholes); });
  outcome.share(group);
  outcome.check(group.ranks()[0]);
}

}  // namespace nxd
