// Package rawengine is what package raw is, for the functions of libnxd: tensors, modules, layers,
// models and training.
package rawengine

/*
#cgo pkg-config: nxd
#cgo CFLAGS: -I${SRCDIR}/../raw
#include "nxdgo.h"
*/
import "C"

import "libnxd.org/nxd/raw"

func init() { C.nxdgo_use_cause(C.uintptr_t(raw.CauseFunction())) }
