package engine_test

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"libnxd.org/nxd"
	"libnxd.org/nxd/engine"
	"libnxd.org/nxd/internal/ranks"
)

// refused fails unless err is of an invalid argument.
func refused(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, nxd.InvalidArgument) {
		t.Errorf("%s: expected INVALID_ARGUMENT, got %v", what, err)
	}
}

// A closed tensor is none that was left out.
func TestClosedTensorsAreRefused(t *testing.T) {
	ranks.Run(t, 1, func(c *nxd.Context) error {
		x, err := engine.FromSlice([]float32{1, 2}, 2)
		if err != nil {
			return err
		}
		defer x.Close()
		gone, err := engine.FromSlice([]float32{1, 2}, 2)
		if err != nil {
			return err
		}
		gone.Close()
		if err := x.SetRequiresGrad(true); err != nil {
			return err
		}
		refused(t, "SetGrad", x.SetGrad(gone))
		_, err = engine.Call("relu", gone)
		refused(t, "Call", err)
		refused(t, "Backward", engine.Backward([]*engine.Tensor{x}, []*engine.Tensor{gone}, false))
		_, err = engine.Grad([]*engine.Tensor{x}, []*engine.Tensor{gone}, []*engine.Tensor{x}, false)
		refused(t, "Grad", err)
		clamp, err := engine.NewOp("clamp.Tensor")
		if err != nil {
			return err
		}
		defer clamp.Close()
		refused(t, "Set", clamp.Set("min", gone))
		refused(t, "Set of a list", clamp.Set("min", []*engine.Tensor{gone}))
		_, err = engine.LossWeights(c, []*engine.Tensor{gone}, -100, false)
		refused(t, "LossWeights", err)
		seen := 0
		optional, err := engine.NewModule(c, "Optional", func(_ *engine.Module, in []*engine.Tensor) ([]*engine.Tensor, error) {
			seen++
			out, err := x.Retain()
			return []*engine.Tensor{out}, err
		})
		if err != nil {
			return err
		}
		defer optional.Close()
		_, err = optional.Forward(x, gone)
		refused(t, "Forward", err)
		if seen != 0 {
			t.Error("the forward was called without its input")
		}
		return c.Finalize()
	})
}

// Parts of a module end with it, and what a function's call lends ends with the call.
func TestLentTensorsEnd(t *testing.T) {
	ranks.Run(t, 1, func(c *nxd.Context) error {
		m, err := engine.NewModule(c, "Container", nil)
		if err != nil {
			return err
		}
		p, err := m.AddParameter("w", engine.ParameterOptions{}, 2, 2)
		if err != nil {
			return err
		}
		w, err := p.Tensor()
		if err != nil {
			return err
		}
		m.Close()
		_, err = w.Shape()
		refused(t, "a tensor of a closed module", err)
		_, err = p.GlobalShape()
		refused(t, "a parameter of a closed module", err)

		var saved *engine.Tensor
		var call *engine.FunctionCall
		f, err := engine.NewFunction(engine.FunctionOptions{
			Name: "test::lent",
			Forward: func(c *engine.FunctionCall, in []*engine.Tensor) ([]*engine.Tensor, error) {
				out, err := in[0].Retain()
				if err != nil {
					return nil, err
				}
				return []*engine.Tensor{out}, c.Save(in[0])
			},
			Backward: func(c *engine.FunctionCall, grads []*engine.Tensor) (_ []*engine.Tensor, err error) {
				call = c
				if saved, err = c.Saved(0); err != nil {
					return nil, err
				}
				if _, err := saved.Shape(); err != nil {
					return nil, err
				}
				out, err := grads[0].Retain()
				return []*engine.Tensor{out}, err
			},
		})
		if err != nil {
			return err
		}
		defer f.Close()
		x, err := engine.FromSlice([]float32{3})
		if err != nil {
			return err
		}
		defer x.Close()
		if err := x.SetRequiresGrad(true); err != nil {
			return err
		}
		y, err := f.Apply(x)
		if err != nil {
			return err
		}
		if err := y[0].Backward(); err != nil {
			return err
		}
		engine.CloseAll(y)
		x.Close()
		f.Close()
		runtime.GC()
		_, err = saved.Shape()
		refused(t, "a tensor that a call had lent", err)
		_, err = call.Saved(0)
		refused(t, "a call that is over", err)
		_, err = call.NeedsGrad(0)
		refused(t, "a call that is over", err)
		return c.Finalize()
	})
}

// A gradient hook may remove itself, and works on until it has returned.
func TestHookThatRemovesItself(t *testing.T) {
	ranks.Run(t, 1, func(c *nxd.Context) error {
		if err := c.InitModelParallel(nil); err != nil {
			return err
		}
		layer, err := engine.NewLayerNorm(c, "norm", 4, engine.NormOptions{})
		if err != nil {
			return err
		}
		defer layer.Close()
		p, err := layer.Parameter("weight")
		if err != nil {
			return err
		}
		calls := 0
		err = p.SetGradHook(func(self *engine.Parameter) error {
			calls++
			return self.SetGradHook(nil)
		})
		if err != nil {
			return err
		}
		for pass := 0; pass < 2; pass++ {
			x, err := engine.FromSlice([]float32{1, 2, 3, 5}, 1, 4)
			if err != nil {
				return err
			}
			y, err := layer.Forward(x)
			if err != nil {
				return err
			}
			sum, err := engine.Call("sum", y)
			if err != nil {
				return err
			}
			if err := sum.Backward(); err != nil {
				return err
			}
			engine.CloseAll([]*engine.Tensor{x, y, sum})
		}
		if calls != 1 {
			t.Errorf("expected 1 call, got %d", calls)
		}
		return c.Finalize()
	})
}

// A DDP that a pipeline uses lives as long, whether or not the program keeps it.
func TestPipelineKeepsItsDDP(t *testing.T) {
	ranks.Run(t, 1, func(c *nxd.Context) error {
		if err := c.InitModelParallel(nil); err != nil {
			return err
		}
		norm, err := engine.NewLayerNorm(c, "norm", 4, engine.NormOptions{})
		if err != nil {
			return err
		}
		defer norm.Close()
		model, err := engine.NewSequential(c, norm)
		if err != nil {
			return err
		}
		defer model.Close()
		x, err := engine.FromSlice([]float32{1, 2, 3, 5}, 1, 4)
		if err != nil {
			return err
		}
		defer x.Close()
		p, err := engine.NewPipeline(model, []*engine.Tensor{x}, engine.PipelineOptions{Microbatches: 1})
		if err != nil {
			return err
		}
		defer p.Close()
		gone := make(chan struct{})
		give := func() error {
			local, err := p.LocalModule()
			if err != nil {
				return err
			}
			d, err := engine.NewDDP(local, nxd.DDPOptions{})
			if err != nil {
				return err
			}
			runtime.SetFinalizer(d, func(*nxd.DDP) { close(gone) })
			return p.SetDDP(d)
		}
		if err := give(); err != nil {
			return err
		}
		ranks.Settle(t)
		select {
		case <-gone:
			t.Error("the pipeline's DDP is gone")
			return nil
		default:
		}
		if err := p.SetDDP(nil); err != nil {
			return err
		}
		for end := time.Now().Add(ranks.Limit); ; runtime.GC() {
			select {
			case <-gone:
				return c.Finalize()
			case <-time.After(time.Millisecond):
				if time.Now().After(end) {
					t.Error("a DDP that was taken away stays")
					return nil
				}
			}
		}
	})
}

// A label that is closed on one rank is an error on both.
func TestClosedLabelOfOneRank(t *testing.T) {
	ranks.Run(t, 2, func(c *nxd.Context) error {
		if err := c.InitModelParallel(nil); err != nil {
			return err
		}
		label, err := engine.FromSlice([]int64{1, 2}, 1, 2)
		if err != nil {
			return err
		}
		defer label.Close()
		if rank, err := c.Rank(); err != nil || rank == 1 {
			label.Close()
		}
		_, err = engine.LossWeights(c, []*engine.Tensor{label}, -100, false)
		if !errors.Is(err, nxd.InvalidArgument) {
			t.Errorf("got %v", err)
		}
		return c.Finalize()
	})
}
