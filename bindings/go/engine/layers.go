package engine

import (
	"libnxd.org/nxd"
	"libnxd.org/nxd/raw"
	"libnxd.org/nxd/rawengine"
)

// Options of layers. Their names are arguments of the functions; Name and StructSize are set by these.
type (
	LinearOptions    = raw.LinearOptions
	EmbeddingOptions = raw.EmbeddingOptions
	NormOptions      = raw.NormOptions
	RoPEOptions      = raw.RoPEOptions
	AttentionOptions = raw.AttentionOptions
	QKVOptions       = raw.QKVOptions
	MLPOptions       = raw.MLPOptions
)

// Toggles, initialisers, rotary scalings, fusions and activations.
const (
	Default = nxd.Default
	On      = nxd.On
	Off     = nxd.Off

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

	QKVSeparate = raw.QKVSeparate
	QKVByPart   = raw.QKVByPart
	QKVByHead   = raw.QKVByHead

	SiLU     = raw.ActivationSiLU
	GELU     = raw.ActivationGELU
	GELUTanh = raw.ActivationGELUTanh
	ReLU     = raw.ActivationReLU
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

// NewLinear is a linear layer that each rank has all of.
func NewLinear(c *nxd.Context, name string, in, out int64, o LinearOptions) (*Module, error) {
	return layer(c, name, func(p *raw.Context, n *byte) (*raw.Module, error) {
		o := o.Sized()
		o.Name = n
		return rawengine.LayerCreateLinear(p, in, out, &o)
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

// NewQKVLinear is queries, keys and values for attention: three outputs of ForwardN.
func NewQKVLinear(c *nxd.Context, name string, hidden, heads int64, o QKVOptions) (*Module, error) {
	return layer(c, name, func(p *raw.Context, n *byte) (*raw.Module, error) {
		o := o.Sized()
		o.Name = n
		return rawengine.LayerCreateQKVLinear(p, hidden, heads, &o)
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
		return rawengine.LayerCreateDropout(p, probability, name, raw.Int32(shardDim))
	})
}

// ExtraHeads are the heads that are to be added to others for a multiple of tpDegree.
func ExtraHeads(heads int64, tpDegree int) (int64, error) {
	return rawengine.GetNumberOfExtraHeads(heads, raw.Int32(tpDegree))
}
