#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/comm/memory/arena.h"
#include "core/comm/process_group.h"
#include "core/layout/parallel_state.h"

namespace nxd {

class Store;

// Everything of one rank. Shared by the handles, groups and modules made from it.
class Context : public std::enable_shared_from_this<Context> {
 public:
  // Joins the world, collectively. The options are complete: no defaults are left in them.
  // store: theirs, or NULL.
  static std::shared_ptr<Context> create(const nxd_context_options_t& options,
                                         std::shared_ptr<Store> store);
  ~Context();

  int rank() const;
  int size() const;
  int local_rank() const;
  uint64_t seed() const;

  bool plain_kernels() const;
  void set_plain_kernels(bool plain);

  // Training step and microbatch that random bits are drawn for.
  int64_t step() const;
  int64_t microbatch() const;
  void set_step(int64_t step, int64_t microbatch);

  Arena& arena() const;  // memory that the ranks of this host share

  const std::shared_ptr<ProcessGroup>& world() const;
  std::shared_ptr<ProcessGroup> create_group(const std::vector<int>& ranks,
                                             const std::string& name);
  // A group that whatever needs it shares: made once for these ranks and this name, and kept until
  // the layout is destroyed. No rank is asked, so not all members need call.
  std::shared_ptr<ProcessGroup> shared_group(const std::vector<int>& ranks,
                                             const std::string& name);

  // nxd_init_model_parallel and its end. parallel() is INVALID_STATE outside of the two.
  void init_model_parallel(const nxd_parallel_options_t& options);
  void destroy_model_parallel();
  bool model_parallel_is_initialized() const;
  const ParallelState& parallel() const;
  // World rank of the pipeline stage so many stages on; the stages form a ring.
  int pipeline_neighbour(int distance) const;

  void finalize();
  void abort() noexcept;
  // Aborts the groups that have works pending, waits until these have ended, which is soon, and
  // lets the peers know that this rank is gone.
  void leave() noexcept;

  // The last operations of all living groups, as JSON. From any thread.
  std::string flight_record() const;

  // INVALID_STATE in a forked child and after finalize.
  void check_usable() const;
  // INVALID_STATE in a forked child.
  void check_not_forked() const;

 private:
  Context();
  void join(const nxd_context_options_t& options, std::shared_ptr<Store> store);
  void check_members(const std::vector<int>& ranks) const;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace nxd
