#include "core/base/last_error.h"

#include <cstring>

#include "core/base/shortened.h"

namespace nxd {
namespace {

constexpr size_t kMessageSize = 2048;
constexpr size_t kNameSize = 64;

struct LastError {
  uint64_t failures;  // so far
  nxd_status_t status;
  int root_rank_plus_one;
  uint64_t sequence;
  ErrorPayload payload;
  char message[kMessageSize];
  char group[kNameSize];
  char operation[kNameSize];
};

thread_local LastError last_error;

// As much of the text as there is room for, and no part of a character of UTF-8.
void copy_text(char* out, size_t room, const char* text) noexcept {
  size_t size = strnlen(text, room);
  if (size == room) {
    --size;
    while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xc0U) == 0x80U) --size;
  }
  std::memmove(out, text, size);
  out[size] = '\0';
}

}  // namespace

void set_last_error(nxd_status_t status, const char* message,
                    const ErrorContext* context) noexcept {
  LastError& e = last_error;
  ++e.failures;
  e.status = status;
  // The message may be the stored one, or a part of it, passed through by a callback.
  e.message[copy_shortened(message, e.message, sizeof e.message - 1)] = '\0';
  e.root_rank_plus_one = context ? context->root_rank + 1 : 0;
  e.sequence = context ? context->sequence : 0;
  e.payload = context ? context->payload : ErrorPayload{};
  copy_text(e.group, sizeof e.group, context ? context->group.c_str() : "");
  copy_text(e.operation, sizeof e.operation, context ? context->operation.c_str() : "");
}

void leave_error(nxd_status_t status, const char* message) noexcept {
  LastError& e = last_error;
  if (e.status == status && std::strcmp(e.message, message) == 0) {
    ++e.failures;
  } else {
    set_last_error(status, message);
  }
}

const char* last_error_message() noexcept { return last_error.message; }

void fill_last_error_info(nxd_error_info_t& out) noexcept {
  const LastError& e = last_error;
  out.status = e.status;
  out.root_rank = e.root_rank_plus_one - 1;
  out.sequence = e.sequence;
  out.group = e.group;
  out.operation = e.operation;
}

ErrorPayload last_error_payload() noexcept { return last_error.payload; }

nxd_status_t record_current_exception(Error::Thrower thrower) noexcept {
  const Error e = Error::current(thrower);
  set_last_error(e.status(), e.what(), &e.context());
  return e.status();
}

CallbackWatch::CallbackWatch() noexcept : failures_before_(last_error.failures) {}

void CallbackWatch::check(nxd_status_t status, const char* what) const {
  if (status == NXD_OK) return;
  if (const char* const why = message(status)) {
    const LastError& e = last_error;
    throw Error(status, text(what, ": ", why),
                {e.root_rank_plus_one - 1, e.sequence, e.group, e.operation, e.payload});
  }
  fail(status, what, ": the callback returned ", status_name(status), " (", status, ")");
}

const char* CallbackWatch::message(nxd_status_t status) const noexcept {
  const LastError& e = last_error;
  const bool is_callbacks = e.failures != failures_before_ && e.status == status;
  return is_callbacks && e.message[0] != '\0' ? e.message : nullptr;
}

}  // namespace nxd
