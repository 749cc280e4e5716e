package nxd

import (
	"math"
	"unsafe"

	"libnxd.org/nxd/raw"
)

// BFloat16 is the upper half of a float32.
type BFloat16 uint16

// Float16 is IEEE 754's binary16.
type Float16 uint16

// ToBFloat16 rounds to nearest, ties to even.
func ToBFloat16(x float32) BFloat16 {
	bits := math.Float32bits(x)
	if x != x {
		return BFloat16(bits>>16 | 0x40)
	}
	return BFloat16((bits + 0x7fff + bits>>16&1) >> 16)
}

// Float32 is the same number.
func (x BFloat16) Float32() float32 { return math.Float32frombits(uint32(x) << 16) }

// Element is a type that slices and tensors can have.
type Element interface {
	float32 | float64 | BFloat16 | Float16 | int32 | int64 | uint8 | int8 | int16 | bool
}

// DTypeOf is the library's name of a Go type.
func DTypeOf[T Element]() DType {
	var x T
	switch any(x).(type) {
	case float32:
		return F32
	case float64:
		return F64
	case BFloat16:
		return BF16
	case Float16:
		return F16
	case int32:
		return I32
	case int64:
		return I64
	case uint8:
		return U8
	case int8:
		return I8
	case int16:
		return I16
	default:
		return Bool
	}
}

// Buffer is memory with a shape, as callbacks get it: borrowed until they return.
type Buffer struct {
	ptr   unsafe.Pointer
	dtype DType
	shape []int64
}

// NewBuffer describes memory of the library's; package engine makes such.
func NewBuffer(ptr unsafe.Pointer, dtype DType, shape []int64) Buffer {
	return Buffer{ptr, dtype, shape}
}

// IsNil is true for what is left out, such as the gradient of a value that needs none.
func (b Buffer) IsNil() bool { return b.ptr == nil }

// DType is the elements' type.
func (b Buffer) DType() DType { return b.dtype }

// Shape is the sizes of the dimensions, in C order.
func (b Buffer) Shape() []int64 { return b.shape }

// Len is the number of elements.
func (b Buffer) Len() int {
	n := int64(1)
	for _, size := range b.shape {
		n *= size
	}
	return int(n)
}

// View is a buffer's memory as a slice, which is as long borrowed as the buffer.
func View[T Element](b Buffer) ([]T, error) {
	if want := DTypeOf[T](); want != b.dtype {
		return nil, raw.Invalid("view: expected elements of dtype %d, got a buffer of dtype %d", want, b.dtype)
	}
	if b.ptr == nil && b.Len() > 0 {
		return nil, raw.Invalid("view: expected a buffer, got none")
	}
	return unsafe.Slice((*T)(b.ptr), b.Len()), nil
}

func first[T any](s []T) *T {
	if len(s) == 0 {
		return nil
	}
	return &s[0]
}

func pointer[T any](s []T) unsafe.Pointer { return unsafe.Pointer(first(s)) }
