package engine

import (
	"libnxd.org/nxd"
	"libnxd.org/nxd/internal/own"
	"libnxd.org/nxd/raw"
	"libnxd.org/nxd/rawengine"
)

// Options of layers. Their names are arguments of the functions; Name and StructSize are set by these.
type (
	LinearOptions       = raw.LinearOptions
	EmbeddingOptions    = raw.EmbeddingOptions
	NormOptions         = raw.NormOptions
	RoPEOptions         = raw.RoPEOptions
	AttentionOptions    = raw.AttentionOptions
	MLPOptions          = raw.MLPOptions
	CrossEntropyOptions = raw.CrossEntropyOptions
)

// Toggles, initialisers, rotary scalings, activations and reductions of losses.
const (
	Default = raw.ToggleDefault
	On      = raw.ToggleOn
	Off     = raw.ToggleOff

	InitDefault        = raw.InitDefault
	InitNormal         = raw.InitNormal
	InitUniform        = raw.InitUniform
	InitConstant       = raw.InitConstant
	InitKaimingUniform = raw.InitKaimingUniform

	RoPEDefault = raw.RoPEDefault
	RoPELinear  = raw.RoPELinear
	RoPEDynamic = raw.RoPEDynamic
	RoPEYarn    = raw.RoPEYarn
	RoPELlama3  = raw.RoPELlama3

	SiLU     = raw.ActivationSiLU
	GELU     = raw.ActivationGELU
	GELUTanh = raw.ActivationGELUTanh
	ReLU     = raw.ActivationReLU

	Mean = raw.ReductionMean
	Sum  = raw.ReductionSum
	None = raw.ReductionNone
)

// layer makes a layer whose options carry a name, in C memory for the call.
func layer(c *nxd.Context, name string, create func(p *raw.Context, name *byte) (*raw.Module, error)) (*Module,
	error) {
	var scratch raw.Scratch
	defer scratch.Free()
	n, err := scratch.String("name", name)
	if err != nil {
		return nil, err
	}
	return newModule(c, func(p *raw.Context) (*raw.Module, error) { return create(p, n) })
}

// NewEmbedding is a table split over the tensor-parallel ranks.
func NewEmbedding(c *nxd.Context, name string, rows, dim int64, o EmbeddingOptions) (*Module, error) {
	return layer(c, name, func(p *raw.Context, n *byte) (*raw.Module, error) {
		o := o.Sized()
		o.Name = n
		return rawengine.LayerCreateParallelEmbedding(p, rows, dim, &o)
	})
}

// NewColumnLinear is a linear layer whose output features are split over the tensor-parallel ranks.
func NewColumnLinear(c *nxd.Context, name string, in, out int64, o LinearOptions) (*Module, error) {
	return layer(c, name, func(p *raw.Context, n *byte) (*raw.Module, error) {
		o := o.Sized()
		o.Name = n
		return rawengine.LayerCreateColumnParallelLinear(p, in, out, &o)
	})
}

// NewRowLinear is a linear layer whose input features are split over the tensor-parallel ranks.
func NewRowLinear(c *nxd.Context, name string, in, out int64, o LinearOptions) (*Module, error) {
	return layer(c, name, func(p *raw.Context, n *byte) (*raw.Module, error) {
		o := o.Sized()
		o.Name = n
		return rawengine.LayerCreateRowParallelLinear(p, in, out, &o)
	})
}

// NewLayerNorm normalises over the last dimension.
func NewLayerNorm(c *nxd.Context, name string, size int64, o NormOptions) (*Module, error) {
	return layer(c, name, func(p *raw.Context, n *byte) (*raw.Module, error) {
		o := o.Sized()
		o.Name = n
		return rawengine.LayerCreateLayerNorm(p, size, &o)
	})
}

// NewRMSNorm normalises by the root mean square over the last dimension.
func NewRMSNorm(c *nxd.Context, name string, size int64, o NormOptions) (*Module, error) {
	return layer(c, name, func(p *raw.Context, n *byte) (*raw.Module, error) {
		o := o.Sized()
		o.Name = n
		return rawengine.LayerCreateRMSNorm(p, size, &o)
	})
}

// NewRotaryEmbedding turns query or key heads by their position.
func NewRotaryEmbedding(c *nxd.Context, headDim int64, o RoPEOptions) (*Module, error) {
	o = o.Sized()
	return newModule(c, func(p *raw.Context) (*raw.Module, error) {
		return rawengine.LayerCreateRotaryEmbedding(p, headDim, &o)
	})
}

// NewAttention is self-attention with heads split over the tensor-parallel ranks; rope nil: no rotary
// embedding.
func NewAttention(c *nxd.Context, name string, hidden, heads int64, o AttentionOptions, rope *RoPEOptions) (
	*Module, error) {
	var scratch raw.Scratch
	defer scratch.Free()
	return layer(c, name, func(p *raw.Context, n *byte) (*raw.Module, error) {
		o := o.Sized()
		o.Name, o.RoPE = n, nil
		if rope != nil {
			o.RoPE = raw.Copied(&scratch, []raw.RoPEOptions{rope.Sized()})
		}
		return rawengine.LayerCreateAttention(p, hidden, heads, &o)
	})
}

// NewGatedMLP is down(activation(gate(x)) * up(x)), split over the tensor-parallel ranks.
func NewGatedMLP(c *nxd.Context, name string, hidden, intermediate int64, o MLPOptions) (*Module, error) {
	return layer(c, name, func(p *raw.Context, n *byte) (*raw.Module, error) {
		o := o.Sized()
		o.Name = n
		return rawengine.LayerCreateGatedMLP(p, hidden, intermediate, &o)
	})
}

// NewDropout drops by the seed, the site's name, the element, the step and the microbatch. shardDim is
// the dimension that is split over the tensor-parallel ranks, or -1.
func NewDropout(c *nxd.Context, name string, probability float64, shardDim int) (*Module, error) {
	return newModule(c, func(p *raw.Context) (*raw.Module, error) {
		return rawengine.LayerCreateDropout(p, probability, name, int32(shardDim))
	})
}

type mapping func(*raw.Context, *raw.Tensor) (*raw.Tensor, error)

func (f mapping) of(c *nxd.Context, x *Tensor) (*Tensor, error) {
	return newTensor(own.Get(c.Handle, func(p *raw.Context) (*raw.Tensor, error) {
		return own.Get(x.Handle, func(t *raw.Tensor) (*raw.Tensor, error) { return f(p, t) })
	}))
}

// CopyToTensorRegion is the identity; its backward sums over ranks.
// [collective: tensor-parallel group, in backward]
func CopyToTensorRegion(c *nxd.Context, x *Tensor) (*Tensor, error) {
	return mapping(rawengine.CopyToTensorRegion).of(c, x)
}

// ReduceFromTensorRegion is the sum over ranks. [collective: tensor-parallel group]
func ReduceFromTensorRegion(c *nxd.Context, x *Tensor) (*Tensor, error) {
	return mapping(rawengine.ReduceFromTensorRegion).of(c, x)
}

// ScatterToTensorRegion is this rank's part of the last dimension.
// [collective: tensor-parallel group, in backward]
func ScatterToTensorRegion(c *nxd.Context, x *Tensor) (*Tensor, error) {
	return mapping(rawengine.ScatterToTensorRegion).of(c, x)
}

// GatherFromTensorRegion is all parts side by side in the last dimension.
// [collective: tensor-parallel group]
func GatherFromTensorRegion(c *nxd.Context, x *Tensor) (*Tensor, error) {
	return mapping(rawengine.GatherFromTensorRegion).of(c, x)
}

// ScatterToSequenceRegion is this rank's part of a dimension.
// [collective: tensor-parallel group, in backward]
func ScatterToSequenceRegion(c *nxd.Context, x *Tensor, dim int) (*Tensor, error) {
	return mapping(func(p *raw.Context, t *raw.Tensor) (*raw.Tensor, error) {
		return rawengine.ScatterToSequenceRegion(p, t, int32(dim))
	}).of(c, x)
}

// GatherFromSequenceRegion is all parts along a dimension; toModelParallel: what follows is split over
// ranks. [collective: tensor-parallel group]
func GatherFromSequenceRegion(c *nxd.Context, x *Tensor, dim int, toModelParallel bool) (*Tensor, error) {
	return mapping(func(p *raw.Context, t *raw.Tensor) (*raw.Tensor, error) {
		return rawengine.GatherFromSequenceRegion(p, t, int32(dim), flag(toModelParallel))
	}).of(c, x)
}

// ReduceScatterToSequenceRegion is this rank's part, along a dimension, of the sum over ranks.
// [collective: tensor-parallel group]
func ReduceScatterToSequenceRegion(c *nxd.Context, x *Tensor, dim int) (*Tensor, error) {
	return mapping(func(p *raw.Context, t *raw.Tensor) (*raw.Tensor, error) {
		return rawengine.ReduceScatterToSequenceRegion(p, t, int32(dim))
	}).of(c, x)
}

// ParallelCrossEntropy is the loss of logits whose vocabulary is split over ranks.
// [collective: tensor-parallel group]
func ParallelCrossEntropy(c *nxd.Context, logits, labels *Tensor, o CrossEntropyOptions) (*Tensor, error) {
	o = o.Sized()
	return one([]*Tensor{logits, labels}, func(in **raw.Tensor, _ int, out **raw.Tensor) error {
		return own.Do(c.Handle, func(p *raw.Context) (err error) {
			*out, err = rawengine.ParallelCrossEntropy(p, logits.Raw(), labels.Raw(), &o)
			return err
		})
	})
}

// LinearCrossEntropy is the loss of the logits x weight^T, in blocks of tokens; sequenceDim -1: x is
// whole. [collective: tensor-parallel group]
func LinearCrossEntropy(c *nxd.Context, x, weight, labels *Tensor, sequenceDim int, o CrossEntropyOptions) (
	*Tensor, error) {
	o = o.Sized()
	return one([]*Tensor{x, weight, labels}, func(in **raw.Tensor, _ int, out **raw.Tensor) error {
		return own.Do(c.Handle, func(p *raw.Context) (err error) {
			*out, err = rawengine.LinearCrossEntropy(p, x.Raw(), weight.Raw(), labels.Raw(), int32(sequenceDim), &o)
			return err
		})
	})
}
