#pragma once

namespace nxd {

// Makes device xla:0 the recorded one, with the backend that NXD_XLA_BACKEND names: replay, or
// pjrt, by a plug-in (pjrt_search.h); by default pjrt where there is one. UNSUPPORTED where pjrt is
// asked for and there is none, or where another library of the process has the device. The first
// call that succeeds counts.
void use_xla_device();

}  // namespace nxd
