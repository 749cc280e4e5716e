package engine

// #include "callbacks.h"
import "C"

import (
	"runtime/cgo"
	"unsafe"

	"libnxd.org/nxd"
	"libnxd.org/nxd/internal/own"
	"libnxd.org/nxd/raw"
	"libnxd.org/nxd/rawengine"
)

// GraphFormat is how a graph is written down.
type GraphFormat = raw.GraphFormat

// Formats of graphs.
const (
	GraphFormatText      = raw.GraphFormatText
	GraphFormatDot       = raw.GraphFormatDot
	GraphFormatStablehlo = raw.GraphFormatStablehlo
)

// DeviceMetrics are counts of device XLA in this process, on all threads.
type DeviceMetrics = raw.DeviceMetrics

// ToDevice has the same values on a device; the tensor itself if it is there already.
func (t *Tensor) ToDevice(device nxd.Device) (*Tensor, error) {
	return newTensor(own.Get(t.Handle, func(p *raw.Tensor) (*raw.Tensor, error) {
		return rawengine.TensorToDevice(p, device)
	}))
}

// MarkStep ends a step: it runs what this thread has recorded on device XLA as one graph, then its step
// closures. A goroutine that records calls runtime.LockOSThread first.
func MarkStep(wait bool) error { return rawengine.MarkStep(flag(wait)) }

// AddStepClosure has f called once, by the next MarkStep of this thread, when the graph has run.
func AddStepClosure(f func() error) error {
	h := cgo.NewHandle(f)
	err := rawengine.AddStepClosure(uintptr(unsafe.Pointer(C.nxdgo_step_closure)), uintptr(h), destroy)
	if err != nil {
		h.Delete()
	}
	return err
}

//export nxdgoStepClosure
func nxdgoStepClosure(handle C.uintptr_t) C.int32_t {
	return C.int32_t(raw.Guard(cgo.Handle(handle).Value().(func() error)))
}

// ReadDeviceMetrics reads the counts since the process began, or since ResetDeviceMetrics.
func ReadDeviceMetrics() (DeviceMetrics, error) {
	m := DeviceMetrics{}.Sized()
	err := rawengine.DeviceGetMetrics(&m)
	return m, err
}

// ResetDeviceMetrics starts all counts from 0 again.
func ResetDeviceMetrics() error { return rawengine.DeviceResetMetrics() }

// DeviceReport is the counts as text, and each operator that made an implicit sync or fell back.
func DeviceReport() (string, error) { return copied(rawengine.DeviceGetReport) }

// StepGraph is the graph of the last step that this thread has marked.
func StepGraph(format GraphFormat) (string, error) {
	return copied(func(buf *byte, capacity int) (int, error) {
		return rawengine.DeviceGetStepGraph(format, buf, capacity)
	})
}

// copied is text by the rule of a buffer, its room and what is needed.
func copied(get func(buf *byte, capacity int) (int, error)) (string, error) {
	buf := make([]byte, 1<<12)
	for {
		n, err := get(&buf[0], len(buf))
		if err == nil {
			return string(buf[:n-1]), nil
		}
		if n <= len(buf) {
			return "", err
		}
		buf = make([]byte, n+n/4)
	}
}
