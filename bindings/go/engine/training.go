package engine

import (
	"runtime"

	"libnxd.org/nxd"
	"libnxd.org/nxd/internal/own"
	"libnxd.org/nxd/raw"
	"libnxd.org/nxd/rawengine"
)

// FinishGradients completes a model's gradients after backward, and gives their norm before clipping.
// [collective: tensor-, pipeline- and data-parallel groups]
func (m *Module) FinishGrads(o nxd.FinishOptions) (norm float64, err error) {
	o = o.Sized()
	return own.Get(m.Handle, func(p *raw.Module) (float64, error) { return rawengine.FinishGrads(p, &o) })
}

// NewDDP is data parallelism over a tree's trainable parameters. [collective: the data-parallel group]
func NewDDP(m *Module, o nxd.DDPOptions) (*nxd.DDP, error) {
	o = o.Sized()
	p, err := own.Get(m.Handle, func(p *raw.Module) (*raw.DDP, error) { return rawengine.DDPCreate(p, &o) })
	if err != nil {
		return nil, err
	}
	return &nxd.DDP{Handle: own.New(p, raw.DDPDestroy, m)}, nil
}

func newOptimizer(m *Module, create func(*raw.Module) (*raw.Optimizer, error)) (*nxd.Optimizer, error) {
	p, err := own.Get(m.Handle, create)
	if err != nil {
		return nil, err
	}
	return &nxd.Optimizer{Handle: own.New(p, raw.OptimizerDestroy, m)}, nil
}

// NewAdamW is AdamW over all trainable parameters of a tree.
func NewAdamW(m *Module, o nxd.AdamWOptions) (*nxd.Optimizer, error) {
	o = o.Sized()
	return newOptimizer(m, func(p *raw.Module) (*raw.Optimizer, error) { return rawengine.OptimizerCreateAdamW(p, &o) })
}

// NewSGD is SGD over all trainable parameters of a tree.
func NewSGD(m *Module, o nxd.SGDOptions) (*nxd.Optimizer, error) {
	o = o.Sized()
	return newOptimizer(m, func(p *raw.Module) (*raw.Optimizer, error) { return rawengine.OptimizerCreateSGD(p, &o) })
}

// NewCustom is the program's own update rule over all trainable parameters of a tree.
func NewCustom(m *Module, o nxd.CustomOptions) (*nxd.Optimizer, error) {
	return newOptimizer(m, func(p *raw.Module) (*raw.Optimizer, error) {
		return nxd.WithCustom(o, func(c *raw.CustomOptimizerOptions) (*raw.Optimizer, error) {
			return rawengine.OptimizerCreateCustom(p, c)
		})
	})
}

// LossWeights make mean losses of microbatches add up to the mean over all valid tokens of the step; nil
// among labels: no tokens. [collective: the data-parallel group]
func LossWeights(c *nxd.Context, labels []*Tensor, ignoreIndex int64, shifted bool) ([]float64, error) {
	list, bad := pointers(labels)
	weights := make([]float64, len(labels))
	// Also with bad labels, in the place of which NULL is given, so that the peers are told.
	err := own.Do(c.Handle, func(p *raw.Context) error {
		return rawengine.LossWeights(p, first(list), len(labels), ignoreIndex, flag(shifted), first(weights))
	})
	runtime.KeepAlive(labels)
	if err = raw.FirstError(bad, err); err != nil {
		return nil, err
	}
	return weights, nil
}
