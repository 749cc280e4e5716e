package nxd

import (
	"runtime"
	"strings"
	"unsafe"

	"libnxd.org/nxd/internal/own"
	"libnxd.org/nxd/raw"
)

// DDP reduces the gradients of data-parallel ranks, in buckets, while the backward pass goes on.
type DDP struct {
	own.Handle[raw.DDP]
	bound *bound // nil over a module
}

// bound is the memory of each parameter, and how its elements lie.
type bound struct {
	values, grads []any
	orders        []order
}

type order struct{ shape, strides []int64 }

// DDPOptions are the same on all ranks. StructSize is set by the calls.
type DDPOptions = raw.DDPOptions

// FinishOptions say how gradients are completed. StructSize is set by the calls.
type FinishOptions = raw.FinishOptions

// Parameter is values and gradients in the program's own arrays. The library updates the values and
// reduces the gradients in place; the program adds gradients up over backward passes.
type Parameter struct {
	Name          string
	Values, Grads Memory
	Shape         []int64 // nil: one dimension
	// How many elements those of a dimension are apart, in values and gradients, where the dimensions lie
	// in another order than C's, such as channels last; nil: C order.
	Strides []int64
}

// describe puts a DLTensor into C memory, over the array's own; nil for nil.
func describe(s *raw.Scratch, m Memory, shape []int64) (*raw.DLTensor, *Error) {
	if m == nil {
		return nil, nil
	}
	b := m.buffer()
	if shape == nil {
		shape = b.shape
	}
	if got := (Buffer{shape: shape}).Len(); got != b.Len() {
		return nil, raw.Invalid("Shape: expected a product of %d, got %v", b.Len(), shape)
	}
	t := (*raw.DLTensor)(s.Alloc(unsafe.Sizeof(raw.DLTensor{})))
	*t = raw.DLTensor{Data: b.ptr, Device: raw.DLDevice{DeviceType: deviceTypeCPU}, Ndim: int32(len(shape)),
		DType: dlpackType(b.dtype), Shape: raw.Copied(s, shape)}
	return t, nil
}

// DLPack's numbers for the CPU, and for signed and unsigned integers, floats, bfloat and bool.
const (
	deviceTypeCPU                              = 1
	codeInt, codeUint, codeFloat, codeBFloat16 = 0, 1, 2, 4
	codeBool                                   = 6
)

// ElementSize is the bytes of an element.
func ElementSize(t DType) int { return int(dlpackType(t).Bits) / 8 }

func dlpackType(t DType) raw.DLDataType {
	switch t {
	case F32:
		return raw.DLDataType{Code: codeFloat, Bits: 32, Lanes: 1}
	case F64:
		return raw.DLDataType{Code: codeFloat, Bits: 64, Lanes: 1}
	case BF16:
		return raw.DLDataType{Code: codeBFloat16, Bits: 16, Lanes: 1}
	case F16:
		return raw.DLDataType{Code: codeFloat, Bits: 16, Lanes: 1}
	case I32:
		return raw.DLDataType{Code: codeInt, Bits: 32, Lanes: 1}
	case I64:
		return raw.DLDataType{Code: codeInt, Bits: 64, Lanes: 1}
	case U8:
		return raw.DLDataType{Code: codeUint, Bits: 8, Lanes: 1}
	case I8:
		return raw.DLDataType{Code: codeInt, Bits: 8, Lanes: 1}
	case I16:
		return raw.DLDataType{Code: codeInt, Bits: 16, Lanes: 1}
	default:
		return raw.DLDataType{Code: codeBool, Bits: 8, Lanes: 1}
	}
}

// DLPackType is DLPack's description of a dtype, for package engine.
func DLPackType(t DType) raw.DLDataType { return dlpackType(t) }

func dtypeOf(t raw.DLDataType) DType {
	for d := F32; d <= Bool; d++ {
		if dlpackType(d) == t {
			return d
		}
	}
	return raw.DTypeInvalid
}

// NewDDP makes data parallelism over arrays. group nil: the data-parallel group, or the world where
// model parallelism is not initialised. The arrays stay alive as long as the DDP and its optimizers.
// [collective: the group]
func NewDDP(c *Context, group *Group, parameters []Parameter, o DDPOptions) (*DDP, error) {
	var scratch raw.Scratch
	defer scratch.Free()
	names, values, grads, bad := describeAll(&scratch, parameters)
	if bad != nil {
		return nil, reject(c, group, bad)
	}
	var memory bound
	for _, p := range parameters {
		memory.values, memory.grads = append(memory.values, kept(p.Values)), append(memory.grads, kept(p.Grads))
		memory.orders = append(memory.orders, order{copied(p.Shape), copied(p.Strides)})
	}
	v, g := raw.Copied(&scratch, values), raw.Copied(&scratch, grads)
	o = o.Sized()
	var inGroup *raw.Group
	if group != nil {
		given, err := group.Given("group")
		if err != nil {
			return nil, err
		}
		inGroup = given
	}
	p, err := own.Get(c.Handle, func(p *raw.Context) (*raw.DDP, error) {
		defer runtime.KeepAlive(group)
		return raw.DDPCreateBuffers(p, inGroup, names, v, g, len(parameters), &o)
	})
	if err != nil {
		return nil, err
	}
	return &DDP{own.New(p, raw.DDPDestroy, c, group, &memory), &memory}, nil
}

func copied[T any](s []T) []T {
	if s == nil {
		return nil
	}
	return append([]T{}, s...)
}

// kept is what keeps memory where it is; nil for none.
func kept(m Memory) any {
	if m == nil {
		return nil
	}
	return m.keep()
}

// Rebind says that the memory of a parameter has moved, as where a framework makes new gradients: at any
// time before the parameter is marked in a step. Memory nil: as before. Without sizes it has the parameter's;
// its elements lie as the parameter's do.
func (d *DDP) Rebind(index int, values, grads Memory, shape ...int64) error {
	var scratch raw.Scratch
	defer scratch.Free()
	var as order
	if d.bound != nil && index >= 0 && index < len(d.bound.orders) {
		as = d.bound.orders[index]
	}
	if shape != nil {
		as.shape = shape
	}
	v, bad := LayerArray{values, as.shape, as.strides}.describe(&scratch)
	if bad != nil {
		return bad
	}
	g, bad := LayerArray{grads, as.shape, as.strides}.describe(&scratch)
	if bad != nil {
		return bad
	}
	err := own.Do(d.Handle, func(p *raw.DDP) error { return raw.DDPRebind(p, index, v, g) })
	if err == nil && values != nil {
		d.bound.values[index] = values.keep()
	}
	if err == nil && grads != nil {
		d.bound.grads[index] = grads.keep()
	}
	return err
}

func describeAll(s *raw.Scratch, parameters []Parameter) (names []string, values, grads []*raw.DLTensor,
	err *Error) {
	for i, p := range parameters {
		if strings.ContainsRune(p.Name, 0) {
			return nil, nil, nil, raw.Invalid("parameter %d: expected a name without NUL, got %q", i, p.Name)
		}
		v, err := LayerArray{p.Values, p.Shape, p.Strides}.describe(s)
		if err != nil {
			return nil, nil, nil, raw.Invalid("parameter %d (%q): %s", i, p.Name, err.Message)
		}
		g, err := LayerArray{p.Grads, p.Shape, p.Strides}.describe(s)
		if err != nil {
			return nil, nil, nil, raw.Invalid("gradient %d (%q): %s", i, p.Name, err.Message)
		}
		names, values, grads = append(names, p.Name), append(values, v), append(grads, g)
	}
	return names, values, grads, nil
}

// reject tells the peers, who make an object, that this rank cannot, and gives the reason back.
func reject(c *Context, group *Group, why *Error) error {
	if group == nil {
		in, err := c.defaultGroup()
		if err != nil {
			return why
		}
		group = in
	}
	return group.Reject("", why)
}

// defaultGroup is the data-parallel group, or the world where model parallelism is not initialised.
func (c *Context) defaultGroup() (*Group, error) {
	if c.ModelParallelInitialized() {
		return c.ParallelGroup(AxisData)
	}
	return c.World()
}

// Count is the number of parameters.
func (d *DDP) Count() (int, error) { return own.Get(d.Handle, raw.DDPGetCount) }

// Name is the name of a parameter.
func (d *DDP) Name(index int) (string, error) {
	return own.Get(d.Handle, func(p *raw.DDP) (string, error) { return raw.DDPGetName(p, index) })
}

// Placement is how the ranks of the tensor-parallel group hold a parameter.
type Placement = raw.Placement

// Placed is the Placement of one parameter. Dim is the dimension that ranks have parts of, where it is
// Sharded; Tied: another pipeline stage has the parameter too, and counts it in norms.
type Placed struct {
	Placement Placement
	Dim       int
	Tied      bool
}

// Placements of parameters.
const (
	Sharded     = raw.PlacementSharded
	Replicated  = raw.PlacementReplicated
	PartialGrad = raw.PlacementPartialGrad
)

// SetPlacements says how the parameters are parts of a model, one for each, so that norms, clipping and
// saved states are those of the undivided model. [collective: tensor-, pipeline- and data-parallel
// groups]
func (d *DDP) SetPlacements(placed ...Placed) error {
	placements := make([]Placement, len(placed))
	dims, tied := make([]int32, len(placed)), make([]int32, len(placed))
	for i, p := range placed {
		placements[i], dims[i] = p.Placement, raw.Int32(p.Dim)
		if p.Tied {
			tied[i] = 1
		}
	}
	var scratch raw.Scratch
	defer scratch.Free()
	a, b, c := raw.Copied(&scratch, placements), raw.Copied(&scratch, dims), raw.Copied(&scratch, tied)
	return own.Do(d.Handle, func(p *raw.DDP) error { return raw.DDPSetPlacements(p, a, b, c, len(placed)) })
}

// ShardedParameter is how tensor-parallel ranks hold one parameter, where they may have other parts
// than equal consecutive ones. Shard has the options that its array is filled by; nil: each rank has
// the whole parameter. PartialGrad: gradients are summed over the ranks that hold the same elements.
// Tied: another pipeline stage has the parameter too, and counts it in norms.
type ShardedParameter struct {
	Shard       *ShardOptions
	PartialGrad bool
	Tied        bool
}

// SetShards is SetPlacements for padded vocabularies, fused weights and heads that several ranks
// share. [collective: tensor-, pipeline- and data-parallel groups]
func (d *DDP) SetShards(parameters ...ShardedParameter) error {
	var scratch raw.Scratch
	defer scratch.Free()
	shards := make([]*ShardOptions, len(parameters))
	partial, tied := make([]int32, len(parameters)), make([]int32, len(parameters))
	for i, p := range parameters {
		if p.Shard != nil {
			shards[i] = raw.Copied(&scratch, []ShardOptions{p.Shard.Sized()})
		}
		partial[i], tied[i] = flag(p.PartialGrad), flag(p.Tied)
	}
	a, b, c := raw.Copied(&scratch, shards), raw.Copied(&scratch, partial), raw.Copied(&scratch, tied)
	return own.Do(d.Handle, func(p *raw.DDP) error { return raw.DDPSetShards(p, a, b, c, len(parameters)) })
}

// MarkReady says that a gradient is complete for this step, so that its bucket may travel. It is never
// needed: gradients not marked are taken at the step. [collective: the group]
func (d *DDP) MarkReady(index int) error {
	return own.Do(d.Handle, func(p *raw.DDP) error { return raw.DDPMarkReady(p, index) })
}

// MarkUnused says that a parameter took no part in this step on this rank. [collective: the group]
func (d *DDP) MarkUnused(index int) error {
	return own.Do(d.Handle, func(p *raw.DDP) error { return raw.DDPMarkUnused(p, index) })
}

// SetSync lets gradients add up (false) or be reduced during the next backward passes (true).
func (d *DDP) SetSync(sync bool) error {
	return own.Do(d.Handle, func(p *raw.DDP) error { return raw.DDPSetSync(p, flag(sync)) })
}

// BufferBytes is what the ddp holds on this rank beside parameters and gradients.
func (d *DDP) BufferBytes() (uint64, error) { return own.Get(d.Handle, raw.DDPGetBufferBytes) }

// MarkReloaded says that the arrays hold the values of one step again, after a step that updated
// some of their elements only.
func (d *DDP) MarkReloaded() error { return own.Do(d.Handle, raw.DDPMarkReloaded) }

// Finish completes the gradients, for ZeroStage 0, and gives their norm before clipping.
// [collective: tensor-, pipeline- and data-parallel groups]
func (d *DDP) Finish(o FinishOptions) (norm float64, err error) {
	o = o.Sized()
	return own.Get(d.Handle, func(p *raw.DDP) (float64, error) { return raw.DDPFinish(p, &o) })
}
