// A module whose forward is written in Go, with a differentiable function written in Go in it, trained by
// data-parallel ranks: swish(net1(x)) and net2, and the mean squared error.
//
//	NXD_CPU_MODE=1 nxdrun -n 2 ./module
package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"runtime"

	"libnxd.org/nxd"
	"libnxd.org/nxd/engine"
)

const in, hidden, out, samples, batch, epochs = 10, 16, 5, 240, 24, 10

// newSwish is x sigmoid(x), on slices; its derivative is s (1 + x (1 - s)).
func newSwish() (*engine.Function, error) {
	sigmoid := func(x float32) float32 { return float32(1 / (1 + math.Exp(-float64(x)))) }
	return engine.NewFunction(engine.FunctionOptions{
		Name: "example::swish",
		Forward: func(call *engine.FunctionCall, inputs []*engine.Tensor) ([]*engine.Tensor, error) {
			if err := call.Save(inputs[0]); err != nil {
				return nil, err
			}
			return each(inputs[0], inputs[0], func(x, _ float32) float32 { return x * sigmoid(x) })
		},
		Backward: func(call *engine.FunctionCall, grads []*engine.Tensor) ([]*engine.Tensor, error) {
			x, err := call.Saved(0)
			if err != nil {
				return nil, err
			}
			return each(x, grads[0], func(x, g float32) float32 {
				s := sigmoid(x)
				return g * s * (1 + x*(1-s))
			})
		},
	})
}

func each(a, b *engine.Tensor, f func(a, b float32) float32) ([]*engine.Tensor, error) {
	x, err := engine.Data[float32](a)
	if err != nil {
		return nil, err
	}
	y, err := engine.Data[float32](b)
	if err != nil {
		return nil, err
	}
	for i := range x {
		x[i] = f(x[i], y[i])
	}
	shape, err := a.Shape()
	if err != nil {
		return nil, err
	}
	t, err := engine.FromSlice(x, shape...)
	return []*engine.Tensor{t}, err
}

// newModel maps (x, target) to the loss.
func newModel(c *nxd.Context) (*engine.Module, error) {
	swish, err := newSwish()
	if err != nil {
		return nil, err
	}
	// Without tensor parallelism a column-parallel layer is a linear layer.
	net1, err := engine.NewColumnLinear(c, "net1", in, hidden, engine.LinearOptions{})
	if err != nil {
		return nil, err
	}
	net2, err := engine.NewColumnLinear(c, "net2", hidden, out, engine.LinearOptions{})
	if err != nil {
		return nil, err
	}
	forward := func(_ *engine.Module, inputs []*engine.Tensor) ([]*engine.Tensor, error) {
		z, err := net1.Forward(inputs[0])
		if err != nil {
			return nil, err
		}
		defer z.Close()
		h, err := swish.Apply(z)
		if err != nil {
			return nil, err
		}
		defer h[0].Close()
		y, err := net2.Forward(h[0])
		if err != nil {
			return nil, err
		}
		defer y.Close()
		loss, err := engine.Call("mse_loss", y, inputs[1])
		return []*engine.Tensor{loss}, err
	}
	m, err := engine.NewModule(c, "Model", forward)
	if err != nil {
		return nil, err
	}
	if err := m.AddChild("net1", net1); err != nil {
		return nil, err
	}
	return m, m.AddChild("net2", net2)
}

// makeBatch is waves of the samples' indices, and a function of these features.
func makeBatch(indices []int64) (x, target *engine.Tensor, err error) {
	xs, targets := make([]float32, 0, batch*in), make([]float32, 0, batch*out)
	for _, s := range indices {
		row := make([]float32, in)
		for i := range row {
			row[i] = float32(math.Sin(0.37*float64(s)*float64(i+1) + float64(i)))
		}
		for o := 0; o < out; o++ {
			targets = append(targets, row[o]*row[o+1]+0.5*row[2*o])
		}
		xs = append(xs, row...)
	}
	if x, err = engine.FromSlice(xs, int64(len(indices)), in); err != nil {
		return nil, nil, err
	}
	target, err = engine.FromSlice(targets, int64(len(indices)), out)
	return x, target, err
}

func trainStep(m *engine.Module, o *nxd.Optimizer, indices []int64) (float64, error) {
	x, target, err := makeBatch(indices)
	if err != nil {
		return 0, err
	}
	defer engine.CloseAll([]*engine.Tensor{x, target})
	if err := m.ZeroGrad(); err != nil {
		return 0, err
	}
	loss, err := m.Forward(x, target)
	if err != nil {
		return 0, err
	}
	defer loss.Close()
	if err := loss.Backward(); err != nil {
		return 0, err
	}
	if _, err := o.Step(nxd.FinishOptions{}); err != nil {
		return 0, err
	}
	return loss.Item()
}

func trainEpoch(c *nxd.Context, group *nxd.Group, m *engine.Module, o *nxd.Optimizer, epoch int64) error {
	size, err := group.Size()
	if err != nil {
		return err
	}
	rank, err := group.Rank()
	if err != nil {
		return err
	}
	indices, err := nxd.SampleEpoch(samples, size, rank, epoch, 1, true, true)
	if err != nil {
		return err
	}
	sum, count := []float64{0}, 0
	for share := batch / size; len(indices) >= share; indices = indices[share:] {
		loss, err := trainStep(m, o, indices[:share])
		if err != nil {
			return err
		}
		sum[0] += loss
		count++
	}
	if err := nxd.AllReduce(group, sum, sum, nxd.Avg); err != nil {
		return err
	}
	return c.Print(fmt.Sprintf("epoch %d loss %.6f", epoch, sum[0]/float64(count)))
}

func run() error {
	c, err := nxd.NewContext(context.Background(), nil)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.InitModelParallel(nil); err != nil {
		return err
	}
	group, err := c.ParallelGroup(nxd.AxisData)
	if err != nil {
		return err
	}
	m, err := newModel(c)
	if err != nil {
		return err
	}
	ddp, err := engine.NewDDP(m, nxd.DDPOptions{Reduce: nxd.Avg})
	if err != nil {
		return err
	}
	sgd, err := nxd.NewSGD(ddp, nxd.SGDOptions{LearningRate: 0.1})
	if err != nil {
		return err
	}
	for epoch := int64(0); epoch < epochs; epoch++ {
		if err := trainEpoch(c, group, m, sgd, epoch); err != nil {
			return err
		}
	}
	return c.Finalize()
}

func main() {
	runtime.LockOSThread()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "module:", err)
		os.Exit(1)
	}
}
