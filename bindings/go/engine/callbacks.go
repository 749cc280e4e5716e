package engine

/*
#cgo pkg-config: nxd
#include "callbacks.h"
*/
import "C"

import (
	"runtime/cgo"
	"unsafe"

	"libnxd.org/nxd/internal/own"
	"libnxd.org/nxd/raw"
	"libnxd.org/nxd/rawengine"
)

var destroy = uintptr(unsafe.Pointer(C.nxdgo_engine_destroy))

//export nxdgoEngineDestroy
func nxdgoEngineDestroy(handle C.uintptr_t) { cgo.Handle(handle).Delete() }

// lend gives f the tensors of a C list, which are borrowed until it returns, and puts its results into
// another, whose owner is the library; the results' own handles are closed.
func lend(list unsafe.Pointer, n C.size_t, outputs unsafe.Pointer, nOutputs C.size_t,
	f func(inputs []*Tensor) ([]*Tensor, error)) C.int32_t {
	return C.int32_t(raw.Guard(func() error {
		inputs := borrowed(list, int(n))
		defer CloseAll(inputs)
		results, err := f(inputs)
		defer CloseAll(results)
		if err != nil {
			return err
		}
		if len(results) != int(nOutputs) {
			return raw.Invalid("callback: expected %d tensors, got %d", int(nOutputs), len(results))
		}
		out := unsafe.Slice((**raw.Tensor)(outputs), int(nOutputs))
		for i, t := range results {
			if t == nil {
				continue
			}
			if out[i], err = own.Get(t.Handle, rawengine.TensorRetain); err != nil {
				return err
			}
		}
		return nil
	}))
}

func borrowed(list unsafe.Pointer, n int) []*Tensor {
	tensors := make([]*Tensor, n)
	for i, p := range unsafe.Slice((**raw.Tensor)(list), n) {
		if p != nil {
			tensors[i] = &Tensor{own.Borrow(p)}
		}
	}
	return tensors
}

//export nxdgoModuleForward
func nxdgoModuleForward(self, inputs unsafe.Pointer, nInputs C.size_t, outputs unsafe.Pointer,
	nOutputs C.size_t, handle C.uintptr_t) C.int32_t {
	return lend(inputs, nInputs, outputs, nOutputs, func(in []*Tensor) ([]*Tensor, error) {
		m := &Module{Handle: own.Borrow((*raw.Module)(self))}
		defer m.Close()
		return cgo.Handle(handle).Value().(Forward)(m, in)
	})
}

//export nxdgoFunctionForward
func nxdgoFunctionForward(call, inputs unsafe.Pointer, nInputs C.size_t, outputs unsafe.Pointer,
	nOutputs C.size_t, handle C.uintptr_t) C.int32_t {
	return lend(inputs, nInputs, outputs, nOutputs, func(in []*Tensor) ([]*Tensor, error) {
		return during(call, func(c *FunctionCall) ([]*Tensor, error) {
			return cgo.Handle(handle).Value().(*FunctionOptions).Forward(c, in)
		})
	})
}

//export nxdgoFunctionBackward
func nxdgoFunctionBackward(call, grads unsafe.Pointer, nOutputs C.size_t, gradInputs unsafe.Pointer,
	nInputs C.size_t, handle C.uintptr_t) C.int32_t {
	return lend(grads, nOutputs, gradInputs, nInputs, func(in []*Tensor) ([]*Tensor, error) {
		return during(call, func(c *FunctionCall) ([]*Tensor, error) {
			return cgo.Handle(handle).Value().(*FunctionOptions).Backward(c, in)
		})
	})
}

//export nxdgoFunctionShape
func nxdgoFunctionShape(inputs unsafe.Pointer, nInputs C.size_t, outputs unsafe.Pointer, nOutputs C.size_t,
	handle C.uintptr_t) C.int32_t {
	return lend(inputs, nInputs, outputs, nOutputs, func(in []*Tensor) ([]*Tensor, error) {
		return cgo.Handle(handle).Value().(*FunctionOptions).Shape(in)
	})
}

//export nxdgoGradHook
func nxdgoGradHook(parameter unsafe.Pointer, handle C.uintptr_t) C.int32_t {
	return C.int32_t(raw.Guard(func() error {
		p := &Parameter{Handle: own.Borrow((*raw.Parameter)(parameter))}
		defer p.Close()
		return cgo.Handle(handle).Value().(func(*Parameter) error)(p)
	}))
}

//export nxdgoPadHook
func nxdgoPadHook(module unsafe.Pointer, heads, padded C.int64_t, handle C.uintptr_t) C.int32_t {
	return C.int32_t(raw.Guard(func() error {
		m := &Module{own.Borrow((*raw.Module)(module))}
		defer m.Close()
		return cgo.Handle(handle).Value().(PadHook)(m, int64(heads), int64(padded))
	}))
}

//export nxdgoParamInit
func nxdgoParamInit(parameter, name, tensor unsafe.Pointer, handle C.uintptr_t) C.int32_t {
	return C.int32_t(raw.Guard(func() error {
		text := C.GoString((*C.char)(name))
		p := &Parameter{own.Borrow((*raw.Parameter)(parameter)), text}
		defer p.Close()
		t := &Tensor{own.Borrow((*raw.Tensor)(tensor))}
		defer t.Close()
		return cgo.Handle(handle).Value().(*PipelineOptions).ParamInit(p, t)
	}))
}

//export nxdgoInitializer
func nxdgoInitializer(name, shape unsafe.Pointer, ndim C.size_t, first C.int64_t, values unsafe.Pointer,
	count C.size_t, handle C.uintptr_t) C.int32_t {
	return C.int32_t(raw.Guard(func() error {
		sizes := unsafe.Slice((*int64)(shape), int(ndim))
		room := unsafe.Slice((*float64)(values), int(count))
		return cgo.Handle(handle).Value().(Initializer)(C.GoString((*C.char)(name)), sizes, int64(first), room)
	}))
}

//export nxdgoLeaf
func nxdgoLeaf(module, path unsafe.Pointer, isLeaf *C.int32_t, handle C.uintptr_t) C.int32_t {
	return C.int32_t(raw.Guard(func() error {
		m := &Module{Handle: own.Borrow((*raw.Module)(module))}
		defer m.Close()
		leaf, err := cgo.Handle(handle).Value().(*PipelineOptions).LeafRule(m, C.GoString((*C.char)(path)),
			*isLeaf != 0)
		*isLeaf = C.int32_t(flag(leaf))
		return err
	}))
}
