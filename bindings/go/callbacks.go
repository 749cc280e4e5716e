package nxd

/*
#cgo pkg-config: nxd-core
#include "callbacks.h"
*/
import "C"

import (
	"runtime/cgo"
	"unsafe"

	"libnxd.org/nxd/raw"
)

//export nxdgoDestroy
func nxdgoDestroy(handle C.uintptr_t) { cgo.Handle(handle).Delete() }

//export nxdgoLog
func nxdgoLog(level C.int32_t, message unsafe.Pointer, handle C.uintptr_t) {
	defer func() { _ = recover() }() // a log line is no reason to fail
	cgo.Handle(handle).Value().(func(LogLevel, string))(LogLevel(level), text(message))
}

//export nxdgoInterrupt
func nxdgoInterrupt(id C.uintptr_t) C.int32_t {
	ctx, ok := interrupts.Load(uintptr(id))
	if !ok {
		return C.int32_t(raw.OK)
	}
	if err := ctx.(canceller).Err(); err != nil {
		raw.Fail(err)
		return C.int32_t(Aborted)
	}
	return C.int32_t(raw.OK)
}

//export nxdgoStoreSet
func nxdgoStoreSet(key, value unsafe.Pointer, size C.size_t, handle C.uintptr_t) C.int32_t {
	return C.int32_t(raw.Guard(func() error {
		return cgo.Handle(handle).Value().(KeyValues).Set(text(key), C.GoBytes(value, C.int(size)))
	}))
}

//export nxdgoStoreGet
func nxdgoStoreGet(key, buf unsafe.Pointer, capacity C.size_t, size *C.size_t, found *C.int32_t,
	handle C.uintptr_t) C.int32_t {
	return C.int32_t(raw.Guard(func() error {
		value, ok, err := cgo.Handle(handle).Value().(KeyValues).Get(text(key))
		*size, *found = C.size_t(len(value)), C.int32_t(flag(ok))
		if err == nil && ok && len(value) <= int(capacity) {
			copy(unsafe.Slice((*byte)(buf), int(capacity)), value)
		}
		return err
	}))
}

//export nxdgoStoreAdd
func nxdgoStoreAdd(key unsafe.Pointer, amount C.int64_t, value *C.int64_t, handle C.uintptr_t) C.int32_t {
	return C.int32_t(raw.Guard(func() error {
		sum, err := cgo.Handle(handle).Value().(KeyValues).Add(text(key), int64(amount))
		*value = C.int64_t(sum)
		return err
	}))
}

//export nxdgoUpdate
func nxdgoUpdate(update unsafe.Pointer, handle C.uintptr_t) C.int32_t {
	return C.int32_t(raw.Guard(func() error {
		rule := cgo.Handle(handle).Value().(*CustomOptions)
		return rule.Update(newUpdate((*raw.Update)(update), rule.States))
	}))
}

//export nxdgoStageForward
func nxdgoStageForward(call, inputs, outputs unsafe.Pointer, loss *C.double, handle C.uintptr_t) C.int32_t {
	return C.int32_t(raw.Guard(func() error {
		s := cgo.Handle(handle).Value().(*stages)
		c := newStageCall((*raw.PPCall)(call))
		value, err := s.stage.Forward(c, s.buffers(inputs, s.inputs, c.Chunk), s.buffers(outputs, s.outputs, c.Chunk))
		if err == nil && loss != nil {
			*loss = C.double(value)
		}
		return err
	}))
}

//export nxdgoStageBackward
func nxdgoStageBackward(call, inputs, gradOutputs, gradInputs unsafe.Pointer, ofInputs, ofWeights C.int32_t,
	handle C.uintptr_t) C.int32_t {
	return C.int32_t(raw.Guard(func() error {
		s := cgo.Handle(handle).Value().(*stages)
		c := newStageCall((*raw.PPCall)(call))
		in, out := s.buffers(inputs, s.inputs, c.Chunk), s.buffers(gradOutputs, s.outputs, c.Chunk)
		grads := s.buffers(gradInputs, s.inputs, c.Chunk)
		if ofInputs == 1 && ofWeights == 1 {
			return s.stage.Backward(c, in, out, grads)
		}
		split := s.stage.(SplitStage)
		if ofInputs == 1 {
			return split.BackwardInput(c, in, out, grads)
		}
		return split.BackwardWeight(c, in, out)
	}))
}

func text(p unsafe.Pointer) string { return C.GoString((*C.char)(p)) }
