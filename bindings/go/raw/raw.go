// Package raw is nxd.h in Go: its constants, structs and objects, and the functions of libnxd_core, one
// by one. It is generated but for errors and memory. Package nxd is what programs use; raw is there for
// what nxd leaves out. Names follow the header: nxd_context_create is ContextCreate. Single outputs are
// results, strings are Go's; all other pointers are the header's, with its rules of ownership, and
// cgo's: what the library keeps lies in C memory.
package raw

/*
#cgo pkg-config: nxd-core
#include "nxdgo.h"
*/
import "C"

import "fmt"

// opaque keeps objects of the library from being made or copied in Go.
type opaque struct{ _ byte }

func init() {
	C.nxdgo_use_cause(C.uintptr_t(CauseFunction()))
	if got := ABIVersion(); got != HeaderABIVersion {
		panic(fmt.Sprintf("libnxd: this binding was made for ABI %d, the loaded libnxd_core has ABI %d (%s)",
			HeaderABIVersion, got, Version()))
	}
}
