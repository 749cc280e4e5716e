package nxd

// #include "callbacks.h"
import "C"

import (
	"runtime/cgo"
	"unsafe"

	"libnxd.org/nxd/raw"
)

// LogLevel is the severity of log lines.
type LogLevel = raw.LogLevel

// Severities.
const (
	LogDebug = raw.LogDebug
	LogInfo  = raw.LogInfo
	LogWarn  = raw.LogWarn
	LogError = raw.LogError
	LogOff   = raw.LogOff
)

// SetLogLevel drops lines below level, in the whole process.
func SetLogLevel(level LogLevel) error { return raw.LogSetLevel(level) }

// SetLogger gives log lines to f, in the whole process; nil writes them to stderr again. f is called
// inside other calls of this package.
func SetLogger(f func(level LogLevel, message string)) error {
	if f == nil {
		return raw.LogSetCallback(0, 0, 0)
	}
	h := cgo.NewHandle(f)
	err := raw.LogSetCallback(uintptr(unsafe.Pointer(C.nxdgo_log)), uintptr(h),
		uintptr(unsafe.Pointer(C.nxdgo_destroy)))
	if err != nil {
		h.Delete()
	}
	return err
}
