#pragma once

namespace nxd {

// Makes device xla:0 the recorded one, with the backend that NXD_XLA_BACKEND names: replay, or
// pjrt, whose plug-in NXD_PJRT_PLUGIN names. UNSUPPORTED where there is none, or where another
// library of the process has the device.
void use_xla_device();

}  // namespace nxd
