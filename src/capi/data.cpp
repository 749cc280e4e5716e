// nxd/data.h: batches from files of token ids.
#include "capi/data_handles.h"
#include "capi/handles.h"
#include "capi/options.h"
#include "core/base/last_error.h"

namespace nxd {
namespace {

const nxd_data_loader_options_t kDataLoaderDefaults = NXD_DATA_LOADER_OPTIONS_INIT;

void resolve(const nxd_data_loader_options_t* given, DataLoader::Options& out) {
  const auto known = read_options(given, kDataLoaderDefaults, "options");
  out.files.format = known.format;
  out.files.vocab_size = known.vocab_size;
  out.files.next_labels = flag(known.next_labels, "next_labels");
  if (flag(known.has_seed, "has_seed")) out.seed = known.seed;
  out.shuffle = toggle(known.shuffle, true, "shuffle");
  if (known.prefetch != 0) out.prefetch = known.prefetch;
}

// The ranks that take different samples.
void set_data_ranks(const Context& context, DataLoader::Options& out) {
  if (const auto layout = context.find_parallel()) {
    out.ranks = layout->size(NXD_AXIS_DATA);
    out.rank = layout->rank(NXD_AXIS_DATA);
  } else {
    out.ranks = context.size();
    out.rank = context.rank();
  }
}

}  // namespace
}  // namespace nxd

using namespace nxd;

nxd_status_t nxd_data_loader_options_init(nxd_data_loader_options_t* options, size_t size) {
  return guard([&] { init_options(options, size, kDataLoaderDefaults, "options"); });
}

nxd_status_t nxd_data_loader_create(nxd_context_t* ctx, const char* const* paths, size_t num_paths,
                                    int64_t batch_size, int64_t sequence_length,
                                    const nxd_data_loader_options_t* options,
                                    nxd_data_loader_t** out_loader) {
  return guard([&] {
    if (out_loader) *out_loader = nullptr;
    Context& context = unwrap(ctx);
    context.check_usable();
    DataLoader::Options known;
    std::vector<std::string> names;
    std::unique_ptr<nxd_data_loader> handle;
    const Outcome given = Outcome::of(context.rank(), [&] {
      output(out_loader, "out_loader");
      check_array(paths, num_paths, "paths");
      for (size_t i = 0; i < num_paths; ++i) {
        check_argument(paths[i], "paths[", i, "]: expected a text, got NULL");
        names.emplace_back(paths[i]);
      }
      known.batch_size = batch_size;
      known.files.sequence_length = sequence_length;
      known.seed = context.seed();
      set_data_ranks(context, known);
      resolve(options, known);
      handle = std::make_unique<nxd_data_loader>();
    });
    handle->value = DataLoader::create(*context.world(), names, known, given);
    *out_loader = handle.release();
  });
}

nxd_status_t nxd_data_loader_next(nxd_data_loader_t* loader, int64_t* ids, int64_t* labels,
                                  size_t count) {
  return guard([&] {
    check_count(count, sizeof(int64_t), "count");
    unwrap(loader).next(ids, labels, count);
  });
}

nxd_status_t nxd_data_loader_get_sample_count(nxd_data_loader_t* loader, int64_t* out_count) {
  return guard([&] {
    auto& out = output(out_count, "out_count");
    out = unwrap(loader).samples();
  });
}

nxd_status_t nxd_data_loader_get_position(nxd_data_loader_t* loader, int64_t* out_position) {
  return guard([&] {
    auto& out = output(out_position, "out_position");
    out = unwrap(loader).position();
  });
}

nxd_status_t nxd_data_loader_set_position(nxd_data_loader_t* loader, int64_t position) {
  return guard([&] { unwrap(loader).set_position(position); });
}

// A forked child has the parent's memory, but not the thread that reads.
void nxd_data_loader_destroy(nxd_data_loader_t* loader) {
  const Uncancelled whole_call;
  if (loader && !loader->fork_guard.is_foreign()) delete loader;
}
