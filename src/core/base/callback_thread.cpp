#include "core/base/callback_thread.h"

namespace nxd {
namespace {

thread_local bool is_internal = false;

}  // namespace

InternalThread::InternalThread() noexcept { is_internal = true; }

InternalThread::~InternalThread() { is_internal = false; }

bool InternalThread::is_current() noexcept { return is_internal; }

}  // namespace nxd
