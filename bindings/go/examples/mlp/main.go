// Two linear layers split over all ranks, the first by columns and the second by rows, and the same
// computed unsplit with plain operators: both must agree.
//
//	NXD_CPU_MODE=1 nxdrun -n 2 ./mlp
package main

import (
	"context"
	"fmt"
	"math"
	"os"

	"libnxd.org/nxd"
	"libnxd.org/nxd/engine"
)

const hidden, rows = 1024, 4

// input is the same on every rank, in [0, 1).
func input() (*engine.Tensor, error) {
	data := make([]float32, rows*hidden)
	state := uint32(1)
	for i := range data {
		state = state*1664525 + 1013904223
		data[i] = float32(state>>8) / 16777216
	}
	return engine.FromSlice(data, rows, hidden)
}

type mlp struct{ column, row *engine.Module }

func newMLP(c *nxd.Context) (*mlp, error) {
	device, err := nxd.GetDevice()
	if err != nil {
		return nil, err
	}
	column, err := engine.NewColumnLinear(c, "0", hidden, hidden, engine.LinearOptions{
		Bias: engine.Off, GatherOutput: engine.Off, KeepMasterWeight: 1})
	if err != nil {
		return nil, err
	}
	row, err := engine.NewRowLinear(c, "1", hidden, hidden, engine.LinearOptions{
		Bias: engine.Off, InputIsParallel: 1, KeepMasterWeight: 1})
	if err != nil {
		return nil, err
	}
	all, err := engine.NewModule(c, "Sequential", nil)
	if err != nil {
		return nil, err
	}
	defer all.Close()
	if err := all.AddChild("0", column); err != nil {
		return nil, err
	}
	if err := all.AddChild("1", row); err != nil {
		return nil, err
	}
	return &mlp{column, row}, all.MoveTo(device)
}

// plainLinear is x W^T with the whole weight that the layer's shards were cut from.
func plainLinear(layer *engine.Module, x *engine.Tensor) (*engine.Tensor, error) {
	whole, err := layer.MasterWeight()
	if err != nil {
		return nil, err
	}
	return engine.Call("linear", x, whole)
}

// compare gives the output's sum, and the largest difference and value.
func compare(y, expected *engine.Tensor) (sum, difference, largest float64, err error) {
	got, err := engine.Data[float32](y)
	if err != nil {
		return 0, 0, 0, err
	}
	want, err := engine.Data[float32](expected)
	if err != nil {
		return 0, 0, 0, err
	}
	for i := range got {
		sum += float64(got[i])
		largest = math.Max(largest, math.Abs(float64(want[i])))
		difference = math.Max(difference, math.Abs(float64(got[i])-float64(want[i])))
	}
	return sum, difference, largest, nil
}

func run() error {
	c, err := nxd.NewContext(context.Background(), nil)
	if err != nil {
		return err
	}
	defer c.Close()
	size, err := c.Size()
	if err != nil {
		return err
	}
	if err := c.InitModelParallel(&nxd.ParallelOptions{TensorParallelSize: int32(size)}); err != nil {
		return err
	}
	x, err := input()
	if err != nil {
		return err
	}
	m, err := newMLP(c)
	if err != nil {
		return err
	}
	h, err := m.column.Forward(x)
	if err != nil {
		return err
	}
	y, err := m.row.Forward(h)
	if err != nil {
		return err
	}
	plain, err := plainLinear(m.column, x)
	if err != nil {
		return err
	}
	expected, err := plainLinear(m.row, plain)
	if err != nil {
		return err
	}
	sum, difference, largest, err := compare(y, expected)
	if err != nil {
		return err
	}
	line := fmt.Sprintf("Output sum is %.6f; largest difference to the unsplit MLP %.2g of %.2g", sum, difference,
		largest)
	if err := c.Print(line); err != nil {
		return err
	}
	if difference > 1e-5*largest {
		return fmt.Errorf("the two differ by %g", difference)
	}
	return c.Finalize()
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "mlp:", err)
		os.Exit(1)
	}
}
