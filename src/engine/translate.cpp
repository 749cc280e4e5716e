#include <c10/util/Exception.h>

#include <new>
#include <stdexcept>
#include <string_view>

#include "core/base/error.h"
#include "core/base/rethrow.h"
#include "engine/torch_compat.h"

namespace nxd {
namespace {

// Graphs whose buffers are gone, and tensors that were overwritten since they were saved: the
// arguments are right, the order of calls is not.
bool says_wrong_order(std::string_view message) {
  return message.find("Trying to backward through the graph a second time") !=
             std::string_view::npos ||
         message.find("has been modified by an inplace operation") != std::string_view::npos;
}

// Numbers that no dtype holds, and sizes of a view that its elements do not fill.
bool says_bad_argument(std::string_view message) {
  return message.find("without overflow") != std::string_view::npos ||
         message.find("is invalid for input of size") != std::string_view::npos ||
         message.find("only one dimension can be inferred") != std::string_view::npos;
}

nxd_status_t status_of(const c10::Error& error) {
  const std::string_view message = error.what_without_backtrace();
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) || compat::says_out_of_memory(message)) {
    return NXD_ERROR_OUT_OF_MEMORY;
  }
  if (dynamic_cast<const c10::NotImplementedError*>(&error) ||
      compat::says_not_implemented(message)) {
    return NXD_ERROR_UNSUPPORTED;
  }
  if (message.find("INTERNAL ASSERT FAILED") != std::string_view::npos) return NXD_ERROR_INTERNAL;
  return says_wrong_order(message) ? NXD_ERROR_INVALID_STATE : NXD_ERROR_INVALID_ARGUMENT;
}

// Rethrows the exception being handled as an Error with the status that fits it: libtorch's own,
// and the standard ones that libtorch throws. An Error passes through unchanged, also one that
// crossed a backward pass of libtorch, which rethrows what its nodes threw.
void rethrow_translated() {
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const c10::Error& e) {
    throw Error(status_of(e), e.what_without_backtrace());
  } catch (const std::length_error& e) {
    throw Error(NXD_ERROR_INVALID_ARGUMENT, e.what());
  } catch (const std::out_of_range& e) {
    throw Error(NXD_ERROR_INVALID_ARGUMENT, e.what());
  } catch (const std::invalid_argument& e) {
    throw Error(NXD_ERROR_INVALID_ARGUMENT, e.what());
  } catch (const std::runtime_error& e) {
    // Nodes that have freed what they saved, or have no derivative, throw no c10::Error, nor do
    // casts of numbers, nor views to other sizes in libtorch 1.13.
    const std::string_view message = e.what();
    if (says_wrong_order(message)) throw Error(NXD_ERROR_INVALID_STATE, e.what());
    if (compat::says_not_implemented(message)) throw Error(NXD_ERROR_UNSUPPORTED, e.what());
    if (says_bad_argument(message)) throw Error(NXD_ERROR_INVALID_ARGUMENT, e.what());
    throw;
  }
}

// guard() asks it at the boundary, and core for failures that it hands to other ranks.
[[maybe_unused]] const bool is_set = [] {
  set_rethrow(rethrow_translated);
  return true;
}();

}  // namespace

}  // namespace nxd
