// Section 11 of nxd.h: parameters.
#include "capi/engine/unwrap.h"
#include "core/base/last_error.h"
#include "engine/layers/caller_parameter.h"
#include "engine/module/module_tree.h"
#include "engine/module/whole_parameter.h"

using namespace nxd;

namespace {

const nxd_parameter_options_t kDefaults = NXD_PARAMETER_OPTIONS_INIT;

}  // namespace

nxd_status_t nxd_parameter_options_init(nxd_parameter_options_t* options, size_t size) {
  return guard([&] { init_options(options, size, kDefaults, "options"); });
}

nxd_status_t nxd_module_add_parameter(nxd_module_t* module, const char* name,
                                      const int64_t* global_shape, int32_t ndim,
                                      const nxd_parameter_options_t* options,
                                      nxd_parameter_t** out_parameter) {
  return engine_guard([&] {
    if (out_parameter) *out_parameter = nullptr;
    Module& self = unwrap(module, "module");
    check_argument(ndim >= 0 && ndim <= 64, "ndim: expected 0 to 64 sizes of global_shape, got ",
                   ndim);
    check_argument(global_shape != nullptr || ndim == 0, "global_shape: expected ", ndim,
                   " sizes, got NULL");
    Parameter& parameter = add_caller_parameter(self, unwrap_text(name, "name"),
                                                ShardSpec::Shape(global_shape, global_shape + ndim),
                                                read_options(options, kDefaults, "options"));
    if (out_parameter) *out_parameter = parameter.parameter_handle();
  });
}

nxd_status_t nxd_module_get_parameter_count(nxd_module_t* root, size_t* out_count) {
  return engine_guard([&] {
    auto& out = output(out_count, "out_count");
    out = unwrap(root, "root").tree_parameters().size();
  });
}

nxd_status_t nxd_module_get_parameter(nxd_module_t* root, size_t index,
                                      nxd_parameter_t** out_parameter, const char** out_name) {
  return engine_guard([&] {
    if (out_parameter) *out_parameter = nullptr;
    if (out_name) *out_name = nullptr;
    const auto& parameters = unwrap(root, "root").tree_parameters();
    check_argument(index < parameters.size(), "index: expected less than ", parameters.size(),
                   " parameters, got ", index);
    if (out_parameter) *out_parameter = parameters[index].parameter->parameter_handle();
    if (out_name) *out_name = parameters[index].name.c_str();
  });
}

nxd_status_t nxd_module_find_parameter(nxd_module_t* root, const char* name,
                                       nxd_parameter_t** out_parameter) {
  return engine_guard([&] {
    auto& out = output(out_parameter, "out_parameter");
    out = find_parameter(unwrap(root, "root"), unwrap_text(name, "name"))->parameter_handle();
  });
}

nxd_status_t nxd_parameter_get_tensor(nxd_parameter_t* parameter, nxd_tensor_t** out_tensor) {
  return engine_guard([&] {
    auto& out = output(out_tensor, "out_tensor");
    out = unwrap(parameter, "parameter").tensor_handle();
  });
}

nxd_status_t nxd_parameter_get_global_shape(nxd_parameter_t* parameter, int64_t* shape, size_t cap,
                                            size_t* out_ndim) {
  return engine_guard([&] {
    output(out_ndim, "out_ndim");
    copy_list(unwrap(parameter, "parameter").shard().shape(), shape, cap, out_ndim, "shape");
  });
}

nxd_status_t nxd_parameter_get_shard(nxd_parameter_t* parameter, int32_t* out_dim, int64_t* begins,
                                     int64_t* ends, size_t cap, size_t* out_ranges) {
  return engine_guard([&] {
    clear_each(out_dim, out_ranges);
    auto& dim = output(out_dim, "out_dim");
    output(out_ranges, "out_ranges");
    const ShardSpec& shard = unwrap(parameter, "parameter").shard();
    std::vector<int64_t> first, last;
    for (const ShardSpec::Range& range : shard.ranges()) {
      first.push_back(range.begin);
      last.push_back(range.end);
    }
    copy_list(first, begins, cap, out_ranges, "begins");
    copy_list(last, ends, cap, out_ranges, "ends");
    dim = shard.dim();
  });
}

nxd_status_t nxd_parameter_set_whole(nxd_parameter_t* parameter, nxd_tensor_t* whole) {
  return engine_guard([&] { unwrap(parameter, "parameter").set_whole(unwrap(whole, "whole")); });
}

nxd_status_t nxd_parameter_get_whole(nxd_parameter_t* parameter, nxd_tensor_t** out_whole) {
  return engine_guard([&] {
    auto& out = output(out_whole, "out_whole");
    out = wrap(gather_whole(unwrap(parameter, "parameter")));
  });
}

nxd_status_t nxd_parameter_get_whole_grad(nxd_parameter_t* parameter, nxd_tensor_t** out_whole) {
  return engine_guard([&] {
    auto& out = output(out_whole, "out_whole");
    const at::Tensor whole = gather_whole_grad(unwrap(parameter, "parameter"));
    if (whole.defined()) out = wrap(whole);
  });
}

nxd_status_t nxd_parameter_set_trainable(nxd_parameter_t* parameter, int32_t trainable) {
  return engine_guard(
      [&] { unwrap(parameter, "parameter").tensor().set_requires_grad(trainable != 0); });
}

nxd_status_t nxd_parameter_set_grad_hook(nxd_parameter_t* parameter, nxd_grad_hook_fn hook,
                                         void* user_data, nxd_destroy_fn destroy) {
  return engine_guard([&] {
    Parameter& self = unwrap(parameter, "parameter");
    if (!hook) return self.set_grad_hook({});
    set_caller_hook(self, hook, user_data, destroy);
  });
}
