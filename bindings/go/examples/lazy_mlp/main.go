// An MLP of three layers that learns ten labels by SGD, made of operators alone. One switch runs it
// eagerly on the CPU or recorded on device XLA:
//
//	NXD_CPU_MODE=1 ./lazy_mlp
//	NXD_XLA_BACKEND=replay ./lazy_mlp
//
// It prints the losses, and what the device has done. The learning rate falls at every step, which
// compiles nothing. A tensor that is still open is a result of the step's graph, so each is closed.
package main

import (
	"fmt"
	"os"
	"runtime"

	"libnxd.org/nxd"
	"libnxd.org/nxd/engine"
)

const rows, steps = 8, 40

var sizes = [...]int64{784, 64, 64, 10}

// random gives numbers in [-1, 1), the same on every machine and in every language.
type random uint32

func (r *random) next() float32 {
	*r = *r*1664525 + 1013904223
	return float32(*r>>8)/8388608 - 1
}

func (r *random) matrix(rows, cols int64, scale float32) (*engine.Tensor, error) {
	values := make([]float32, rows*cols)
	for i := range values {
		values[i] = r.next() * scale
	}
	return onDevice(values, rows, cols)
}

func onDevice[T nxd.Element](values []T, shape ...int64) (*engine.Tensor, error) {
	device, err := nxd.GetDevice()
	if err != nil {
		return nil, err
	}
	host, err := engine.FromSlice(values, shape...)
	if err != nil {
		return nil, err
	}
	defer host.Close()
	return host.ToDevice(device)
}

func forward(weights []*engine.Tensor, x, labels *engine.Tensor) (*engine.Tensor, error) {
	hidden, err := engine.Call("linear", x, weights[0])
	if err != nil {
		return nil, err
	}
	defer hidden.Close()
	for _, weight := range weights[1:] {
		active, err := engine.Call("relu", hidden)
		if err != nil {
			return nil, err
		}
		defer active.Close()
		if hidden, err = engine.Call("linear", active, weight); err != nil {
			return nil, err
		}
		defer hidden.Close()
	}
	return engine.Call("cross_entropy_loss", hidden, labels)
}

// update is weight -= rate * gradient, outside of the graph that Backward walks.
func update(weight *engine.Tensor, rate float64) error {
	value, err := weight.Detach()
	if err != nil {
		return err
	}
	defer value.Close()
	gradient, err := weight.Grad()
	if err != nil {
		return err
	}
	defer gradient.Close()
	sub, err := engine.NewOp("sub_.Tensor")
	if err != nil {
		return err
	}
	defer sub.Close()
	for name, argument := range map[string]any{"self": value, "other": gradient, "alpha": rate} {
		if err := sub.Set(name, argument); err != nil {
			return err
		}
	}
	if err := sub.Run(); err != nil {
		return err
	}
	return weight.SetGrad(nil)
}

func trainStep(weights []*engine.Tensor, x, labels *engine.Tensor, rate float64) (float64, error) {
	loss, err := forward(weights, x, labels)
	if err != nil {
		return 0, err
	}
	defer loss.Close()
	if err := loss.Backward(); err != nil {
		return 0, err
	}
	for _, weight := range weights {
		if err := update(weight, rate); err != nil {
			return 0, err
		}
	}
	if err := engine.MarkStep(true); err != nil {
		return 0, err
	}
	return loss.Item() // known by now: no sync
}

func run() error {
	values := random(1)
	var weights []*engine.Tensor
	for i, size := range sizes[1:] {
		weight, err := values.matrix(size, sizes[i], 0.1)
		if err != nil {
			return err
		}
		if err := weight.SetRequiresGrad(true); err != nil {
			return err
		}
		weights = append(weights, weight)
	}
	x, err := values.matrix(rows, sizes[0], 1)
	if err != nil {
		return err
	}
	labels, err := onDevice([]int64{0, 1, 2, 3, 4, 5, 6, 7}, rows)
	if err != nil {
		return err
	}
	for step := 0; step < steps; step++ {
		loss, err := trainStep(weights, x, labels, 0.05/float64(1+step))
		if err != nil {
			return err
		}
		fmt.Printf("step %d loss %.7f\n", step, loss)
	}
	m, err := engine.ReadDeviceMetrics()
	fmt.Printf("steps %d compiles %d loads %d executions %d implicit_syncs %d fallbacks %d\n", m.Steps,
		m.Compiles, m.Loads, m.Executions, m.ImplicitSyncs, m.Fallbacks)
	return err
}

func main() {
	runtime.LockOSThread() // each thread records for itself
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "lazy_mlp:", err)
		os.Exit(1)
	}
}
