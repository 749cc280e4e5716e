// Data parallelism in its smallest form: a network of two linear layers, of which every rank has a copy,
// on samples that the ranks share out anew each epoch. Eagerly on the CPU, or recorded on device XLA,
// where a step is one graph:
//
//	NXD_CPU_MODE=1 ./lazy_ddp
//	NXD_XLA_BACKEND=replay ./lazy_ddp
//
// A tensor that is still open is a result of the step's graph, so each is closed.
package main

import (
	"context"
	"fmt"
	"math"

	"libnxd.org/nxd"
	"libnxd.org/nxd/engine"
	"libnxd.org/nxd/examples/internal/common"
)

const in, hidden, out, samples, batch, epochs = 10, 10, 5, 240, 24, 10

// newModel maps (x, target) to the mean squared error of net2(relu(net1(x))).
func newModel(c *nxd.Context, device nxd.Device) (*engine.Module, error) {
	// Without tensor parallelism a column-parallel layer is a linear layer.
	net1, err := engine.NewColumnLinear(c, "net1", in, hidden, engine.LinearOptions{Device: device})
	if err != nil {
		return nil, err
	}
	net2, err := engine.NewColumnLinear(c, "net2", hidden, out, engine.LinearOptions{Device: device})
	if err != nil {
		return nil, err
	}
	m, err := engine.NewModule(c, "Model", func(_ *engine.Module, inputs []*engine.Tensor) ([]*engine.Tensor, error) {
		z, err := net1.Forward(inputs[0])
		if err != nil {
			return nil, err
		}
		defer z.Close()
		h, err := engine.Call("relu", z)
		if err != nil {
			return nil, err
		}
		defer h.Close()
		y, err := net2.Forward(h)
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
	if err := m.AddChild("net1", net1); err != nil {
		return nil, err
	}
	return m, m.AddChild("net2", net2)
}

// makeBatch is waves of the samples' indices, and a function of these features.
func makeBatch(indices []int64) ([]*engine.Tensor, error) {
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
	x, err := engine.FromSlice(xs, int64(len(indices)), in)
	if err != nil {
		return nil, err
	}
	target, err := engine.FromSlice(targets, int64(len(indices)), out)
	return []*engine.Tensor{x, target}, err
}

func trainStep(m *engine.Module, o *nxd.Optimizer, batch []*engine.Tensor) (float64, error) {
	if err := m.ZeroGrad(); err != nil {
		return 0, err
	}
	loss, err := m.Forward(batch...)
	if err != nil {
		return 0, err
	}
	defer loss.Close()
	if err := loss.Backward(); err != nil {
		return 0, err
	}
	if err := o.StepWithoutReport(nxd.FinishOptions{}); err != nil {
		return 0, err
	}
	if err := engine.MarkStep(true); err != nil {
		return 0, err
	}
	return loss.Item() // known by now
}

// trainEpoch gives the mean of this rank's losses. A thread makes the batches, which wait on the device.
func trainEpoch(m *engine.Module, o *nxd.Optimizer, device nxd.Device, indices []int64, share int) (float64, error) {
	loader, err := engine.NewDeviceLoaderFunc(func() ([]*engine.Tensor, error) {
		if len(indices) < share {
			return nil, nil
		}
		mine := indices[:share]
		indices = indices[share:]
		return makeBatch(mine)
	}, 2, device, engine.DeviceLoaderOptions{})
	if err != nil {
		return 0, err
	}
	defer loader.Close()
	sum, steps := 0.0, 0
	for ; ; steps++ {
		batch, err := loader.Next()
		if err != nil || batch == nil {
			return sum / float64(steps), err
		}
		loss, err := trainStep(m, o, batch)
		engine.CloseAll(batch)
		if err != nil {
			return 0, err
		}
		sum += loss
	}
}

func run(ctx context.Context) error {
	c, err := nxd.NewContext(ctx, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.InitModelParallel(nil); err != nil {
		return err
	}
	copies, err := common.DataParallel(c)
	if err != nil {
		return err
	}
	if copies.Size > batch {
		return fmt.Errorf("expected at most %d ranks, got %d", batch, copies.Size)
	}
	device, err := nxd.GetDevice()
	if err != nil {
		return err
	}
	m, err := newModel(c, device)
	if err != nil {
		return err
	}
	ddp, err := engine.NewDDP(m, nxd.DDPOptions{Reduce: nxd.Avg})
	if err != nil {
		return err
	}
	sgd, err := nxd.NewSGD(ddp, nxd.SGDOptions{LearningRate: 0.05})
	if err != nil {
		return err
	}
	for epoch := int64(0); epoch < epochs; epoch++ {
		indices, err := nxd.SampleEpoch(samples, copies.Size, copies.Rank, epoch, 1, true, true)
		if err != nil {
			return err
		}
		mean, err := trainEpoch(m, sgd, device, indices, batch/copies.Size)
		if err != nil {
			return err
		}
		means := []float64{mean}
		if err := nxd.AllReduce(copies.Group, means, means, nxd.Avg); err != nil {
			return err
		}
		if err := c.Print(fmt.Sprintf("epoch %d loss %.6f", epoch, means[0])); err != nil {
			return err
		}
	}
	counts, err := engine.ReadDeviceMetrics()
	if err != nil {
		return err
	}
	line := fmt.Sprintf("steps %d compiles %d loads %d executions %d implicit_syncs %d fallbacks %d",
		counts.Steps, counts.Compiles, counts.Loads, counts.Executions, counts.ImplicitSyncs, counts.Fallbacks)
	if err := c.Print(line); err != nil {
		return err
	}
	return c.Finalize()
}

func main() { common.Main("lazy_ddp", 2, run) }
