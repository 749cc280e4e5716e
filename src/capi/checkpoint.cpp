// nxd/checkpoint.h: directories of files that appear at once.
#include "capi/checkpoint_handles.h"
#include "capi/handles.h"
#include "core/base/last_error.h"

namespace nxd {
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
  auto value = make(context.shared_from_this(), directory ? directory : "", given);
  if (value) *out = new nxd_checkpoint{std::move(value)};
}

}  // namespace
}  // namespace nxd

using namespace nxd;

nxd_status_t nxd_checkpoint_create(nxd_context_t* ctx, const char* directory, int64_t step,
                                   nxd_checkpoint_t** out_checkpoint) {
  return guard([&] {
    make_checkpoint(ctx, directory, 0, out_checkpoint,
                    [&](const auto& context, const char* path, const Outcome& given) {
                      return Checkpoint::create(context, path, step, given);
                    });
  });
}

nxd_status_t nxd_checkpoint_open(nxd_context_t* ctx, const char* directory, int64_t step,
                                 int32_t verify, nxd_checkpoint_t** out_checkpoint) {
  return guard([&] {
    make_checkpoint(ctx, directory, verify, out_checkpoint,
                    [&](const auto& context, const char* path, const Outcome& given) {
                      return Checkpoint::open(context, path, step, verify == 1, given);
                    });
  });
}

nxd_status_t nxd_checkpoint_open_newest(nxd_context_t* ctx, const char* directory, int32_t verify,
                                        nxd_checkpoint_t** out_checkpoint) {
  return guard([&] {
    make_checkpoint(ctx, directory, verify, out_checkpoint,
                    [&](const auto& context, const char* path, const Outcome& given) {
                      return Checkpoint::open(context, path, std::nullopt, verify == 1, given);
                    });
  });
}

nxd_status_t nxd_checkpoint_get_step(nxd_checkpoint_t* checkpoint, int64_t* out_step) {
  return guard([&] {
    auto& out = output(out_step, "out_step");
    out = unwrap(checkpoint).step();
  });
}

nxd_status_t nxd_checkpoint_get_path(nxd_checkpoint_t* checkpoint, const char* name, char* buf,
                                     size_t cap, size_t* out_needed) {
  return guard([&] {
    auto& needed = output(out_needed, "out_needed");
    copy_text(unwrap(checkpoint).path(&required(name, "name")), buf, cap, needed);
  });
}

nxd_status_t nxd_checkpoint_set_value(nxd_checkpoint_t* checkpoint, const char* key,
                                      const char* value) {
  return guard(
      [&] { unwrap(checkpoint).set_value(&required(key, "key"), &required(value, "value")); });
}

nxd_status_t nxd_checkpoint_get_value(nxd_checkpoint_t* checkpoint, const char* key, char* buf,
                                      size_t cap, size_t* out_needed) {
  return guard([&] {
    auto& needed = output(out_needed, "out_needed");
    const auto& values = unwrap(checkpoint).values();
    const auto found = values.find(&required(key, "key"));
    if (found != values.end()) copy_text(found->second, buf, cap, needed);
  });
}

nxd_status_t nxd_checkpoint_publish(nxd_checkpoint_t* checkpoint, int32_t keep_last) {
  return guard([&] { unwrap(checkpoint).publish(keep_last); });
}

nxd_status_t nxd_checkpoint_publish_async(nxd_checkpoint_t* checkpoint, int32_t keep_last) {
  return guard([&] { unwrap(checkpoint).publish_async(keep_last); });
}

nxd_status_t nxd_checkpoint_wait(nxd_checkpoint_t* checkpoint, int64_t timeout_ms) {
  return guard([&] { unwrap(checkpoint).wait(timeout_ms); });
}

nxd_status_t nxd_checkpoint_test(nxd_checkpoint_t* checkpoint, int32_t* out_done) {
  return guard([&] {
    auto& out = output(out_done, "out_done");
    out = unwrap(checkpoint).is_done() ? 1 : 0;
  });
}

nxd_status_t nxd_checkpoint_restore_random_state(nxd_checkpoint_t* checkpoint) {
  return guard([&] { unwrap(checkpoint).restore_random_state(); });
}

// In a forked child the directory is the parent's.
void nxd_checkpoint_destroy(nxd_checkpoint_t* checkpoint) {
  const Uncancelled whole_call;
  if (checkpoint && !checkpoint->fork_guard.is_foreign()) delete checkpoint;
}
