// nxd/group.h: groups and collectives. Arguments of collectives are checked by the group, which
// must tell its peers.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "capi/handles.h"
#include "core/agree/rendezvous.h"
#include "core/base/last_error.h"
#include "core/base/printable.h"
#include "core/comm/recorded_step.h"

struct nxd_payloads {
  std::vector<std::string> by_rank;
  nxd::ForkGuard fork_guard{};
};

using namespace nxd;

namespace {

constexpr size_t kShownName = 63;  // bytes, as many as nxd_error_info_t has room for

}  // namespace

nxd_status_t nxd_group_create(nxd_context_t* ctx, const int32_t* ranks, size_t num_ranks,
                              const char* name, nxd_group_t** out_group) {
  return guard([&] {
    if (out_group) *out_group = nullptr;
    Context& context = unwrap(ctx);
    check_argument(ranks || num_ranks == 0, "ranks: expected a pointer to ", num_ranks,
                   " ranks, got NULL");
    // Too many are rejected as they are; how many too many does not matter.
    num_ranks = std::min(num_ranks, static_cast<size_t>(context.size()) + 1);
    const std::vector<int> members(ranks, ranks + num_ranks);
    std::unique_ptr<nxd_group> handle;
    const Outcome given = Outcome::of(context.rank(), [&] {
      output(out_group, "out_group");
      handle = std::make_unique<nxd_group>();
    });
    // A long name would leave no room in a message for what is wrong.
    const std::string label = name ? printable(name, kShownName) : "group";
    handle->value = context.create_group(members, label, given);
    *out_group = handle.release();
  });
}

void nxd_group_destroy(nxd_group_t* group) {
  const Uncancelled whole_call;
  if (!group || group->borrowed) return;
  if (!group->value || group->value->leave()) delete group;
}

nxd_status_t nxd_group_abort(nxd_group_t* group) {
  return guard([&] { unwrap(group).abort(); });
}

nxd_status_t nxd_group_get_size(nxd_group_t* group, int32_t* out_size) {
  return guard([&] {
    auto& out = output(out_size, "out_size");
    out = unwrap(group).size();
  });
}

nxd_status_t nxd_group_get_rank(nxd_group_t* group, int32_t* out_rank) {
  return guard([&] {
    auto& out = output(out_rank, "out_rank");
    out = unwrap(group).rank();
  });
}

nxd_status_t nxd_group_get_ranks(nxd_group_t* group, int32_t* ranks, size_t cap, size_t* out_size) {
  return guard([&] {
    output(out_size, "out_size");
    copy_ranks(unwrap(group).ranks(), ranks, cap, out_size);
  });
}

nxd_status_t nxd_group_set_next_key(nxd_group_t* group, uint64_t key) {
  return guard([&] { unwrap(group).set_next_key(key); });
}

nxd_status_t nxd_group_set_timeout(nxd_group_t* group, int64_t timeout_ms) {
  return guard([&] {
    ProcessGroup& g = unwrap(group);
    check_argument(timeout_ms > 0, "timeout_ms: expected a positive number, got ", timeout_ms);
    g.set_timeout_ms(timeout_ms);
  });
}

nxd_status_t nxd_group_get_transport(nxd_group_t* group, nxd_transport_t* out_transport) {
  return guard([&] {
    auto& out = output(out_transport, "out_transport");
    out = unwrap(group).transport();
  });
}

nxd_status_t nxd_all_reduce(nxd_group_t* group, const void* send, void* receive, size_t count,
                            nxd_dtype_t dtype, nxd_reduce_t reduce) {
  return guard([&] { unwrap(group).run(Call::all_reduce(send, receive, count, dtype, reduce)); });
}

nxd_status_t nxd_all_gather(nxd_group_t* group, const void* send, void* receive, size_t count,
                            nxd_dtype_t dtype) {
  return guard([&] { unwrap(group).run(Call::all_gather(send, receive, count, dtype)); });
}

nxd_status_t nxd_reduce_scatter(nxd_group_t* group, const void* send, void* receive, size_t count,
                                nxd_dtype_t dtype, nxd_reduce_t reduce) {
  return guard(
      [&] { unwrap(group).run(Call::reduce_scatter(send, receive, count, dtype, reduce)); });
}

nxd_status_t nxd_broadcast(nxd_group_t* group, void* buffer, size_t count, nxd_dtype_t dtype,
                           int32_t root) {
  return guard([&] { unwrap(group).run(Call::broadcast(buffer, count, dtype, root)); });
}

nxd_status_t nxd_all_to_all(nxd_group_t* group, const void* send, void* receive, size_t count,
                            nxd_dtype_t dtype) {
  return guard([&] { unwrap(group).run(Call::all_to_all(send, receive, count, dtype)); });
}

nxd_status_t nxd_send(nxd_group_t* group, const void* buffer, size_t count, nxd_dtype_t dtype,
                      int32_t to, int32_t tag) {
  return guard([&] { unwrap(group).run(Call::send_to(buffer, count, dtype, to, tag)); });
}

nxd_status_t nxd_receive(nxd_group_t* group, void* buffer, size_t count, nxd_dtype_t dtype,
                         int32_t from, int32_t tag) {
  return guard([&] { unwrap(group).run(Call::receive_from(buffer, count, dtype, from, tag)); });
}

nxd_status_t nxd_barrier(nxd_group_t* group) {
  return guard([&] { unwrap(group).run(Call::barrier()); });
}

nxd_status_t nxd_group_rendezvous(nxd_group_t* group, const char* tag, const void* payload,
                                  size_t size, nxd_payloads_t** out_payloads) {
  return guard([&] {
    if (out_payloads) *out_payloads = nullptr;
    ProcessGroup& ranks = unwrap(group);
    std::string place, own;
    std::unique_ptr<nxd_payloads> handle;
    const Outcome given = Outcome::of(ranks.ranks()[static_cast<size_t>(ranks.rank())], [&] {
      output(out_payloads, "out_payloads");
      check_argument(tag, "tag: expected a string, got NULL");
      check_array(static_cast<const char*>(payload), size, "payload");
      place = tag;
      if (size > 0) own.assign(static_cast<const char*>(payload), size);
      handle = std::make_unique<nxd_payloads>();
      end_recorded_step();
    });
    std::vector<std::string> all = rendezvous(ranks, place, own, given);
    handle->by_rank = std::move(all);
    *out_payloads = handle.release();
  });
}

nxd_status_t nxd_payloads_get(nxd_payloads_t* payloads, int32_t rank, const void** out_data,
                              size_t* out_size) {
  return guard([&] {
    clear_each(out_data, out_size);
    auto& data = output(out_data, "out_data");
    auto& bytes = output(out_size, "out_size");
    required(payloads, "payloads").fork_guard.check("payloads");
    const auto& all = payloads->by_rank;
    check_argument(rank >= 0 && static_cast<size_t>(rank) < all.size(), "rank: expected 0 to ",
                   all.size() - 1, ", got ", rank);
    const std::string& own = all[static_cast<size_t>(rank)];
    data = own.data();
    bytes = own.size();
  });
}

void nxd_payloads_destroy(nxd_payloads_t* payloads) {
  const Uncancelled whole_call;
  delete payloads;
}
