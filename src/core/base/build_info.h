#pragma once

namespace nxd::build_info {

const char* version() noexcept;
// Versions of the library and of what it was built with, as a JSON object.
const char* json() noexcept;

}  // namespace nxd::build_info
