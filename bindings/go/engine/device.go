package engine

// #include "callbacks.h"
import "C"

import (
	"runtime/cgo"
	"runtime/debug"
	"sync"
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
// closures. A goroutine that records calls runtime.LockOSThread first. Without wait the graph runs
// while this thread goes on: the next call that needs its values waits, and fails as this one would.
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

// AddStepClosureAsync has f called on a thread of the library's, while this one goes on. Its failure is
// that of a later MarkStep of this thread, or of WaitStepClosures.
func AddStepClosureAsync(f func() error) error {
	h := cgo.NewHandle(apart(f))
	err := rawengine.AddStepClosureAsync(uintptr(unsafe.Pointer(C.nxdgo_step_closure)), uintptr(h), destroy)
	if err != nil {
		h.Delete()
	}
	return err
}

// WaitStepClosures returns when the closures of this thread's steps that run on the other thread have run.
func WaitStepClosures() error { return rawengine.WaitStepClosures() }

// apart is a closure that a thread of the library's calls.
type apart func() error

//export nxdgoStepClosure
func nxdgoStepClosure(handle C.uintptr_t) C.int32_t {
	f := cgo.Handle(handle).Value()
	if closure, ok := f.(apart); ok {
		return C.int32_t(raw.GuardApart(closure))
	}
	return C.int32_t(raw.Guard(f.(func() error)))
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

// DeviceLoader gives batches that a thread reads, and moves to a device, ahead of the steps that take them.
type DeviceLoader struct {
	own.Handle[raw.DeviceLoader]
	width int
	read  *batches // nil over a DataLoader
}

// DeviceLoaderOptions say how a DeviceLoader works. StructSize is set by the calls.
type DeviceLoaderOptions = raw.DeviceLoaderOptions

// batches are what a function makes on the loader's thread, and why it could not.
type batches struct {
	next    func() ([]*Tensor, error)
	mutex   sync.Mutex
	failure error
}

// NewDeviceLoader moves the batches of a data loader, which is the device loader's until Close. A batch
// is ids, and with NextLabels labels too: numTensors says which.
func NewDeviceLoader(l *nxd.DataLoader, numTensors int, device nxd.Device, o DeviceLoaderOptions) (*DeviceLoader,
	error) {
	o = o.Sized()
	p, err := own.Get(l.Handle, func(p *raw.DataLoader) (*raw.DeviceLoader, error) {
		return rawengine.DeviceLoaderCreate(p, device, &o)
	})
	if err != nil {
		return nil, err
	}
	return &DeviceLoader{own.New(p, rawengine.DeviceLoaderDestroy, l), numTensors, nil}, nil
}

// NewDeviceLoaderFunc moves batches of numTensors tensors that next makes, on a thread of the library's.
// The loader closes them. No tensors and no error are the end.
func NewDeviceLoaderFunc(next func() ([]*Tensor, error), numTensors int, device nxd.Device,
	o DeviceLoaderOptions) (*DeviceLoader, error) {
	o = o.Sized()
	read := &batches{next: next}
	h := cgo.NewHandle(read)
	p, err := rawengine.DeviceLoaderCreateCallback(uintptr(unsafe.Pointer(C.nxdgo_read_batch)), uintptr(h), destroy,
		numTensors, device, &o)
	if err != nil {
		h.Delete()
		return nil, err
	}
	return &DeviceLoader{own.New(p, rawengine.DeviceLoaderDestroy), numTensors, read}, nil
}

// Next takes the next batch; nil at the end. It marks the step before, as MarkStep does.
func (l *DeviceLoader) Next() ([]*Tensor, error) {
	end := int32(0)
	tensors, err := call(nil, l.width, func(_ **raw.Tensor, _ int, out **raw.Tensor) (err error) {
		end, err = own.Get(l.Handle, func(p *raw.DeviceLoader) (int32, error) {
			return rawengine.DeviceLoaderNext(p, out, l.width)
		})
		return err
	})
	if err != nil {
		// A failure made ahead waits until the batches before it have been taken.
		if cause := l.read.taken(); cause != nil {
			return nil, cause
		}
		return nil, err
	}
	if end != 0 {
		return nil, nil
	}
	return tensors, nil
}

// Position is where the data loader stands behind the last batch that was taken: what a checkpoint needs
// to keep. For a function's batches it is how many were taken.
func (l *DeviceLoader) Position() (int64, error) {
	return own.Get(l.Handle, rawengine.DeviceLoaderGetPosition)
}

// SetPosition goes on at a position of the data loader.
func (l *DeviceLoader) SetPosition(position int64) error {
	return own.Do(l.Handle, func(p *raw.DeviceLoader) error {
		return rawengine.DeviceLoaderSetPosition(p, position)
	})
}

func (b *batches) taken() error {
	if b == nil {
		return nil
	}
	b.mutex.Lock()
	defer b.mutex.Unlock()
	failure := b.failure
	b.failure = nil
	return failure
}

// fill makes a batch. Its failure belongs to a call on another thread.
func (b *batches) fill(outputs []*raw.Tensor) (end, good bool) {
	keep := func(err error) {
		b.mutex.Lock()
		defer b.mutex.Unlock()
		b.failure = err
	}
	defer func() {
		if p := recover(); p != nil {
			keep(&raw.PanicError{Value: p, Stack: debug.Stack()})
			good = false
		}
	}()
	tensors, err := b.next()
	defer CloseAll(tensors)
	if err == nil && len(tensors) == 0 {
		return true, true
	}
	if err == nil && len(tensors) != len(outputs) {
		err = raw.Invalid("next: expected %d tensors, got %d", len(outputs), len(tensors))
	}
	for i := 0; err == nil && i < len(outputs); i++ {
		outputs[i], err = own.Get(tensors[i].Handle, rawengine.TensorRetain)
	}
	if err != nil {
		keep(err)
	}
	return false, err == nil
}

//export nxdgoReadBatch
func nxdgoReadBatch(outputs unsafe.Pointer, n C.size_t, outEnd *C.int32_t, handle C.uintptr_t) C.int32_t {
	b := cgo.Handle(handle).Value().(*batches)
	end, good := b.fill(unsafe.Slice((**raw.Tensor)(outputs), int(n)))
	*outEnd = C.int32_t(flag(end))
	if !good {
		return C.int32_t(raw.ErrorUser)
	}
	return C.int32_t(raw.OK)
}
