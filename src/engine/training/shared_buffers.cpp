#include "engine/training/shared_buffers.h"

#include <exception>

namespace nxd {
namespace {

// Without memory to compare them they are taken for alike.
bool is_as_found(const BufferWatch& watch) noexcept {
  try {
    return watch.is_as_found();
  } catch (const std::exception&) {
    return true;
  }
}

}  // namespace

SharedBuffers::SharedBuffers(const std::vector<BufferPlace>& places, int rank) {
  for (const BufferPlace& place : places) {
    if (place.copies.size() < 2 || place.users.count(rank) == 0) continue;
    shared_.push_back(
        {std::make_shared<const std::string>(place.named.name), place.named.buffer, std::nullopt});
  }
}

void SharedBuffers::begin_run() {
  for (Shared& each : shared_) each.found.emplace(each.buffer);
}

std::shared_ptr<const std::string> SharedBuffers::written() const noexcept {
  for (const Shared& each : shared_) {
    if (each.found && !is_as_found(*each.found)) return each.name;
  }
  return nullptr;
}

}  // namespace nxd
