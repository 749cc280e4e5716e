// Package engine is libnxd in Go: tensors, operators and their differentiation, modules written in Go,
// sharded layers, Hugging Face models, and their training on many ranks. It adds to package nxd, whose
// rules hold here too. Close the tensors of a step before the next step, because the garbage
// collector does not see the memory that they hold.
package engine

// #include "callbacks.h"
import "C"

import (
	"runtime"
	"strconv"
	"unsafe"

	"libnxd.org/nxd"
	"libnxd.org/nxd/internal/own"
	"libnxd.org/nxd/raw"
	"libnxd.org/nxd/rawengine"
)

// Tensor is a handle on a tensor; several may share one storage. Close releases the handle.
type Tensor struct{ own.Handle[raw.Tensor] }

func newTensor(p *raw.Tensor, err error) (*Tensor, error) {
	if err != nil || p == nil {
		return nil, err
	}
	return &Tensor{own.New(p, rawengine.TensorDestroy)}, nil
}

// CloseAll closes tensors; nil ones are left out.
func CloseAll(tensors []*Tensor) {
	for _, t := range tensors {
		if t != nil {
			t.Close()
		}
	}
}

func flag(on bool) int32 {
	if on {
		return 1
	}
	return 0
}

func first[T any](s []T) *T {
	if len(s) == 0 {
		return nil
	}
	return &s[0]
}

// pointers is a list of tensors for the library, of which nil ones are left out, and closed ones are not; the
// code that passes it on keeps the tensors alive.
func pointers(tensors []*Tensor) ([]*raw.Tensor, error) {
	out := make([]*raw.Tensor, len(tensors))
	for i, t := range tensors {
		if t == nil {
			continue
		}
		p, err := t.Given("tensor " + strconv.Itoa(i))
		if err != nil {
			return nil, err
		}
		out[i] = p
	}
	return out, nil
}

// call gives f the list of inputs and room for n results.
func call(inputs []*Tensor, n int, f func(in **raw.Tensor, nIn int, out **raw.Tensor) error) ([]*Tensor,
	error) {
	in, bad := pointers(inputs)
	out := make([]*raw.Tensor, n)
	// Also with bad inputs, in the place of which NULL is given, so that the peers of a collective are told.
	err := raw.FirstError(bad, f(first(in), len(inputs), first(out)))
	runtime.KeepAlive(inputs)
	if err != nil {
		return nil, err
	}
	results := make([]*Tensor, n)
	for i, p := range out {
		results[i], _ = newTensor(p, nil)
	}
	return results, nil
}

// one is a call with one result.
func one(inputs []*Tensor, f func(in **raw.Tensor, nIn int, out **raw.Tensor) error) (*Tensor, error) {
	out, err := call(inputs, 1, f)
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// Zeros is a tensor of zeros in C order. device nxd.Meta: shape and dtype only.
func Zeros(dtype nxd.DType, device nxd.Device, shape ...int64) (*Tensor, error) {
	return newTensor(rawengine.TensorCreate(first(shape), int32(len(shape)), dtype, device))
}

// FromSlice is a tensor in C order with a copy of data; no sizes: a scalar.
func FromSlice[T nxd.Element](data []T, shape ...int64) (*Tensor, error) {
	var x T
	return newTensor(rawengine.TensorFromData(unsafe.Pointer(first(data)), len(data)*int(unsafe.Sizeof(x)),
		first(shape), int32(len(shape)), nxd.DTypeOf[T]()))
}

// FromArray is a tensor over an array's memory, without a copy; the memory lives as long as the array or
// a tensor over it. After writing through the array, call MarkModified.
func FromArray(array nxd.Memory, shape ...int64) (*Tensor, error) {
	data, dtype, count, object, release := array.Retained()
	if object == nil {
		return nil, raw.Invalid("array: expected one of NewArray that is not closed")
	}
	if got := nxd.NewBuffer(nil, dtype, shape).Len(); got != count {
		C.nxdgo_release(release, object)
		return nil, raw.Invalid("shape: expected a product of %d, got %v", count, shape)
	}
	t := nxd.DLPackType(dtype)
	c := C.DLDataType{code: C.uint8_t(t.Code), bits: C.uint8_t(t.Bits), lanes: 1}
	m := C.nxdgo_managed(data, c, (*C.int64_t)(unsafe.Pointer(first(shape))), C.int32_t(len(shape)), object,
		release)
	if m == nil {
		C.nxdgo_release(release, object)
		return nil, &nxd.Error{Status: nxd.OutOfMemory, Message: "array: no memory", RootRank: -1, Step: -1}
	}
	tensor, err := newTensor(rawengine.TensorFromDLPack((*raw.DLManagedTensor)(unsafe.Pointer(m))))
	if err != nil {
		C.nxdgo_managed_delete(m)
	}
	return tensor, err
}

// ToDLPack is the tensor's memory for another library, without a copy. Its deleter, called once, ends
// the use.
func (t *Tensor) ToDLPack() (*raw.DLManagedTensor, error) {
	return own.Get(t.Handle, rawengine.TensorToDLPack)
}

// FromDLPack is a tensor over another library's memory, which it takes over on success.
func FromDLPack(managed *raw.DLManagedTensor) (*Tensor, error) {
	return newTensor(rawengine.TensorFromDLPack(managed))
}

// Retain is another handle on the same tensor.
func (t *Tensor) Retain() (*Tensor, error) {
	return newTensor(own.Get(t.Handle, rawengine.TensorRetain))
}

func sizes(read func(first *int64, capacity int) (int, error)) ([]int64, error) {
	n, err := read(nil, 0)
	if err != nil || n == 0 {
		return nil, err
	}
	out := make([]int64, n)
	_, err = read(&out[0], n)
	return out, err
}

// Shape is the sizes of the dimensions.
func (t *Tensor) Shape() ([]int64, error) {
	return sizes(func(shape *int64, capacity int) (int, error) {
		return own.Get(t.Handle, func(p *raw.Tensor) (int, error) {
			return rawengine.TensorGetShape(p, shape, capacity)
		})
	})
}

// Strides are in elements.
func (t *Tensor) Strides() ([]int64, error) {
	return sizes(func(strides *int64, capacity int) (int, error) {
		return own.Get(t.Handle, func(p *raw.Tensor) (int, error) {
			return rawengine.TensorGetStrides(p, strides, capacity)
		})
	})
}

// DType is the elements' type.
func (t *Tensor) DType() (nxd.DType, error) { return own.Get(t.Handle, rawengine.TensorGetDType) }

// Device is where the tensor is.
func (t *Tensor) Device() (nxd.Device, error) { return own.Get(t.Handle, rawengine.TensorGetDevice) }

// Len is the number of elements.
func (t *Tensor) Len() (int, error) {
	n, err := own.Get(t.Handle, rawengine.TensorGetElementCount)
	return int(n), err
}

// Item is the value of a tensor of one element.
func (t *Tensor) Item() (float64, error) { return own.Get(t.Handle, rawengine.TensorGetItem) }

// MarkModified says that the memory was written by other means than this library.
func (t *Tensor) MarkModified() error { return own.Do(t.Handle, rawengine.TensorMarkModified) }

// Buffer is the memory of a tensor in C order, without a copy: valid while the tensor is open and
// reachable. After writing through it, call MarkModified.
func (t *Tensor) Buffer() (nxd.Buffer, error) {
	shape, err := t.Shape()
	if err != nil {
		return nxd.Buffer{}, err
	}
	strides, err := t.Strides()
	if err != nil {
		return nxd.Buffer{}, err
	}
	// Without elements there is no order; want is 0 then from some dimension on.
	for i, want := len(shape)-1, int64(1); i >= 0 && want != 0; i-- {
		if shape[i] > 1 && strides[i] != want {
			return nxd.Buffer{}, raw.Invalid("tensor: expected C order, got strides %v of shape %v", strides, shape)
		}
		want *= shape[i]
	}
	dtype, err := t.DType()
	if err != nil {
		return nxd.Buffer{}, err
	}
	data, err := own.Get(t.Handle, rawengine.TensorGetData)
	return nxd.NewBuffer(data, dtype, shape), err
}

// Data copies all elements out, in C order.
func Data[T nxd.Element](t *Tensor) ([]T, error) {
	var x T
	dtype, err := t.DType()
	if err != nil {
		return nil, err
	}
	if want := nxd.DTypeOf[T](); dtype != want {
		return nil, raw.Invalid("tensor: expected dtype %d, got %d", want, dtype)
	}
	n, err := t.Len()
	if err != nil {
		return nil, err
	}
	out := make([]T, n)
	err = own.Do(t.Handle, func(p *raw.Tensor) error {
		return rawengine.TensorCopyToHost(p, unsafe.Pointer(first(out)), n*int(unsafe.Sizeof(x)))
	})
	return out, err
}

// SetData overwrites all elements in place, from C order; autograd does not record it.
func SetData[T nxd.Element](t *Tensor, data []T) error {
	var x T
	dtype, err := t.DType()
	if err != nil {
		return err
	}
	if want := nxd.DTypeOf[T](); dtype != want {
		return raw.Invalid("tensor: expected dtype %d, got %d", dtype, want)
	}
	return own.Do(t.Handle, func(p *raw.Tensor) error {
		return rawengine.TensorCopyFromHost(p, unsafe.Pointer(first(data)), len(data)*int(unsafe.Sizeof(x)))
	})
}

// SetATenPool tells whether libtorch takes the memory of new tensors from the library's pool.
func SetATenPool(on bool) error { return rawengine.MemorySetATenPool(flag(on)) }
