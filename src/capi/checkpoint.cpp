// nxd/checkpoint.h: directories of files that appear at once.
#include "core/checkpoint/checkpoint.h"
#include "capi/handles.h"
#include "core/base/last_error.h"

struct nxd_checkpoint {
  std::shared_ptr<nxd::Context> context;
  std::unique_ptr<nxd::Checkpoint> value;
  nxd::ForkGuard fork_guard{};
};

namespace nxd {

inline nxd_checkpoint_t& unwrap(nxd_checkpoint_t* checkpoint) {
  check_argument(checkpoint, "checkpoint: expected a checkpoint, got NULL");
  checkpoint->fork_guard.check("checkpoint");
  return *checkpoint;
}

namespace {

// Opens or creates one: arguments that are wrong on one rank fail all of them.
template <class Make>
void make_checkpoint(nxd_context_t* ctx, const char* directory, int32_t verify,
                     nxd_checkpoint_t** out, const Make& make) {
  if (out) *out = nullptr;
  Context& context = unwrap(ctx);
  context.check_usable();
  const Outcome given = Outcome::of(context.rank(), [&] {
    output(out, "out_checkpoint");
    required(directory, "directory");
    flag(verify, "verify");
  });
  auto value = make(context.world(), directory ? directory : "", given);
  if (!value) return;
  *out = new nxd_checkpoint{context.shared_from_this(), std::move(value)};
}

}  // namespace
}  // namespace nxd

using namespace nxd;

nxd_status_t nxd_checkpoint_create(nxd_context_t* ctx, const char* directory, int64_t step,
                                   nxd_checkpoint_t** out_checkpoint) {
  return guard([&] {
    make_checkpoint(ctx, directory, 0, out_checkpoint,
                    [&](const auto& world, const char* path, const Outcome& given) {
                      return Checkpoint::create(world, path, step, given);
                    });
  });
}

nxd_status_t nxd_checkpoint_open(nxd_context_t* ctx, const char* directory, int64_t step,
                                 int32_t verify, nxd_checkpoint_t** out_checkpoint) {
  return guard([&] {
    make_checkpoint(ctx, directory, verify, out_checkpoint,
                    [&](const auto& world, const char* path, const Outcome& given) {
                      return Checkpoint::open(world, path, step, verify == 1, given);
                    });
  });
}

nxd_status_t nxd_checkpoint_open_newest(nxd_context_t* ctx, const char* directory, int32_t verify,
                                        nxd_checkpoint_t** out_checkpoint) {
  return guard([&] {
    make_checkpoint(ctx, directory, verify, out_checkpoint,
                    [&](const auto& world, const char* path, const Outcome& given) {
                      return Checkpoint::open(world, path, std::nullopt, verify == 1, given);
                    });
  });
}

nxd_status_t nxd_checkpoint_get_step(nxd_checkpoint_t* checkpoint, int64_t* out_step) {
  return guard([&] {
    auto& out = output(out_step, "out_step");
    out = unwrap(checkpoint).value->step();
  });
}

nxd_status_t nxd_checkpoint_get_path(nxd_checkpoint_t* checkpoint, const char* name, char* buf,
                                     size_t cap, size_t* out_needed) {
  return guard([&] {
    auto& needed = output(out_needed, "out_needed");
    copy_text(unwrap(checkpoint).value->path(&required(name, "name")), buf, cap, needed);
  });
}

nxd_status_t nxd_checkpoint_set_value(nxd_checkpoint_t* checkpoint, const char* key,
                                      const char* value) {
  return guard([&] {
    unwrap(checkpoint).value->set_value(&required(key, "key"), &required(value, "value"));
  });
}

nxd_status_t nxd_checkpoint_get_value(nxd_checkpoint_t* checkpoint, const char* key, char* buf,
                                      size_t cap, size_t* out_needed) {
  return guard([&] {
    auto& needed = output(out_needed, "out_needed");
    const auto& values = unwrap(checkpoint).value->values();
    const auto found = values.find(&required(key, "key"));
    if (found != values.end()) copy_text(found->second, buf, cap, needed);
  });
}

nxd_status_t nxd_checkpoint_publish(nxd_checkpoint_t* checkpoint, int32_t keep_last) {
  return guard([&] {
    const Context& context = *unwrap(checkpoint).context;
    checkpoint->value->publish({context.seed(), context.step(), context.microbatch()}, keep_last);
  });
}

nxd_status_t nxd_checkpoint_restore_random_state(nxd_checkpoint_t* checkpoint) {
  return guard([&] {
    Context& context = *unwrap(checkpoint).context;
    const SavedRandomState saved = checkpoint->value->random();
    check_state(context.seed() == saved.seed, "checkpoint: expected the seed ", saved.seed,
                " that it was written with, the context has ", context.seed());
    context.set_step(saved.step, saved.microbatch);
  });
}

// In a forked child the directory is the parent's.
void nxd_checkpoint_destroy(nxd_checkpoint_t* checkpoint) {
  const Uncancelled whole_call;
  if (checkpoint && !checkpoint->fork_guard.is_foreign()) delete checkpoint;
}
