package engine

// #include "callbacks.h"
import "C"

import (
	"runtime"
	"runtime/cgo"
	"unsafe"

	"libnxd.org/nxd"
	"libnxd.org/nxd/internal/own"
	"libnxd.org/nxd/raw"
	"libnxd.org/nxd/rawengine"
)

// RequiresGrad tells whether operations on the tensor are recorded.
func (t *Tensor) RequiresGrad() (bool, error) {
	r, err := own.Get(t.Handle, rawengine.TensorGetRequiresGrad)
	return r != 0, err
}

// SetRequiresGrad makes a leaf require a gradient, or not.
func (t *Tensor) SetRequiresGrad(on bool) error {
	return own.Do(t.Handle, func(p *raw.Tensor) error { return rawengine.TensorSetRequiresGrad(p, flag(on)) })
}

// Grad is the gradient accumulated in a leaf; nil when there is none yet.
func (t *Tensor) Grad() (*Tensor, error) {
	return newTensor(own.Get(t.Handle, rawengine.TensorShareGrad))
}

// SetGrad replaces the gradient of a leaf; nil clears it.
func (t *Tensor) SetGrad(grad *Tensor) error {
	defer runtime.KeepAlive(grad)
	list, err := pointers([]*Tensor{grad})
	if err != nil {
		return err
	}
	return own.Do(t.Handle, func(p *raw.Tensor) error { return rawengine.TensorSetGrad(p, list[0]) })
}

// Detach is a handle on the same memory, outside of the recorded graph.
func (t *Tensor) Detach() (*Tensor, error) {
	return newTensor(own.Get(t.Handle, rawengine.TensorDetach))
}

// Backward accumulates the gradients of a scalar into the leaves of its graph.
// [collective: the groups of the layers in the graph]
func (t *Tensor) Backward() error { return Backward([]*Tensor{t}, nil, false) }

func checkGrads(outputs, grads []*Tensor) error {
	if grads != nil && len(grads) != len(outputs) {
		return raw.Invalid("grads: expected one for each of %d outputs, got %d", len(outputs), len(grads))
	}
	return nil
}

// Backward accumulates gradients into the leaves of the graph; grads nil, or nil in it: 1 for a scalar.
// [collective: the groups of the layers in the graph]
func Backward(outputs, grads []*Tensor, retainGraph bool) error {
	if err := checkGrads(outputs, grads); err != nil {
		return err
	}
	out, err := pointers(outputs)
	if err != nil {
		return err
	}
	g, err := pointers(grads)
	if err != nil {
		return err
	}
	err = rawengine.Backward(first(out), first(g), len(out), flag(retainGraph))
	runtime.KeepAlive([2][]*Tensor{outputs, grads})
	return err
}

// Gradients are those of outputs with respect to inputs, without touching any leaf's; nil where an input
// has no influence. [collective: the groups of the layers in the graph]
func Grad(outputs, grads, inputs []*Tensor, retainGraph bool) ([]*Tensor, error) {
	if err := checkGrads(outputs, grads); err != nil {
		return nil, err
	}
	out, err := pointers(outputs)
	if err != nil {
		return nil, err
	}
	g, err := pointers(grads)
	if err != nil {
		return nil, err
	}
	results, err := call(inputs, len(inputs), func(in **raw.Tensor, n int, results **raw.Tensor) error {
		return rawengine.Grad(first(out), first(g), len(out), in, n, flag(retainGraph), results)
	})
	runtime.KeepAlive([2][]*Tensor{outputs, grads})
	return results, err
}

// NoGrad runs f without recording. Recording is a setting of the thread, so f stays on one.
func NoGrad(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	previous, err := rawengine.SetGradEnabled(0)
	if err != nil {
		return err
	}
	defer func() { _, _ = rawengine.SetGradEnabled(previous) }()
	return f()
}

// Autocast runs f with products of matrices in dtype, which is nxd.BF16. It is a setting of the thread, so
// f stays on one.
func Autocast(dtype nxd.DType, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	previous, err := rawengine.SetAutocast(dtype)
	if err != nil {
		return err
	}
	defer func() { _, _ = rawengine.SetAutocast(previous) }()
	return f()
}

// Function is a differentiable function written in Go.
type Function struct {
	own.Handle[raw.Function]
	outputs int
}

// FunctionOptions are a function's parts. Inputs are borrowed; results belong to the library once they
// are returned. Inside nothing is recorded.
type FunctionOptions struct {
	Name    string // stable and unique, such as "mylib::swish"
	Outputs int    // 0: 1
	Forward func(call *FunctionCall, inputs []*Tensor) ([]*Tensor, error)
	// Backward gives the gradient of each input, nil for one that has none; nil in gradOutputs is zero.
	// Without it the function is not differentiable.
	Backward func(call *FunctionCall, gradOutputs []*Tensor) ([]*Tensor, error)
	// Shape gives results of the right shape and dtype from inputs on the meta device. Without it the
	// function cannot be traced.
	Shape func(inputs []*Tensor) ([]*Tensor, error)
}

// FunctionCall is one application, valid inside its callbacks.
type FunctionCall struct {
	p    *raw.FunctionCall
	lent own.Scope
}

// during calls f with an application, which ends with f, as do the tensors it has lent.
func during(call unsafe.Pointer, f func(*FunctionCall) ([]*Tensor, error)) ([]*Tensor, error) {
	c := &FunctionCall{p: (*raw.FunctionCall)(call)}
	defer func() {
		c.p = nil
		c.lent.End()
	}()
	return f(c)
}

// Save keeps a tensor from Forward for Backward.
func (c *FunctionCall) Save(t *Tensor) error {
	return own.Do(t.Handle, func(p *raw.Tensor) error { return rawengine.FunctionCallSave(c.p, p) })
}

// Saved is a tensor kept by Forward, by its order; borrowed for the callback.
func (c *FunctionCall) Saved(index int) (*Tensor, error) {
	p, err := rawengine.FunctionCallGetSaved(c.p, index)
	if err != nil {
		return nil, err
	}
	return &Tensor{own.Borrow(p, &c.lent)}, nil
}

// NeedsGrad tells whether Backward needs the gradient of an input.
func (c *FunctionCall) NeedsGrad(input int) (bool, error) {
	needs, err := rawengine.FunctionCallNeedsGrad(c.p, input)
	return needs != 0, err
}

// NewFunction makes a function.
func NewFunction(o FunctionOptions) (*Function, error) {
	if o.Outputs == 0 {
		o.Outputs = 1
	}
	var scratch raw.Scratch
	defer scratch.Free()
	name, err := scratch.String("Name", o.Name)
	if err != nil {
		return nil, err
	}
	h := cgo.NewHandle(&o)
	c := raw.FunctionOptions{Name: name, NumOutputs: uint64(o.Outputs), UserData: uintptr(h),
		Destroy: destroy}.Sized()
	if o.Forward != nil {
		c.Forward = uintptr(unsafe.Pointer(C.nxdgo_function_forward))
	}
	if o.Backward != nil {
		c.Backward = uintptr(unsafe.Pointer(C.nxdgo_function_backward))
	}
	if o.Shape != nil {
		c.Shape = uintptr(unsafe.Pointer(C.nxdgo_function_shape))
	}
	p, err := rawengine.FunctionCreate(&c)
	if err != nil {
		h.Delete()
		return nil, err
	}
	return &Function{own.New(p, rawengine.FunctionDestroy), o.Outputs}, nil
}

// Apply applies the function; recorded when an input requires a gradient.
func (f *Function) Apply(inputs ...*Tensor) ([]*Tensor, error) {
	return call(inputs, f.outputs, func(in **raw.Tensor, n int, out **raw.Tensor) error {
		return own.Do(f.Handle, func(p *raw.Function) error {
			return rawengine.FunctionApply(p, in, n, out, f.outputs)
		})
	})
}
