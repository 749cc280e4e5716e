//go:build go1.21

package nxd

import (
	"runtime"
	"unsafe"

	"libnxd.org/nxd/internal/own"
)

// Pinned is an ordinary slice that the library may keep using after a call has returned, as it does an
// Array: the slice stays where it is until Close. A framework's own slices become parameters by it.
type Pinned[T Element] struct {
	data []T
	pin  own.Handle[runtime.Pinner]
}

// Pin makes a slice the library's to use.
func Pin[T Element](data []T) Pinned[T] {
	pinner := new(runtime.Pinner)
	if len(data) > 0 {
		pinner.Pin(&data[0])
	}
	return Pinned[T]{data, own.NewManual(pinner, (*runtime.Pinner).Unpin)}
}

// Data is the slice; nil after Close.
func (p Pinned[T]) Data() []T {
	if p.pin.Raw() == nil {
		return nil
	}
	return p.data
}

// Close lets go of the slice, which goes on as an ordinary one. A work or a DDP that uses it must be closed,
// or bound to other memory, before.
func (p Pinned[T]) Close() { p.pin.Close() }

func (p Pinned[T]) buffer() Buffer {
	return Buffer{pointer(p.Data()), DTypeOf[T](), []int64{int64(len(p.data))}}
}

func (p Pinned[T]) keep() any { return p.pin }

// Retained is for package engine: the library cannot count the users of a slice.
func (p Pinned[T]) Retained() (data unsafe.Pointer, dtype DType, count int, object, release unsafe.Pointer) {
	return nil, DTypeOf[T](), len(p.data), nil, nil
}
