#pragma once

namespace nxd {

// Rethrows the exception being handled, as an Error where it knows which status fits.
using Rethrow = void (*)();
// For exceptions of a library that core does not know: Error::current() asks this function from now
// on, on all threads. Called while libraries are loaded.
void set_rethrow(Rethrow rethrow) noexcept;

}  // namespace nxd
