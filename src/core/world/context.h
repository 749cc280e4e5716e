#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "core/agree/outcome.h"
#include "core/comm/memory/arena.h"
#include "core/comm/process_group.h"
#include "core/layout/parallel_state.h"
#include "core/world/background.h"
#include "core/world/context_options.h"
#include "core/world/random_state.h"

namespace nxd {

class HostMap;
class World;

// Everything of one rank. Shared by the handles, groups and modules made from it.
class Context : public std::enable_shared_from_this<Context> {
 public:
  // Joins the world, collectively.
  static std::shared_ptr<Context> create(ContextOptions options);
  // Reads options. Where they are none the other ranks hear that this one does not join.
  template <class Read>
  static void or_reject(const ContextOptions& options, const Read& read) {
    try {
      read();
    } catch (...) {
      reject(options);
      throw;
    }
  }
  ~Context();

  int rank() const;
  int size() const;
  int local_rank() const;
  const HostMap& hosts() const;

  bool plain_kernels() const { return plain_kernels_; }
  void set_plain_kernels(bool plain) { plain_kernels_ = plain; }

  // See RandomState.
  uint64_t seed() const { return random_.seed(); }
  int64_t step() const { return random_.step(); }
  int64_t microbatch() const { return random_.microbatch(); }
  void set_step(int64_t step, int64_t microbatch) { random_.set_step(step, microbatch); }

  Arena& arena() const;  // memory that the ranks of this host share

  const std::shared_ptr<ProcessGroup>& world() const;
  // See Groups.
  std::shared_ptr<ProcessGroup> create_group(const std::vector<int>& ranks, const std::string& name,
                                             const Outcome& given = {});
  // Kept until the layout is destroyed.
  std::shared_ptr<ProcessGroup> shared_group(const std::vector<int>& ranks,
                                             const std::string& name);

  // A group of the same ranks for the tasks of the background, kept as above. Null for null.
  std::shared_ptr<ProcessGroup> background_group(const std::shared_ptr<ProcessGroup>& group);
  Background& background() const;

  // nxd_init_model_parallel and its end. parallel() is INVALID_STATE outside of the two. resolved:
  // all ranks fail with one whose options are none.
  void init_model_parallel(const ParallelOptions& options, const Outcome& resolved = {});
  void destroy_model_parallel();
  // From any thread: what was made from the context may be in use where another thread ends the
  // layout, so whoever asks holds what it is given for as long as it uses it.
  std::shared_ptr<const ParallelState> parallel() const;
  std::shared_ptr<const ParallelState> find_parallel() const;  // null outside of the two
  bool model_parallel_is_initialized() const;
  // F32 outside of the two.
  nxd_dtype_t reduce_dtype() const;

  void finalize();
  void abort() noexcept;
  // Aborts the groups that have works pending, waits until these have ended, which is soon, and
  // lets the peers know that this rank is gone. False in the interrupt callback of a call of the
  // context, which has to stay.
  bool leave() noexcept;

  // The last operations of all living groups, as JSON. From any thread.
  std::string flight_record() const;

  // INVALID_STATE in a forked child and after finalize.
  void check_usable() const;
  // INVALID_STATE in a forked child.
  void check_not_forked() const;

 private:
  explicit Context(const ContextOptions& options);

  static void reject(const ContextOptions& options) noexcept;
  uint32_t seed_digest() const;
  void agree_on_seed(ProcessGroup& tensor) const;

  RandomState random_;
  std::atomic<bool> plain_kernels_;
  std::unique_ptr<World> world_;

  mutable std::mutex parallel_mutex_;
  std::shared_ptr<const ParallelState> parallel_;
};

}  // namespace nxd
