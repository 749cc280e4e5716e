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

// Module is a node of a model: children, parameters and a forward function.
type Module struct{ own.Handle[raw.Module] }

// Forward is a module's forward written in Go. self and inputs are borrowed until it returns, nil stands
// for an input that was left out; results belong to the library once they are returned. A closure that
// holds the module itself would keep it for ever: use self.
type Forward func(self *Module, inputs []*Tensor) ([]*Tensor, error)

func newModule(c *nxd.Context, create func(*raw.Context) (*raw.Module, error)) (*Module, error) {
	p, err := own.Get(c.Handle, create)
	if err != nil {
		return nil, err
	}
	return &Module{own.New(p, rawengine.ModuleDestroy, c)}, nil
}

// NewModule makes a module; forward nil: a mere container.
func NewModule(c *nxd.Context, className string, forward Forward) (*Module, error) {
	return newModule(c, func(p *raw.Context) (*raw.Module, error) {
		if forward == nil {
			return rawengine.ModuleCreate(p, className, 0, 0, 0)
		}
		h := cgo.NewHandle(forward)
		m, err := rawengine.ModuleCreate(p, className, uintptr(unsafe.Pointer(C.nxdgo_module_forward)),
			uintptr(h), destroy)
		if err != nil {
			h.Delete()
		}
		return m, err
	})
}

// NewSequential is a module that calls its children in order; they become "0", "1" and so on.
func NewSequential(c *nxd.Context, children ...*Module) (*Module, error) {
	defer runtime.KeepAlive(children)
	list := make([]*raw.Module, len(children))
	for i, child := range children {
		list[i] = child.Raw()
	}
	return newModule(c, func(p *raw.Context) (*raw.Module, error) {
		return rawengine.ModuleCreateSequential(p, first(list), len(list))
	})
}

// DeferInit runs f, in which modules are made on the meta device: their parameters have shapes and no memory
// until they are moved or loaded, or a pipeline has them. It is a setting of the thread, so f stays on one.
func DeferInit(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	previous, err := rawengine.SetDeferredInit(1)
	if err != nil {
		return err
	}
	defer func() { _, _ = rawengine.SetDeferredInit(previous) }()
	return f()
}

// AddChild adds a child, which the parent keeps alive.
func (m *Module) AddChild(name string, child *Module) error {
	defer runtime.KeepAlive(child)
	return own.Do(m.Handle, func(p *raw.Module) error { return rawengine.ModuleAddChild(p, name, child.Raw()) })
}

// ParameterOptions say how a parameter is sharded and initialised. StructSize is set by the calls.
type ParameterOptions = raw.ParameterOptions

// Parameter is this rank's shard of a parameter; it belongs to its module.
type Parameter struct {
	own.Handle[raw.Parameter]
	Name string
}

// AddParameter adds a parameter of a whole shape.
func (m *Module) AddParameter(name string, o ParameterOptions, globalShape ...int64) (*Parameter, error) {
	o = o.Sized()
	p, err := own.Get(m.Handle, func(p *raw.Module) (*raw.Parameter, error) {
		return rawengine.ModuleAddParameter(p, name, first(globalShape), int32(len(globalShape)), &o)
	})
	return m.parameter(p, name, err)
}

func (m *Module) parameter(p *raw.Parameter, name string, err error) (*Parameter, error) {
	if err != nil {
		return nil, err
	}
	return &Parameter{own.Borrow(p, m), name}, nil
}

// Tie makes the parameter at owner stand for the one at alias as well.
func (m *Module) Tie(owner, alias string) error {
	return own.Do(m.Handle, func(p *raw.Module) error { return rawengine.ModuleTie(p, owner, alias) })
}

// AddBuffer adds a tensor that no gradient reaches, such as a running mean, and shares it; one that is saved
// is in files of parameters.
func (m *Module) AddBuffer(name string, tensor *Tensor, saved bool) error {
	defer runtime.KeepAlive(tensor)
	return own.Do(m.Handle, func(p *raw.Module) error {
		return rawengine.ModuleAddBuffer(p, name, tensor.Raw(), flag(saved))
	})
}

// Buffer is a buffer of the tree by its name.
func (m *Module) Buffer(name string) (*Tensor, error) {
	return newTensor(own.Get(m.Handle, func(p *raw.Module) (*raw.Tensor, error) {
		return rawengine.ModuleShareBuffer(p, name)
	}))
}

// BufferNames are the names of all buffers of the tree.
func (m *Module) BufferNames() ([]string, error) {
	count, err := own.Get(m.Handle, rawengine.ModuleGetBufferCount)
	var found []string
	for i := 0; i < count && err == nil; i++ {
		var needed int
		needed, err = own.Get(m.Handle, func(p *raw.Module) (int, error) {
			return rawengine.ModuleGetBufferName(p, i, nil, 0)
		})
		if err != nil {
			return nil, err
		}
		room := make([]byte, needed)
		_, err = own.Get(m.Handle, func(p *raw.Module) (int, error) {
			return rawengine.ModuleGetBufferName(p, i, &room[0], needed)
		})
		found = append(found, string(room[:needed-1]))
	}
	return found, err
}

// Forward runs the module, for one output; nil is an optional input left out.
// [collective: the groups of its layers]
func (m *Module) Forward(inputs ...*Tensor) (*Tensor, error) {
	out, err := m.ForwardN(1, inputs...)
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// ForwardN runs the module, for n outputs. [collective: the groups of its layers]
func (m *Module) ForwardN(n int, inputs ...*Tensor) ([]*Tensor, error) {
	return call(inputs, n, func(in **raw.Tensor, nIn int, out **raw.Tensor) error {
		return own.Do(m.Handle, func(p *raw.Module) error { return rawengine.ModuleForward(p, in, nIn, out, n) })
	})
}

// Tape is one run of a module that something with its own differentiation can go back through.
type Tape struct {
	own.Handle[raw.Tape]
	inputs int
}

// ForwardTape runs the module and keeps what its backward needs. [collective: the groups of its layers]
func (m *Module) ForwardTape(n int, inputs ...*Tensor) ([]*Tensor, *Tape, error) {
	var tape *raw.Tape
	outputs, err := call(inputs, n, func(in **raw.Tensor, nIn int, out **raw.Tensor) (err error) {
		tape, err = own.Get(m.Handle, func(p *raw.Module) (*raw.Tape, error) {
			return rawengine.ModuleForwardTape(p, in, nIn, out, n)
		})
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return outputs, &Tape{own.New(tape, rawengine.TapeDestroy, m), len(inputs)}, nil
}

// Backward adds to the parameters' gradients and gives those of the inputs, nil where there is none.
// [collective: the groups of its layers]
func (t *Tape) Backward(gradOutputs ...*Tensor) ([]*Tensor, error) {
	return call(gradOutputs, t.inputs, func(grads **raw.Tensor, n int, out **raw.Tensor) error {
		return own.Do(t.Handle, func(p *raw.Tape) error {
			return rawengine.TapeBackward(p, grads, n, out, t.inputs)
		})
	})
}

// ClassName is such as "ColumnParallelLinear".
func (m *Module) ClassName() (string, error) { return own.Get(m.Handle, rawengine.ModuleGetClassName) }

// OutputPaths is the path of each output that the last forward could give: names, keys and positions that
// lead to it in the result, joined by dots.
func (m *Module) OutputPaths() ([]string, error) {
	return names(m.Handle, rawengine.ModuleGetOutputCount, rawengine.ModuleGetOutputPath)
}

// Module is one below this by its dotted path. It belongs to this one.
func (m *Module) Module(path string) (*Module, error) {
	p, err := own.Get(m.Handle, func(p *raw.Module) (*raw.Module, error) {
		return rawengine.ModuleFindModule(p, path)
	})
	if err != nil {
		return nil, err
	}
	return &Module{own.Borrow(p, m)}, nil
}

// Children is the names of the direct children, in order of addition.
func (m *Module) Children() ([]string, error) {
	return names(m.Handle, rawengine.ModuleGetChildCount, func(p *raw.Module, i int) (string, error) {
		_, name, err := rawengine.ModuleGetChild(p, i)
		return name, err
	})
}

func names[T any](h own.Handle[T], count func(*T) (int, error), name func(*T, int) (string, error)) ([]string,
	error) {
	n, err := own.Get(h, count)
	if err != nil {
		return nil, err
	}
	out := make([]string, n)
	for i := range out {
		if out[i], err = own.Get(h, func(p *T) (string, error) { return name(p, i) }); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// SetTraining switches between training and evaluation.
func (m *Module) SetTraining(on bool) error {
	return own.Do(m.Handle, func(p *raw.Module) error { return rawengine.ModuleSetTraining(p, flag(on)) })
}

// Initialize draws all parameters anew.
func (m *Module) Initialize(seed uint64) error {
	return own.Do(m.Handle, func(p *raw.Module) error { return rawengine.ModuleInitialize(p, seed) })
}

// MoveTo moves all parameters to a device.
func (m *Module) MoveTo(device nxd.Device) error {
	return own.Do(m.Handle, func(p *raw.Module) error { return rawengine.MoveModelToDevice(p, device) })
}

// Cast casts all parameters to a dtype, in place.
func (m *Module) Cast(dtype nxd.DType) error {
	return own.Do(m.Handle, func(p *raw.Module) error { return rawengine.ModuleCast(p, dtype) })
}

// ZeroGrad forgets the gradients of all parameters.
func (m *Module) ZeroGrad() error { return own.Do(m.Handle, rawengine.ModuleZeroGrad) }

// Parameters is all parameters of the tree, in a fixed order; tied ones once.
func (m *Module) Parameters() ([]*Parameter, error) {
	n, err := own.Get(m.Handle, rawengine.ModuleGetParameterCount)
	if err != nil {
		return nil, err
	}
	out := make([]*Parameter, n)
	for i := range out {
		err := own.Do(m.Handle, func(p *raw.Module) error {
			q, name, err := rawengine.ModuleGetParameter(p, i)
			out[i] = &Parameter{own.Borrow(q, m), name}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Parameter is one of the tree by its name from this root.
func (m *Module) Parameter(name string) (*Parameter, error) {
	p, err := own.Get(m.Handle, func(p *raw.Module) (*raw.Parameter, error) {
		return rawengine.ModuleFindParameter(p, name)
	})
	return m.parameter(p, name, err)
}

// MasterWeight is the whole initial weight of a layer made with KeepMasterWeight; it is the layer's.
func (m *Module) MasterWeight() (*Tensor, error) {
	p, err := own.Get(m.Handle, rawengine.ModuleGetMasterWeight)
	if err != nil {
		return nil, err
	}
	return &Tensor{own.Borrow(p, m)}, nil
}

// Tensor is this rank's shard; it is the parameter's.
func (p *Parameter) Tensor() (*Tensor, error) {
	t, err := own.Get(p.Handle, rawengine.ParameterGetTensor)
	if err != nil {
		return nil, err
	}
	return &Tensor{own.Borrow(t, p)}, nil
}

// GlobalShape is the shape of the whole parameter.
func (p *Parameter) GlobalShape() ([]int64, error) {
	return sizes(func(shape *int64, capacity int) (int, error) {
		return own.Get(p.Handle, func(q *raw.Parameter) (int, error) {
			return rawengine.ParameterGetGlobalShape(q, shape, capacity)
		})
	})
}

// Shard is the split dimension, or -1, and the ranges of indices in it that this rank has.
func (p *Parameter) Shard() (dim int, ranges [][2]int64, err error) {
	err = own.Do(p.Handle, func(q *raw.Parameter) error {
		d, n, err := rawengine.ParameterGetShard(q, nil, nil, 0)
		if dim = int(d); err != nil || n == 0 {
			return err
		}
		begins, ends := make([]int64, n), make([]int64, n)
		_, _, err = rawengine.ParameterGetShard(q, &begins[0], &ends[0], n)
		for i := range begins {
			ranges = append(ranges, [2]int64{begins[i], ends[i]})
		}
		return err
	})
	return dim, ranges, err
}

// SetWhole overwrites this rank's shard with its part of the whole value.
func (p *Parameter) SetFull(whole *Tensor) error {
	defer runtime.KeepAlive(whole)
	return own.Do(p.Handle, func(q *raw.Parameter) error {
		return rawengine.ParameterSetFull(q, whole.Raw())
	})
}

// Whole is the whole parameter's value. [collective: tensor-parallel group]
func (p *Parameter) GatherFull() (*Tensor, error) {
	return newTensor(own.Get(p.Handle, rawengine.ParameterGatherFull))
}

// WholeGrad is the whole gradient, or nil when there is none. [collective: tensor-parallel group]
func (p *Parameter) GatherFullGrad() (*Tensor, error) {
	return newTensor(own.Get(p.Handle, rawengine.ParameterGatherFullGrad))
}

// SetTrainable freezes or frees the parameter.
func (p *Parameter) SetTrainable(on bool) error {
	return own.Do(p.Handle, func(q *raw.Parameter) error { return rawengine.ParameterSetTrainable(q, flag(on)) })
}

// Initializer gives the initial values of a parameter of that name and whole shape: those of the elements
// from first on, in row-major order. A function of name, shape and place alone is the same on each layout.
type Initializer func(name string, shape []int64, first int64, values []float64) error

// setInitializer hands an initializer to the library, which keeps it when set succeeds; nil takes it away.
func setInitializer(f Initializer, set func(call, data, destroy uintptr) error) error {
	if f == nil {
		return set(0, 0, 0)
	}
	h := cgo.NewHandle(f)
	err := set(uintptr(unsafe.Pointer(C.nxdgo_initializer)), uintptr(h), destroy)
	if err != nil {
		h.Delete()
	}
	return err
}

// SetInitializer has all parameters that the tree has now take their initial values from f, whenever they are
// drawn; nil: from their layers' options and the seed again.
func (m *Module) SetInitializer(f Initializer) error {
	return own.Do(m.Handle, func(p *raw.Module) error {
		return setInitializer(f, func(call, data, destroy uintptr) error {
			return rawengine.ModuleSetInitializer(p, call, data, destroy)
		})
	})
}

// SetInitializer is that of Module, for one parameter.
func (p *Parameter) SetInitializer(f Initializer) error {
	return own.Do(p.Handle, func(q *raw.Parameter) error {
		return setInitializer(f, func(call, data, destroy uintptr) error {
			return rawengine.ParameterSetInitializer(q, call, data, destroy)
		})
	})
}

// SetGradHook calls f when a backward pass has added to the gradient; nil removes it.
func (p *Parameter) SetGradHook(f func(*Parameter) error) error {
	return own.Do(p.Handle, func(q *raw.Parameter) error {
		if f == nil {
			return rawengine.ParameterSetGradHook(q, 0, 0, 0)
		}
		h := cgo.NewHandle(f)
		err := rawengine.ParameterSetGradHook(q, uintptr(unsafe.Pointer(C.nxdgo_grad_hook)), uintptr(h), destroy)
		if err != nil {
			h.Delete()
		}
		return err
	})
}

// LoadReport is what a load did not match.
type LoadReport struct{ Missing, Unexpected, Shape []string }

// LoadSafetensors reads this rank's shards from a file or directory; strict: any mismatch is an error,
// and no parameter is changed. The report comes with the error.
func (m *Module) LoadSafetensors(path string, strict bool) (LoadReport, error) {
	var report LoadReport
	p, err := own.Get(m.Handle, func(p *raw.Module) (*raw.LoadReport, error) {
		return rawengine.ModuleLoadSafetensors(p, path, flag(strict))
	})
	if p == nil {
		return report, err
	}
	h := own.New(p, rawengine.LoadReportDestroy)
	defer h.Close()
	for kind, list := range []*[]string{&report.Missing, &report.Unexpected, &report.Shape} {
		of := raw.Mismatch(kind)
		found, failed := names(h,
			func(p *raw.LoadReport) (int, error) { return rawengine.LoadReportGetCount(p, of) },
			func(p *raw.LoadReport, i int) (string, error) { return rawengine.LoadReportGetName(p, of, i) })
		if *list = found; failed != nil && err == nil {
			err = failed
		}
	}
	return report, err
}

// SaveSafetensors writes the whole parameters as one file. [collective: tensor- and pipeline-parallel
// groups]
func (m *Module) SaveSafetensors(path string) error {
	return own.Do(m.Handle, func(p *raw.Module) error { return rawengine.ModuleSaveSafetensors(p, path) })
}

// Snapshot has the parameters as they are now become a file of a checkpoint. [collective: world]
func (m *Module) Snapshot(checkpoint *nxd.Checkpoint, name string) error {
	defer runtime.KeepAlive(checkpoint)
	return own.Do(m.Handle, func(p *raw.Module) error {
		return rawengine.ModuleSnapshot(p, checkpoint.Raw(), name)
	})
}

// AddToState adds the parameters to a training state, as the file name.safetensors.
func (m *Module) AddToState(state *nxd.TrainingState, name string) error {
	defer runtime.KeepAlive(state)
	state.Keep(m)
	return own.Do(m.Handle, func(p *raw.Module) error {
		return rawengine.TrainingStateAddModule(state.Raw(), name, p)
	})
}

// Checkpoint recomputes the activations of modules, by paths or class names, in their backward pass; no
// names: all transformer layers of a built-in model.
func (m *Module) Checkpoint(on bool, names ...string) error {
	return own.Do(m.Handle, func(p *raw.Module) error {
		return rawengine.ApplyCheckpoint(p, names, len(names), flag(on))
	})
}

// PadHook is given a module that Pad visits, its heads, and what they are padded to.
type PadHook func(m *Module, heads, padded int64) error

// Pad has column- and row-parallel layers, those below modules of some classes or all, share whole heads, as
// if heads of zeros followed up to a multiple of tpDegree; hook may be nil.
// [collective: tensor-parallel group]
func (m *Module) Pad(tpDegree int, heads int64, hook PadHook, wrappedClasses ...string) error {
	return own.Do(m.Handle, func(p *raw.Module) error {
		var call, data uintptr
		if hook != nil {
			h := cgo.NewHandle(hook)
			defer h.Delete()
			call, data = uintptr(unsafe.Pointer(C.nxdgo_pad_hook)), uintptr(h)
		}
		return rawengine.PadModel(p, raw.Int32(tpDegree), heads, wrappedClasses, len(wrappedClasses), call, data)
	})
}
