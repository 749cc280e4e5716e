#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "core/base/error.h"
#include "core/base/fork_guard.h"
#include "core/pjrt/pjrt_abi.h"

namespace nxd {

// A library that exports PJRT's C interface. It is loaded once in a process and stays there: its
// threads run its code until the process ends.
class PjrtPlugin {
 public:
  // IO when the library cannot be loaded; UNSUPPORTED when it is no plug-in, or of a version that
  // this client does not know.
  static std::shared_ptr<PjrtPlugin> load(const std::string& path);

  const std::string& path() const { return path_; }
  // Where the library lies, also when the loader found it by a bare name.
  std::string file() const;
  // The interface's, such as "0.81".
  std::string version() const;

  bool has(pjrt_abi::Slot slot) const noexcept;
  // UNSUPPORTED when the plug-in lacks the function. Its error becomes one of ours, whose message
  // begins with action, such as "compile".
  void call(pjrt_abi::Slot slot, void* args, const char* action) const;
  // For destructors: an error is dropped, and in a forked process nothing is called.
  void release(pjrt_abi::Slot slot, void* object) const noexcept;
  // Takes and destroys the error; null is none.
  void check(pjrt_abi::Error* error, const char* action) const;
  // Waits for the event and destroys it. Null is none.
  void await(pjrt_abi::Event* event, const char* action) const;
  std::string text(pjrt_abi::Slot slot, void* object, const char* action) const;

  // Null if there is none.
  const pjrt_abi::Extension* extension(int type) const noexcept;

  // A client has threads, which a forked process lacks: calls there would wait for ever, so they
  // fail with INVALID_STATE.
  void client_exists();
  bool is_foreign() const noexcept;

 private:
  PjrtPlugin(std::string path, const pjrt_abi::Api* api);
  pjrt_abi::Error* invoke(pjrt_abi::Slot slot, void* args, const char* action) const;
  Error taken(pjrt_abi::Error* error, const char* action) const;

  std::string path_;
  const pjrt_abi::Api* api_;
  // Kept for good, as a forked process may ask at any time. Null before the first client.
  std::atomic<const ForkGuard*> client_guard_ = nullptr;
};

// Statuses of the plug-in's codes and back.
nxd_status_t status_of_pjrt_code(int code) noexcept;
int pjrt_code_of_status(nxd_status_t status) noexcept;

}  // namespace nxd
