package engine

import (
	"libnxd.org/nxd"
	"libnxd.org/nxd/internal/own"
	"libnxd.org/nxd/raw"
	"libnxd.org/nxd/rawengine"
)

// CrossEntropyOptions are a loss's. StructSize is set by the calls.
type CrossEntropyOptions = raw.CrossEntropyOptions

// Reductions of losses.
const (
	Mean = raw.ReductionMean
	Sum  = raw.ReductionSum
	None = raw.ReductionNone
)

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
		return rawengine.ScatterToSequenceRegion(p, t, raw.Int32(dim))
	}).of(c, x)
}

// GatherFromSequenceRegion is all parts along a dimension; toModelParallel: what follows is split over
// ranks. [collective: tensor-parallel group]
func GatherFromSequenceRegion(c *nxd.Context, x *Tensor, dim int, toModelParallel bool) (*Tensor, error) {
	return mapping(func(p *raw.Context, t *raw.Tensor) (*raw.Tensor, error) {
		return rawengine.GatherFromSequenceRegion(p, t, raw.Int32(dim), flag(toModelParallel))
	}).of(c, x)
}

// ReduceScatterToSequenceRegion is this rank's part, along a dimension, of the sum over ranks.
// [collective: tensor-parallel group]
func ReduceScatterToSequenceRegion(c *nxd.Context, x *Tensor, dim int) (*Tensor, error) {
	return mapping(func(p *raw.Context, t *raw.Tensor) (*raw.Tensor, error) {
		return rawengine.ReduceScatterToSequenceRegion(p, t, raw.Int32(dim))
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
			*out, err = rawengine.LinearCrossEntropy(p, x.Raw(), weight.Raw(), labels.Raw(), raw.Int32(sequenceDim), &o)
			return err
		})
	})
}
