// Section 11 of nxd.h: loading and saving parameters.
#include "capi/engine/unwrap.h"
#include "engine/training/model_state.h"

using namespace nxd;

namespace {

const std::vector<std::string>& names_of(const LoadReport& report, nxd_mismatch_t kind) {
  switch (kind) {
    case NXD_MISMATCH_MISSING: return report.missing;
    case NXD_MISMATCH_UNEXPECTED: return report.unexpected;
    case NXD_MISMATCH_SHAPE: return report.shape;
    default: fail(NXD_ERROR_INVALID_ARGUMENT, "kind: expected an NXD_MISMATCH_*, got ", kind);
  }
}

}  // namespace

nxd_status_t nxd_module_load_safetensors(nxd_module_t* root, const char* path, int32_t strict,
                                         nxd_load_report_t** out_report) {
  return engine_guard([&] {
    if (out_report) *out_report = nullptr;
    Module& self = unwrap(root, "root");
    flag(strict, "strict");
    const std::string file = unwrap_text(path, "path");
    auto report = std::make_unique<nxd_load_report>();
    report->value = load_safetensors(self, file, strict == 1);
    const LoadReport copy = report->value;
    if (out_report) *out_report = report.release();
    if (strict == 1) copy.check();
  });
}

nxd_status_t nxd_module_save_safetensors(nxd_module_t* root, const char* path) {
  return engine_guard([&] { save_safetensors(unwrap(root, "root"), path); });
}

nxd_status_t nxd_load_report_get_count(nxd_load_report_t* report, nxd_mismatch_t kind,
                                       size_t* out_count) {
  return engine_guard([&] {
    auto& out = output(out_count, "out_count");
    out = names_of(unwrap(report, "report").value, kind).size();
  });
}

nxd_status_t nxd_load_report_get_name(nxd_load_report_t* report, nxd_mismatch_t kind, size_t index,
                                      const char** out_name) {
  return engine_guard([&] {
    auto& out = output(out_name, "out_name");
    const std::vector<std::string>& names = names_of(unwrap(report, "report").value, kind);
    check_argument(index < names.size(), "index: expected less than ", names.size(), ", got ",
                   index);
    out = names[index].c_str();
  });
}

void nxd_load_report_destroy(nxd_load_report_t* report) { delete report; }
