package nxd

/*
#include <stdlib.h>
#include "memory.h"
*/
import "C"

import (
	"math"
	"sync/atomic"
	"unsafe"

	"libnxd.org/nxd/internal/own"
	"libnxd.org/nxd/raw"
)

// Array is memory outside of Go's heap, which the library may keep using after a call has returned: for
// asynchronous work, parameters and gradients, and tensors. Data gives it as an ordinary slice. Parts of
// an array share its memory, which lives until one of them is closed: the collector does not see who
// holds a slice of it, so it never frees the memory of an array that was forgotten.
type Array[T Element] struct {
	data []T
	mem  own.Handle[C.nxdgo_memory_t]
	of   *Context // that shares the memory, or nil
}

var openBytes atomic.Int64

// OpenArrayBytes is what all arrays hold that are not closed yet, for finding the forgotten ones.
func OpenArrayBytes() int64 { return openBytes.Load() }

// Memory is an array of any type of element.
type Memory interface {
	buffer() Buffer
	keep() any
	// Retained gives the memory, counted once more for a user outside of Go, and the function that
	// takes the count back, given the counted object; nil for memory that cannot be counted.
	Retained() (data unsafe.Pointer, dtype DType, count int, object, release unsafe.Pointer)
}

// bytesOf is the size of n elements, which Go and the library can both count.
func bytesOf[T Element](n int) (int, error) {
	var one T
	if n < 0 {
		return 0, raw.Invalid("array: expected a length of at least 0, got %d", n)
	}
	if most := math.MaxInt / int(unsafe.Sizeof(one)); n > most {
		return 0, raw.Invalid("array: expected a length of at most %d, got %d", most, n)
	}
	return n * int(unsafe.Sizeof(one)), nil
}

func noMemory() error {
	return &Error{Status: OutOfMemory, Message: "array: no memory", RootRank: -1, Step: -1}
}

// NewArray makes an array of zeros.
func NewArray[T Element](n int) (Array[T], error) {
	bytes, err := bytesOf[T](n)
	if err != nil {
		return Array[T]{}, err
	}
	m := C.nxdgo_memory_new(C.size_t(bytes))
	if m == nil {
		return Array[T]{}, noMemory()
	}
	size := int64(bytes)
	openBytes.Add(size)
	release := func(m *C.nxdgo_memory_t) {
		openBytes.Add(-size)
		C.nxdgo_memory_release(unsafe.Pointer(m))
	}
	return Array[T]{unsafe.Slice((*T)(m.data), n), own.NewManual(m, release), nil}, nil
}

// NewSharedArray makes an array in memory that the other ranks of this host can reach: collectives work
// on it in place. Contents are undefined at first. It is gone when the context is closed, which the
// collector does not do while the array is open.
func NewSharedArray[T Element](c *Context, n int) (Array[T], error) {
	bytes, err := bytesOf[T](n)
	if err != nil {
		return Array[T]{}, err
	}
	m := (*C.nxdgo_memory_t)(C.calloc(1, C.sizeof_nxdgo_memory_t))
	if m == nil {
		return Array[T]{}, noMemory()
	}
	data, err := own.Get(c.Handle, func(p *raw.Context) (unsafe.Pointer, error) {
		return raw.ArenaAlloc(p, bytes)
	})
	if err != nil {
		C.free(unsafe.Pointer(m))
		return Array[T]{}, err
	}
	m.data = data
	size := int64(bytes)
	openBytes.Add(size)
	release := func(m *C.nxdgo_memory_t) {
		openBytes.Add(-size)
		// Without the context the memory cannot be given back: it went with it.
		if ctx := c.Raw(); ctx != nil {
			_ = raw.ArenaFree(ctx, m.data)
		}
		C.free(unsafe.Pointer(m))
	}
	return Array[T]{unsafe.Slice((*T)(data), n), own.NewManual(m, release, c), c}, nil
}

// Data is the array's memory, valid until Close, whether or not the array is reachable; nil after Close.
func (a Array[T]) Data() []T {
	if a.mem.Raw() == nil || a.of != nil && a.of.Raw() == nil {
		return nil
	}
	return a.data
}

// Len is the number of elements.
func (a Array[T]) Len() int { return len(a.data) }

// Part is the elements from..to-1, sharing their memory.
func (a Array[T]) Part(from, to int) Array[T] { return Array[T]{a.data[from:to:to], a.mem, a.of} }

// Close gives the memory back, also that of all parts: slices of it must not be used any more.
// Objects that the library keeps, such as a tensor over the array, are not affected; a work or a DDP
// that uses the array must be closed before.
func (a Array[T]) Close() { a.mem.Close() }

func (a Array[T]) buffer() Buffer {
	return Buffer{pointer(a.Data()), DTypeOf[T](), []int64{int64(len(a.data))}}
}

func (a Array[T]) keep() any { return a.mem }

// Retained is for package engine.
func (a Array[T]) Retained() (data unsafe.Pointer, dtype DType, count int, object, release unsafe.Pointer) {
	m := a.mem.Raw()
	if m == nil || m.refs == 0 {
		return nil, DTypeOf[T](), len(a.data), nil, nil
	}
	C.nxdgo_memory_retain(m)
	return pointer(a.data), DTypeOf[T](), len(a.data), unsafe.Pointer(m), unsafe.Pointer(C.nxdgo_memory_release)
}
