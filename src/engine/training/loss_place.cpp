#include "engine/training/loss_place.h"

#include <algorithm>
#include <vector>

#include "core/base/error.h"
#include "core/base/suggestions.h"
#include "engine/tensor/dtype_map.h"

namespace nxd {
namespace {

constexpr size_t kMostListed = 8;

std::string path_list(const std::vector<std::string>& paths) {
  std::string out;
  for (size_t i = 0; i < std::min(paths.size(), kMostListed); ++i) {
    out += (i == 0 ? "\"" : ", \"") + paths[i] + "\"";
  }
  return paths.size() > kMostListed ? out + " and others" : out;
}

// Outputs that lie at the path itself; where there is none, those below it.
std::vector<size_t> outputs_at(const std::vector<std::string>& paths, const std::string& path) {
  std::vector<size_t> at, below;
  for (size_t i = 0; i < paths.size(); ++i) {
    if (paths[i] == path) at.push_back(i);
    if (paths[i].starts_with(path + ".")) below.push_back(i);
  }
  return at.empty() ? below : at;
}

std::string output_type(const Graph& graph, ValueId output) {
  if (output == kNoValue) return "none";
  const GraphValue& value = graph.values[slot(output)];
  return text(dtype_text(value.dtype), " ", at::IntArrayRef(value.shape));
}

bool is_scalar_output(const Graph& graph, ValueId output) {
  if (output == kNoValue) return false;
  const GraphValue& value = graph.values[slot(output)];
  return value.shape.empty() && at::isFloatingType(value.dtype);
}

}  // namespace

size_t find_loss(const Graph& graph, const std::string& path) {
  const std::vector<std::string>& known = graph.output_paths;
  const std::vector<size_t> found = outputs_at(known, path);
  if (found.empty()) {
    const std::string near = suggestions(path, known);
    fail(NXD_ERROR_INVALID_ARGUMENT, "loss_path: expected the path of one of the ", known.size(),
         " outputs, got \"", path, "\"",
         near.empty() ? "; the outputs are " + path_list(known) : near);
  }
  if (found.size() > 1) {
    std::vector<std::string> names;
    for (const size_t each : found) names.push_back(known[each]);
    fail(NXD_ERROR_INVALID_ARGUMENT, "loss_path: expected the path of one output, got \"", path,
         "\", which leads to ", found.size(), ": ", path_list(names));
  }
  const size_t place = found.front();
  check_argument(place < graph.outputs.size(), "num_outputs: expected at least ", place + 1,
                 ", with the loss at \"", path, "\", got ", graph.outputs.size());
  check_argument(is_scalar_output(graph, graph.outputs[place]),
                 "loss_path: expected a scalar at \"", path, "\", got ",
                 output_type(graph, graph.outputs[place]));
  return place;
}

}  // namespace nxd
