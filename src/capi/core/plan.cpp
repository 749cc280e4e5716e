// Planning, of section 8 of nxd.h.
#include <algorithm>

#include "capi/arguments.h"
#include "core/base/last_error.h"
#include "core/base/options.h"
#include "core/pipeline/layout_plan.h"
#include "core/pipeline/plan_search.h"

using namespace nxd;

namespace {

// A result that starts as zeros.
template <class Result>
Result& result_output(Result* out, const char* name) {
  check_argument(out, name, ": expected a pointer, got NULL");
  if (out->struct_size != sizeof(Result)) {
    fail(NXD_ERROR_ABI_MISMATCH, name, "->struct_size: expected ", sizeof(Result), ", got ",
         out->struct_size);
  }
  *out = {};
  out->struct_size = sizeof(Result);
  return *out;
}

template <class Result>
void clear_results(Result* out, size_t count, const char* name) {
  for (size_t i = 0; out && i < count; ++i) result_output(out + i, name);
}

template <class Options>
nxd_status_t init(Options* out, size_t size, const Options& defaults, const char* name) {
  return guard([&] { init_options(out, size, defaults, sizeof defaults, name); });
}

}  // namespace

nxd_status_t nxd_plan_model_init(nxd_plan_model_t* model, size_t size) {
  const nxd_plan_model_t defaults = NXD_PLAN_MODEL_INIT;
  return init(model, size, defaults, "model");
}

nxd_status_t nxd_plan_machine_init(nxd_plan_machine_t* machine, size_t size) {
  const nxd_plan_machine_t defaults = NXD_PLAN_MACHINE_INIT;
  return init(machine, size, defaults, "machine");
}

nxd_status_t nxd_plan_layout_init(nxd_plan_layout_t* layout, size_t size) {
  const nxd_plan_layout_t defaults = NXD_PLAN_LAYOUT_INIT;
  return init(layout, size, defaults, "layout");
}

nxd_status_t nxd_plan_search_options_init(nxd_plan_search_options_t* options, size_t size) {
  const nxd_plan_search_options_t defaults = NXD_PLAN_SEARCH_OPTIONS_INIT;
  return init(options, size, defaults, "options");
}

nxd_status_t nxd_plan_model_from_config(const char* config_json, nxd_plan_model_t* out_model) {
  return guard([&] {
    auto& out = result_output(out_model, "out_model");
    out = plan_model_of_config(&required(config_json, "config_json"));
  });
}

nxd_status_t nxd_plan_predict(const nxd_plan_model_t* model, const nxd_plan_machine_t* machine,
                              const nxd_plan_layout_t* layout,
                              nxd_plan_prediction_t* out_prediction) {
  return guard([&] {
    auto& out = result_output(out_prediction, "out_prediction");
    out = predict_layout(read_plan_model(model), read_plan_machine(machine), layout);
  });
}

nxd_status_t nxd_plan_search(const nxd_plan_model_t* model, const nxd_plan_machine_t* machine,
                             const nxd_plan_search_options_t* options, nxd_plan_layout_t* layouts,
                             nxd_plan_prediction_t* predictions, size_t cap, size_t* out_count) {
  return guard([&] {
    auto& out = output(out_count, "out_count");
    check_argument(cap >= 1, "cap: expected room for a layout at least, got 0");
    clear_results(layouts, cap, "layouts");
    clear_results(predictions, cap, "predictions");
    const std::vector<FoundPlan> found = search_plans(
        read_plan_model(model), read_plan_machine(machine), read_plan_search(options), cap);
    for (size_t i = 0; i < found.size(); ++i) {
      if (layouts) layouts[i] = found[i].layout;
      if (predictions) predictions[i] = found[i].prediction;
    }
    out = found.size();
  });
}
