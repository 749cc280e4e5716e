package nxd

import (
	"runtime"
	"strings"
	"unsafe"

	"libnxd.org/nxd/internal/own"
	"libnxd.org/nxd/raw"
)

// Options of layers over arrays, see the C structs. StructSize is set by the calls; without a Workspace
// the library takes memory of its own.
type (
	ColumnLinearOptions           = raw.ColumnLinearOptions
	RowLinearOptions              = raw.RowLinearOptions
	VocabParallelEmbeddingOptions = raw.VocabParallelEmbeddingOptions
	ParallelCrossEntropyOptions   = raw.ParallelCrossEntropyOptions
	NormalizationOptions          = raw.NormalizationOptions
	DropoutOptions                = raw.DropoutOptions
	LinearCrossEntropyOptions     = raw.LinearCrossEntropyOptions
	ShardOptions                  = raw.ShardOptions
	RegionMapping                 = raw.RegionMapping
	Init                          = raw.Init
)

// The mappings of a region, and the distributions of initial weights.
const (
	CopyTo          = raw.RegionMappingCopyTo
	ReduceFrom      = raw.RegionMappingReduceFrom
	ScatterTo       = raw.RegionMappingScatterTo
	GatherFrom      = raw.RegionMappingGatherFrom
	GatherForShards = raw.RegionMappingGatherForShards
	ReduceScatterTo = raw.RegionMappingReduceScatterTo

	InitNormal         = raw.InitNormal
	InitUniform        = raw.InitUniform
	InitConstant       = raw.InitConstant
	InitKaimingUniform = raw.InitKaimingUniform
)

// LayerArray is memory of the program's that a layer reads or writes, with sizes, and how many elements
// those of a dimension are apart. Shape nil: one dimension; Strides nil: C order. One without memory is
// left out, such as a bias, or a gradient that is not wanted.
type LayerArray struct {
	Memory         Memory
	Shape, Strides []int64
}

// In is memory in C order.
func In(m Memory, shape ...int64) LayerArray {
	if shape == nil {
		shape = []int64{}
	}
	return LayerArray{Memory: m, Shape: shape}
}

func (a LayerArray) describe(s *raw.Scratch) (*raw.DLTensor, *Error) {
	if a.Memory == nil || a.Strides == nil {
		return describe(s, a.Memory, a.Shape)
	}
	if len(a.Strides) != len(a.Shape) {
		return nil, raw.Invalid("Strides: expected one for each of %v, got %v", a.Shape, a.Strides)
	}
	b := a.Memory.buffer()
	last, empty := int64(0), false
	for i, size := range a.Shape {
		if size < 0 || a.Strides[i] < 0 {
			return nil, raw.Invalid("Shape, Strides: expected 0 or more, got %v and %v", a.Shape, a.Strides)
		}
		last += (size - 1) * a.Strides[i]
		empty = empty || size == 0
	}
	if !empty && last >= int64(b.Len()) {
		return nil, raw.Invalid("Strides: expected more than %d elements, got %d", last, b.Len())
	}
	t := (*raw.DLTensor)(s.Alloc(unsafe.Sizeof(raw.DLTensor{})))
	*t = raw.DLTensor{Data: b.ptr, Device: raw.DLDevice{DeviceType: deviceTypeCPU}, Ndim: int32(len(a.Shape)),
		DType: dlpackType(b.dtype), Shape: raw.Copied(s, a.Shape), Strides: raw.Copied(s, a.Strides)}
	return t, nil
}

// call describes arrays and makes a call with them. A collective one is rejected on the peers, who are in
// it already or about to be, where an array is bad.
func call(c *Context, collective bool, arrays []LayerArray, f func(*raw.Context, []*raw.DLTensor) error) error {
	var scratch raw.Scratch
	defer scratch.Free()
	tensors := make([]*raw.DLTensor, len(arrays))
	for i, a := range arrays {
		t, bad := a.describe(&scratch)
		if bad != nil && collective {
			return rejectLayer(c, bad)
		}
		if bad != nil {
			return bad
		}
		tensors[i] = t
	}
	err := own.Do(c.Handle, func(p *raw.Context) error { return f(p, tensors) })
	runtime.KeepAlive(arrays)
	return err
}

// perWeight has one array per weight of a call; one that may be left out may be nil.
type perWeight struct {
	name     string
	arrays   []LayerArray
	optional bool
}

// callLists is call with lists of count arrays each behind the single ones.
func callLists(c *Context, arrays []LayerArray, count int, lists []perWeight,
	f func(*raw.Context, []*raw.DLTensor, []**raw.DLTensor) error) error {
	single := len(arrays)
	for _, l := range lists {
		if len(l.arrays) != count && !(l.optional && len(l.arrays) == 0) {
			return rejectLayer(c, raw.Invalid("%s: expected one for each of %d weights, got %d", l.name, count,
				len(l.arrays)))
		}
		arrays = append(arrays, l.arrays...)
	}
	return call(c, true, arrays, func(p *raw.Context, t []*raw.DLTensor) error {
		var scratch raw.Scratch
		defer scratch.Free()
		pointers, next := make([]**raw.DLTensor, len(lists)), single
		for i, l := range lists {
			pointers[i] = raw.Copied(&scratch, t[next:next+len(l.arrays)])
			next += len(l.arrays)
		}
		return f(p, t, pointers)
	})
}

// rejectLayer tells the tensor-parallel peers that this rank cannot make a call, and gives the reason back.
func rejectLayer(c *Context, why *Error) error {
	group, err := c.ParallelGroup(AxisTensor)
	if err != nil {
		return err
	}
	return reject(c, group, why)
}

// ColumnLinearForward: y = x weight^T + bias, of this rank's output features. [collective: the tensor-
// parallel group]
func ColumnLinearForward(c *Context, x, weight, bias LayerArray, o ColumnLinearOptions, y LayerArray) error {
	o = o.Sized()
	return call(c, true, []LayerArray{x, weight, bias, y}, func(p *raw.Context, t []*raw.DLTensor) error {
		return raw.ColumnLinearForward(p, t[0], t[1], t[2], &o, t[3])
	})
}

// ColumnLinearBackward: gradients of ColumnLinearForward; that of x is summed over ranks. [collective: the
// tensor-parallel group]
func ColumnLinearBackward(c *Context, x, weight, gradY LayerArray, o ColumnLinearOptions, gradX, gradWeight, gradBias LayerArray) error {
	o = o.Sized()
	return call(c, true, []LayerArray{x, weight, gradY, gradX, gradWeight, gradBias}, func(p *raw.Context, t []*raw.DLTensor) error {
		return raw.ColumnLinearBackward(p, t[0], t[1], t[2], &o, t[3], t[4], t[5])
	})
}

// ColumnLinearsForward: ColumnLinearForward of one x by several weights, such as those of query, key and
// value; under sequence parallelism x is gathered once. biases may be nil. [collective: the tensor-parallel
// group]
func ColumnLinearsForward(c *Context, x LayerArray, weights, biases []LayerArray, o ColumnLinearOptions,
	ys []LayerArray) error {
	o = o.Sized()
	return callLists(c, []LayerArray{x}, len(weights), []perWeight{{"weights", weights, false}, {"biases", biases, true},
		{"ys", ys, false}}, func(p *raw.Context, t []*raw.DLTensor, l []**raw.DLTensor) error {
		return raw.ColumnLinearsForward(p, t[0], l[0], l[1], len(weights), &o, l[2])
	})
}

// ColumnLinearsBackward: gradients of ColumnLinearsForward; that of x is one sum over weights and ranks.
// gradWeights and gradBiases may be nil. [collective: the tensor-parallel group]
func ColumnLinearsBackward(c *Context, x LayerArray, weights, gradYs []LayerArray, o ColumnLinearOptions,
	gradX LayerArray, gradWeights, gradBiases []LayerArray) error {
	o = o.Sized()
	return callLists(c, []LayerArray{x, gradX}, len(weights), []perWeight{{"weights", weights, false},
		{"gradYs", gradYs, false}, {"gradWeights", gradWeights, true}, {"gradBiases", gradBiases, true}},
		func(p *raw.Context, t []*raw.DLTensor, l []**raw.DLTensor) error {
			return raw.ColumnLinearsBackward(p, t[0], l[0], l[1], len(weights), &o, t[1], l[2], l[3])
		})
}

// RowLinearForward: y = x weight^T + bias, of this rank's input features, summed over ranks. [collective:
// the tensor-parallel group]
func RowLinearForward(c *Context, x, weight, bias LayerArray, o RowLinearOptions, y LayerArray) error {
	o = o.Sized()
	return call(c, true, []LayerArray{x, weight, bias, y}, func(p *raw.Context, t []*raw.DLTensor) error {
		return raw.RowLinearForward(p, t[0], t[1], t[2], &o, t[3])
	})
}

// RowLinearBackward: gradients of RowLinearForward. [collective: the tensor-parallel group]
func RowLinearBackward(c *Context, x, weight, gradY LayerArray, o RowLinearOptions, gradX, gradWeight, gradBias LayerArray) error {
	o = o.Sized()
	return call(c, true, []LayerArray{x, weight, gradY, gradX, gradWeight, gradBias}, func(p *raw.Context, t []*raw.DLTensor) error {
		return raw.RowLinearBackward(p, t[0], t[1], t[2], &o, t[3], t[4], t[5])
	})
}

// VocabParallelEmbeddingForward: rows of a table by their ids; each rank has some of the rows. [collective:
// the tensor-parallel group]
func VocabParallelEmbeddingForward(c *Context, ids, weight LayerArray, o VocabParallelEmbeddingOptions, y LayerArray) error {
	o = o.Sized()
	return call(c, true, []LayerArray{ids, weight, y}, func(p *raw.Context, t []*raw.DLTensor) error {
		return raw.VocabParallelEmbeddingForward(p, t[0], t[1], &o, t[2])
	})
}

// VocabParallelEmbeddingBackward: the gradient of VocabParallelEmbeddingForward. [collective: the tensor-
// parallel group]
func VocabParallelEmbeddingBackward(c *Context, ids, gradY LayerArray, o VocabParallelEmbeddingOptions, gradWeight LayerArray) error {
	o = o.Sized()
	return call(c, true, []LayerArray{ids, gradY, gradWeight}, func(p *raw.Context, t []*raw.DLTensor) error {
		return raw.VocabParallelEmbeddingBackward(p, t[0], t[1], &o, t[2])
	})
}

// ParallelCrossEntropyForward: the loss of logits whose vocabulary is split over ranks. [collective: the
// tensor-parallel group]
func ParallelCrossEntropyForward(c *Context, logits, labels LayerArray, o ParallelCrossEntropyOptions, statistics, loss LayerArray) error {
	o = o.Sized()
	return call(c, true, []LayerArray{logits, labels, statistics, loss}, func(p *raw.Context, t []*raw.DLTensor) error {
		return raw.ParallelCrossEntropyForward(p, t[0], t[1], &o, t[2], t[3])
	})
}

// ParallelCrossEntropyBackward: the gradient of ParallelCrossEntropyForward, which may take the place of the
// logits. [collective: the tensor-parallel group]
func ParallelCrossEntropyBackward(c *Context, logits, labels, statistics, gradLoss LayerArray, o ParallelCrossEntropyOptions, gradLogits LayerArray) error {
	o = o.Sized()
	return call(c, true, []LayerArray{logits, labels, statistics, gradLoss, gradLogits}, func(p *raw.Context, t []*raw.DLTensor) error {
		return raw.ParallelCrossEntropyBackward(p, t[0], t[1], t[2], t[3], &o, t[4])
	})
}

// RMSNormForward: a root-mean-square norm over the last dimension. [collective: the tensor-parallel group]
func RMSNormForward(c *Context, x, weight LayerArray, o NormalizationOptions, y, statistics LayerArray) error {
	o = o.Sized()
	return call(c, true, []LayerArray{x, weight, y, statistics}, func(p *raw.Context, t []*raw.DLTensor) error {
		return raw.RMSNormForward(p, t[0], t[1], &o, t[2], t[3])
	})
}

// RMSNormBackward: gradients of RMSNormForward. [collective: the tensor-parallel group]
func RMSNormBackward(c *Context, x, weight, statistics, gradY LayerArray, o NormalizationOptions, gradX, gradWeight LayerArray) error {
	o = o.Sized()
	return call(c, true, []LayerArray{x, weight, statistics, gradY, gradX, gradWeight}, func(p *raw.Context, t []*raw.DLTensor) error {
		return raw.RMSNormBackward(p, t[0], t[1], t[2], t[3], &o, t[4], t[5])
	})
}

// LayerNormForward: a layer norm over the last dimension. [collective: the tensor-parallel group]
func LayerNormForward(c *Context, x, weight, bias LayerArray, o NormalizationOptions, y, statistics LayerArray) error {
	o = o.Sized()
	return call(c, true, []LayerArray{x, weight, bias, y, statistics}, func(p *raw.Context, t []*raw.DLTensor) error {
		return raw.LayerNormForward(p, t[0], t[1], t[2], &o, t[3], t[4])
	})
}

// LayerNormBackward: gradients of LayerNormForward. [collective: the tensor-parallel group]
func LayerNormBackward(c *Context, x, weight, statistics, gradY LayerArray, o NormalizationOptions, gradX, gradWeight, gradBias LayerArray) error {
	o = o.Sized()
	return call(c, true, []LayerArray{x, weight, statistics, gradY, gradX, gradWeight, gradBias}, func(p *raw.Context, t []*raw.DLTensor) error {
		return raw.LayerNormBackward(p, t[0], t[1], t[2], t[3], &o, t[4], t[5], t[6])
	})
}

// LinearCrossEntropyForward: the loss of the logits x weight^T + bias, which are never whole. [collective:
// the tensor-parallel group]
func LinearCrossEntropyForward(c *Context, x, weight, bias, labels LayerArray, o LinearCrossEntropyOptions, statistics, loss LayerArray) error {
	o = o.Sized()
	return call(c, true, []LayerArray{x, weight, bias, labels, statistics, loss}, func(p *raw.Context, t []*raw.DLTensor) error {
		return raw.LinearCrossEntropyForward(p, t[0], t[1], t[2], t[3], &o, t[4], t[5])
	})
}

// LinearCrossEntropyBackward: gradients of LinearCrossEntropyForward. [collective: the tensor-parallel
// group]
func LinearCrossEntropyBackward(c *Context, x, weight, bias, labels, statistics, gradLoss LayerArray, o LinearCrossEntropyOptions, gradX, gradWeight, gradBias LayerArray) error {
	o = o.Sized()
	return call(c, true, []LayerArray{x, weight, bias, labels, statistics, gradLoss, gradX, gradWeight, gradBias}, func(p *raw.Context, t []*raw.DLTensor) error {
		return raw.LinearCrossEntropyBackward(p, t[0], t[1], t[2], t[3], t[4], t[5], &o, t[6], t[7], t[8])
	})
}

// DropoutForward: dropout whose bits no number of ranks changes; name is the layer's. [collective: the
// tensor-parallel group]
func DropoutForward(c *Context, name string, x LayerArray, o DropoutOptions, y LayerArray) error {
	o = o.Sized()
	if strings.ContainsRune(name, 0) {
		return rejectLayer(c, raw.Invalid("name: expected one without NUL, got %q", name))
	}
	return call(c, true, []LayerArray{x, y}, func(p *raw.Context, t []*raw.DLTensor) error {
		return raw.DropoutForward(p, name, t[0], &o, t[1])
	})
}

// DropoutBackward: the gradient of DropoutForward, by the same bits. [collective: the tensor-parallel group]
func DropoutBackward(c *Context, name string, gradY LayerArray, o DropoutOptions, gradX LayerArray) error {
	o = o.Sized()
	if strings.ContainsRune(name, 0) {
		return rejectLayer(c, raw.Invalid("name: expected one without NUL, got %q", name))
	}
	return call(c, true, []LayerArray{gradY, gradX}, func(p *raw.Context, t []*raw.DLTensor) error {
		return raw.DropoutBackward(p, name, t[0], &o, t[1])
	})
}

// RegionMappingForward: moves x into or out of a region. [collective: the tensor-parallel group]
func RegionMappingForward(c *Context, mapping RegionMapping, dim int, x, y LayerArray) error {
	return call(c, true, []LayerArray{x, y}, func(p *raw.Context, t []*raw.DLTensor) error {
		return raw.RegionMappingForward(p, mapping, raw.Int32(dim), t[0], t[1])
	})
}

// RegionMappingBackward: the gradient of RegionMappingForward. [collective: the tensor-parallel group]
func RegionMappingBackward(c *Context, mapping RegionMapping, dim int, gradY, gradX LayerArray) error {
	return call(c, true, []LayerArray{gradY, gradX}, func(p *raw.Context, t []*raw.DLTensor) error {
		return raw.RegionMappingBackward(p, mapping, raw.Int32(dim), t[0], t[1])
	})
}

// ShardInitialize fills a shard with the initial values that the undivided weight of that name has.
func ShardInitialize(c *Context, name string, init Init, a, b float64, o ShardOptions, shard LayerArray) error {
	o = o.Sized()
	return call(c, false, []LayerArray{shard}, func(p *raw.Context, t []*raw.DLTensor) error {
		return raw.ShardInitialize(p, name, init, a, b, &o, t[0])
	})
}

// ShardSetFull copies this rank's part of a whole weight.
func ShardSetFull(c *Context, full LayerArray, o ShardOptions, shard LayerArray) error {
	o = o.Sized()
	return call(c, false, []LayerArray{full, shard}, func(p *raw.Context, t []*raw.DLTensor) error {
		return raw.ShardSetFull(p, t[0], &o, t[1])
	})
}

// ShardGatherFull puts a whole weight together on every rank. [collective: the tensor-parallel group]
func ShardGatherFull(c *Context, shard LayerArray, o ShardOptions, full LayerArray) error {
	o = o.Sized()
	return call(c, true, []LayerArray{shard, full}, func(p *raw.Context, t []*raw.DLTensor) error {
		return raw.ShardGatherFull(p, t[0], &o, t[1])
	})
}

// ShardLoadSafetensors reads this rank's part of a tensor, and no other bytes of it.
func ShardLoadSafetensors(c *Context, path, name string, o ShardOptions, shard LayerArray) error {
	o = o.Sized()
	return call(c, false, []LayerArray{shard}, func(p *raw.Context, t []*raw.DLTensor) error {
		return raw.ShardLoadSafetensors(p, path, name, &o, t[0])
	})
}
