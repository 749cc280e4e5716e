// nxd/serialization.h: files of a caller's tensors.
#include "capi/engine_handles.h"
#include "core/base/last_error.h"
#include "engine/training/tensor_file.h"

struct nxd_serialization {
  nxd::TensorFile value;
  nxd::ForkGuard fork_guard{};
};

using namespace nxd;

namespace {

const nxd_save_options_t kDefaults = NXD_SAVE_OPTIONS_INIT;

struct GivenFile {
  std::string path{};
  TensorFileContent content{};
  SaveOptions options{};
};

GivenFile read_file(const char* path, const char* const* names, nxd_tensor_t* const* tensors,
                    size_t num_tensors, const nxd_save_options_t* options) {
  const auto known = read_options(options, kDefaults, "options");
  GivenFile given{.path = unwrap_text(path, "path")};
  given.options.master_only = toggle(known.master_only, true, "master_only");
  given.options.each_host = flag(known.each_host, "each_host");
  check_argument(!given.options.each_host || given.options.master_only,
                 "each_host: expected 0 with master_only off, where every rank writes");
  const auto keys = unwrap_texts(known.keys, known.num_values, "keys");
  const auto values = unwrap_texts(known.values, known.num_values, "values");
  for (size_t i = 0; i < keys.size(); ++i) {
    check_argument(given.content.texts.emplace(keys[i], values[i]).second, "keys[", i,
                   "]: expected each key once, \"", keys[i], "\" is taken");
  }
  const auto own_names = unwrap_texts(names, num_tensors, "names");
  const auto own_tensors = unwrap_all(tensors, num_tensors, "tensors");
  for (size_t i = 0; i < num_tensors; ++i) {
    given.content.tensors.emplace_back(own_names[i], own_tensors[i]);
  }
  return given;
}

// Arguments that are wrong on one rank fail all of them.
nxd_status_t save(nxd_context_t* ctx, const char* path, const char* const* names,
                  nxd_tensor_t* const* tensors, size_t num_tensors,
                  const nxd_save_options_t* options, bool all_at_once) {
  return guard([&] {
    const std::shared_ptr<Context>& context = unwrap(ctx, "ctx");
    GivenFile given;
    const Outcome outcome = Outcome::of(
        context->rank(), [&] { given = read_file(path, names, tensors, num_tensors, options); });
    given.options.all_at_once = all_at_once;
    save_tensors(*context, given.path, given.content, given.options, outcome);
  });
}

const TensorFile& unwrap(nxd_serialization_t* serialization) {
  check_argument(serialization, "serialization: expected a serialization, got NULL");
  serialization->fork_guard.check("serialization");
  return serialization->value;
}

}  // namespace

nxd_status_t nxd_save_options_init(nxd_save_options_t* options, size_t size) {
  return guard([&] { init_options(options, size, kDefaults, "options"); });
}

nxd_status_t nxd_save(nxd_context_t* ctx, const char* path, const char* const* names,
                      nxd_tensor_t* const* tensors, size_t num_tensors,
                      const nxd_save_options_t* options) {
  return save(ctx, path, names, tensors, num_tensors, options, true);
}

nxd_status_t nxd_serialization_save(nxd_context_t* ctx, const char* path, const char* const* names,
                                    nxd_tensor_t* const* tensors, size_t num_tensors,
                                    const nxd_save_options_t* options) {
  return save(ctx, path, names, tensors, num_tensors, options, false);
}

nxd_status_t nxd_serialization_load(const char* path, nxd_serialization_t** out_serialization) {
  return guard([&] {
    auto& out = output(out_serialization, "out_serialization");
    out = new nxd_serialization{TensorFile(unwrap_text(path, "path"))};
  });
}

nxd_status_t nxd_serialization_get_count(nxd_serialization_t* serialization, size_t* out_count) {
  return guard([&] {
    auto& out = output(out_count, "out_count");
    out = unwrap(serialization).names().size();
  });
}

nxd_status_t nxd_serialization_get_name(nxd_serialization_t* serialization, size_t index,
                                        const char** out_name) {
  return guard([&] {
    auto& out = output(out_name, "out_name");
    const auto& names = unwrap(serialization).names();
    check_argument(index < names.size(), "index: expected less than ", names.size(), ", got ",
                   index);
    out = names[index].c_str();
  });
}

nxd_status_t nxd_serialization_create_tensor(nxd_serialization_t* serialization, const char* name,
                                             nxd_device_t device, nxd_tensor_t** out_tensor) {
  return guard([&] {
    auto& out = output(out_tensor, "out_tensor");
    const TensorFile& self = unwrap(serialization);
    out = wrap(self.read(unwrap_text(name, "name"), device));
  });
}

nxd_status_t nxd_serialization_get_value_count(nxd_serialization_t* serialization,
                                               size_t* out_count) {
  return guard([&] {
    auto& out = output(out_count, "out_count");
    out = unwrap(serialization).texts().size();
  });
}

nxd_status_t nxd_serialization_get_value(nxd_serialization_t* serialization, size_t index,
                                         const char** out_key, const char** out_value) {
  return guard([&] {
    clear_each(out_key, out_value);
    const auto& texts = unwrap(serialization).texts();
    check_argument(index < texts.size(), "index: expected less than ", texts.size(), ", got ",
                   index);
    if (out_key) *out_key = texts[index].first.c_str();
    if (out_value) *out_value = texts[index].second.c_str();
  });
}

void nxd_serialization_destroy(nxd_serialization_t* serialization) { delete serialization; }
