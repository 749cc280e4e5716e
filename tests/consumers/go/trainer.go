package main

import (
	"libnxd.org/nxd"
	"libnxd.org/nxd/engine"
)

const hidden = 16

// trainer is one rank's copy of the network, and its points.
type trainer struct {
	model     *engine.Module
	ddp       *nxd.DDP
	optimizer *nxd.Optimizer
	data      *nxd.Group
	x, y      *engine.Tensor
}

func newTrainer(c *nxd.Context) (t *trainer, err error) {
	t = &trainer{}
	if err = c.InitModelParallel(nil); err != nil {
		return nil, err
	}
	if t.data, err = c.ParallelGroup(nxd.AxisData); err != nil {
		return nil, err
	}
	if err = t.readData(); err != nil {
		return nil, err
	}
	if t.model, err = newModel(c); err != nil {
		return nil, err
	}
	if t.ddp, err = engine.NewDDP(t.model, nxd.DDPOptions{Reduce: nxd.Avg, ZeroStage: 1}); err != nil {
		return nil, err
	}
	t.optimizer, err = nxd.NewAdamW(t.ddp, nxd.AdamWOptions{LearningRate: 0.05})
	return t, err
}

func (t *trainer) readData() error {
	rank, err := t.data.Rank()
	if err != nil {
		return err
	}
	size, err := t.data.Size()
	if err != nil {
		return err
	}
	x, y := readPoints(rank, size)
	if t.x, err = engine.FromSlice(x, int64(len(y)), features); err != nil {
		return err
	}
	t.y, err = engine.FromSlice(y, int64(len(y)), 1)
	return err
}

// newModel maps (x, y) to the mean squared error of two layers.
func newModel(c *nxd.Context) (*engine.Module, error) {
	in, err := engine.NewColumnLinear(c, "in", features, hidden, engine.LinearOptions{})
	if err != nil {
		return nil, err
	}
	out, err := engine.NewColumnLinear(c, "out", hidden, 1, engine.LinearOptions{})
	if err != nil {
		return nil, err
	}
	m, err := engine.NewModule(c, "Network", func(_ *engine.Module, inputs []*engine.Tensor) ([]*engine.Tensor, error) {
		z, err := in.Forward(inputs[0])
		if err != nil {
			return nil, err
		}
		defer z.Close()
		h, err := engine.Call("tanh", z)
		if err != nil {
			return nil, err
		}
		defer h.Close()
		y, err := out.Forward(h)
		if err != nil {
			return nil, err
		}
		defer y.Close()
		loss, err := engine.Call("mse_loss", y, inputs[1])
		return []*engine.Tensor{loss}, err
	})
	if err != nil {
		return nil, err
	}
	if err := m.AddChild("in", in); err != nil {
		return nil, err
	}
	return m, m.AddChild("out", out)
}

// step gives the loss of all points before the update.
func (t *trainer) step() (float64, error) {
	if err := t.model.ZeroGrad(); err != nil {
		return 0, err
	}
	loss, err := t.model.Forward(t.x, t.y)
	if err != nil {
		return 0, err
	}
	defer loss.Close()
	if err := loss.Backward(); err != nil {
		return 0, err
	}
	if _, err := t.optimizer.Step(nxd.FinishOptions{}); err != nil {
		return 0, err
	}
	value, err := loss.Item()
	if err != nil {
		return 0, err
	}
	mean := []float64{value}
	err = nxd.AllReduce(t.data, mean, mean, nxd.Avg)
	return mean[0], err
}

func (t *trainer) close() {
	t.optimizer.Close()
	t.ddp.Close()
	t.model.Close()
	engine.CloseAll([]*engine.Tensor{t.x, t.y})
}
