// nxd/context.h: contexts.
#include <csignal>
#include <cstdio>

#include "capi/handles.h"
#include "capi/options.h"
#include "core/base/blocked_signals.h"
#include "core/base/last_error.h"

using namespace nxd;

namespace {

const nxd_context_options_t kContextDefaults = NXD_CONTEXT_OPTIONS_INIT;

ContextOptions resolve(const nxd_context_options_t& given) {
  ContextOptions out;
  out.rendezvous = given.rendezvous;
  out.rank = given.rank;
  out.size = given.size;
  out.local_rank = given.local_rank;
  if (given.store) {
    unwrap(given.store);
    out.store = given.store->value;
  }
  out.interrupt = {given.interrupt, given.interrupt_data};
  if (given.timeout_ms != 0) out.timeout_ms = given.timeout_ms;
  if (given.interface_name) out.interface_name = given.interface_name;
  if (given.seed != 0) out.seed = given.seed;
  if (given.plain_kernels != NXD_TOGGLE_DEFAULT) {
    Context::or_reject(out, [&] {
      out.plain_kernels = toggle(given.plain_kernels, false, "options.plain_kernels");
    });
  }
  out.transport = given.transport;
  if (given.host_id) out.host_id = given.host_id;
  return out;
}

}  // namespace

nxd_status_t nxd_context_options_init(nxd_context_options_t* options, size_t size) {
  return guard([&] { init_options(options, size, kContextDefaults, "options"); });
}

nxd_status_t nxd_context_create(const nxd_context_options_t* options, nxd_context_t** out_ctx) {
  return guard([&] {
    if (out_ctx) *out_ctx = nullptr;
    // A struct that cannot be read names no world whose ranks could be told.
    const ContextOptions known = resolve(read_options(options, kContextDefaults, "options"));
    Context::or_reject(known, [&] { output(out_ctx, "out_ctx"); });
    auto handle = std::make_unique<nxd_context>();
    handle->value = Context::create(known);
    *out_ctx = handle.release();
  });
}

nxd_status_t nxd_context_finalize(nxd_context_t* ctx) {
  return guard([&] { unwrap(ctx).finalize(); });
}

void nxd_context_destroy(nxd_context_t* ctx) {
  const Uncancelled whole_call;
  if (ctx && ctx->value->leave()) delete ctx;
}

nxd_status_t nxd_context_abort(nxd_context_t* ctx) {
  return guard([&] { unwrap(ctx).abort(); });
}

nxd_status_t nxd_context_get_flight_record(nxd_context_t* ctx, char* buf, size_t cap,
                                           size_t* out_needed) {
  return guard([&] {
    auto& needed = output(out_needed, "out_needed");
    copy_text(unwrap(ctx).flight_record(), buf, cap, needed);
  });
}

nxd_status_t nxd_context_get_rank(nxd_context_t* ctx, int32_t* out_rank) {
  return guard([&] {
    auto& out = output(out_rank, "out_rank");
    out = unwrap(ctx).rank();
  });
}

nxd_status_t nxd_context_get_size(nxd_context_t* ctx, int32_t* out_size) {
  return guard([&] {
    auto& out = output(out_size, "out_size");
    out = unwrap(ctx).size();
  });
}

nxd_status_t nxd_context_get_local_rank(nxd_context_t* ctx, int32_t* out_rank) {
  return guard([&] {
    auto& out = output(out_rank, "out_rank");
    out = unwrap(ctx).local_rank();
  });
}

nxd_status_t nxd_context_get_world_group(nxd_context_t* ctx, nxd_group_t** out_group) {
  return guard([&] {
    auto& out = output(out_group, "out_group");
    out = borrow_group(ctx, NXD_AXIS_WORLD, unwrap(ctx).world());
  });
}

nxd_status_t nxd_context_set_plain_kernels(nxd_context_t* ctx, int32_t plain) {
  return guard([&] { unwrap(ctx).set_plain_kernels(flag(plain, "plain")); });
}

nxd_status_t nxd_context_get_plain_kernels(nxd_context_t* ctx, int32_t* out_plain) {
  return guard([&] {
    auto& out = output(out_plain, "out_plain");
    out = unwrap(ctx).plain_kernels() ? 1 : 0;
  });
}

nxd_status_t nxd_context_set_step(nxd_context_t* ctx, int64_t step, int64_t microbatch) {
  return guard([&] { unwrap(ctx).set_step(step, microbatch); });
}

nxd_status_t nxd_context_get_step(nxd_context_t* ctx, int64_t* out_step, int64_t* out_microbatch) {
  return guard([&] {
    if (out_microbatch) *out_microbatch = 0;
    auto& step = output(out_step, "out_step");
    const Context& context = unwrap(ctx);
    step = context.step();
    if (out_microbatch) *out_microbatch = context.microbatch();
  });
}

nxd_status_t nxd_master_print(nxd_context_t* ctx, const char* text) {
  return guard([&] {
    const bool prints = unwrap(ctx).rank() == 0;
    check_argument(text, "text: expected a string, got NULL");
    if (!prints) return;
    const HeldSignal no_sigpipe(SIGPIPE), no_sigxfsz(SIGXFSZ);
    const bool is_printed = std::printf("%s\n", text) >= 0;
    // A part that is left would raise the signal when the program ends.
    const bool is_written = std::fflush(stdout) == 0;
    if (!is_printed || !is_written) fail(NXD_ERROR_IO, "cannot write to stdout");
  });
}
