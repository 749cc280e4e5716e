// nxd/planner.h: planning.
#include <algorithm>

#include "capi/arguments.h"
#include "capi/options.h"
#include "core/base/last_error.h"
#include "core/planner/layout_plan.h"
#include "core/planner/plan_search.h"

using namespace nxd;

namespace {

const nxd_plan_model_t kModel = NXD_PLAN_MODEL_INIT;
const nxd_plan_machine_t kMachine = NXD_PLAN_MACHINE_INIT;
const nxd_plan_layout_t kLayout = NXD_PLAN_LAYOUT_INIT;

template <class Options>
nxd_status_t init(Options* out, size_t size, const Options& defaults, const char* name) {
  return guard([&] { init_options(out, size, defaults, name); });
}

ModelSizes read(const nxd_plan_model_t* given) {
  required(given, "model");
  return read_plan_model(read_options(given, kModel, "model"));
}

nxd_plan_machine_t read(const nxd_plan_machine_t* given) {
  return read_plan_machine(read_options(given, kMachine, "machine"));
}

PlanSearchOptions read_search(const nxd_plan_search_options_t* given) {
  check_argument(given, "options: expected a pointer, got NULL");
  const nxd_plan_search_options_t defaults = NXD_PLAN_SEARCH_OPTIONS_INIT;
  const auto o = read_options(given, defaults, "options");
  return {o.world_size, o.sequence_length, o.batch_size, o.dtype,
          o.max_virtual_size == 0 ? PlanSearchOptions().max_virtual_size : o.max_virtual_size};
}

}  // namespace

nxd_status_t nxd_plan_model_init(nxd_plan_model_t* model, size_t size) {
  return init(model, size, kModel, "model");
}

nxd_status_t nxd_plan_model_from_config(const char* config_json, nxd_plan_model_t* out_model) {
  return guard([&] {
    OutputStruct out(out_model, "out_model");
    out.write(plan_model_of(sizes_of_config(&required(config_json, "config_json"))));
  });
}

nxd_status_t nxd_plan_machine_init(nxd_plan_machine_t* machine, size_t size) {
  return init(machine, size, kMachine, "machine");
}

nxd_status_t nxd_plan_layout_init(nxd_plan_layout_t* layout, size_t size) {
  return init(layout, size, kLayout, "layout");
}

nxd_status_t nxd_plan_predict(const nxd_plan_model_t* model, const nxd_plan_machine_t* machine,
                              const nxd_plan_layout_t* layout,
                              nxd_plan_prediction_t* out_prediction) {
  return guard([&] {
    OutputStruct out(out_prediction, "out_prediction");
    const ModelSizes sizes = read(model);
    const nxd_plan_machine_t figures = read(machine);
    required(layout, "layout");
    out.write(predict_layout(sizes, figures, read_options(layout, kLayout, "layout")));
  });
}

nxd_status_t nxd_plan_search_options_init(nxd_plan_search_options_t* options, size_t size) {
  const nxd_plan_search_options_t defaults = NXD_PLAN_SEARCH_OPTIONS_INIT;
  return init(options, size, defaults, "options");
}

nxd_status_t nxd_plan_search(const nxd_plan_model_t* model, const nxd_plan_machine_t* machine,
                             const nxd_plan_search_options_t* options, nxd_plan_layout_t* layouts,
                             nxd_plan_prediction_t* predictions, size_t cap, size_t* out_count) {
  return guard([&] {
    auto& out = output(out_count, "out_count");
    check_argument(cap >= 1, "cap: expected room for a layout at least, got 0");
    check_count(cap, sizeof *predictions, "cap");
    OutputStructs out_layouts(layouts, cap, "layouts");
    OutputStructs out_predictions(predictions, cap, "predictions");
    const ModelSizes sizes = read(model);
    const nxd_plan_machine_t figures = read(machine);
    const std::vector<FoundPlan> found = search_plans(sizes, figures, read_search(options), cap);
    for (size_t i = 0; i < found.size(); ++i) {
      out_layouts.write(i, found[i].layout);
      out_predictions.write(i, found[i].prediction);
    }
    out = found.size();
  });
}
