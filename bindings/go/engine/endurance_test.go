package engine_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"libnxd.org/nxd"
	"libnxd.org/nxd/engine"
	"libnxd.org/nxd/internal/ranks"
)

// A leak of 420 bytes for each object is found in both forms.
var (
	many  = long(10000, 5000)
	slack = int64(long(4<<20, 2<<20))
)

// long is n in the long form of the tests.
func long(n, short int) int {
	if os.Getenv("NXD_LONG") == "1" {
		return n
	}
	return short
}

func twice[T interface{ Close() }](t *testing.T, make func() (T, error)) {
	t.Helper()
	ranks.Flat(t, many, slack, func() error {
		x, err := make()
		if err == nil {
			x.Close()
		}
		return err
	})
	ranks.Flat(t, many, slack, func() error {
		_, err := make()
		return err
	})
}

// Making and dropping objects, five thousand of each kind, takes no memory. NXD_LONG=1: ten thousand.
func TestEndurance(t *testing.T) {
	if testing.Short() {
		t.Skip("measures memory")
	}
	values := make([]float32, 256)
	array := must[nxd.Array[float32]](t)(nxd.NewArray[float32](256))
	x := tensor(t, values, 16, 16)
	if err := x.SetRequiresGrad(true); err != nil {
		t.Fatal(err)
	}
	t.Run("tensor", func(t *testing.T) {
		twice(t, func() (*engine.Tensor, error) { return engine.FromSlice(values, 16, 16) })
	})
	t.Run("tensor over an array", func(t *testing.T) {
		twice(t, func() (*engine.Tensor, error) { return engine.FromArray(array, 16, 16) })
	})
	t.Run("result", func(t *testing.T) {
		twice(t, func() (*engine.Tensor, error) { return engine.Call("exp", x) })
	})
	t.Run("op", func(t *testing.T) { twice(t, func() (*engine.Op, error) { return engine.NewOp("exp") }) })
	f := newScale(t, func() error { return nil })
	t.Run("function", func(t *testing.T) {
		twice(t, func() (*engine.Function, error) {
			return engine.NewFunction(engine.FunctionOptions{Name: "test::none",
				Forward: func(_ *engine.FunctionCall, in []*engine.Tensor) ([]*engine.Tensor, error) { return in, nil }})
		})
	})
	t.Run("function's graph", func(t *testing.T) {
		twice(t, func() (*engine.Tensor, error) {
			y, err := f.Apply(x)
			if err != nil {
				return nil, err
			}
			return y[0], nil
		})
	})
	ranks.Run(t, 1, func(c *nxd.Context) error {
		if err := c.InitModelParallel(nil); err != nil {
			return err
		}
		enduranceOf(t, c, x)
		return c.Finalize()
	})
}

// enduranceOf is the objects that need a context.
func enduranceOf(t *testing.T, c *nxd.Context, x *engine.Tensor) {
	three := tensor(t, []float32{1, 2, 3}, 3)
	m := must[*engine.Module](t)(affine(c, nil))
	t.Cleanup(m.Close)
	file := filepath.Join(t.TempDir(), "affine.safetensors")
	if err := m.SaveSafetensors(file); err != nil {
		t.Fatal(err)
	}
	t.Run("module with parameters", func(t *testing.T) {
		twice(t, func() (*engine.Module, error) { return affine(c, nil) })
	})
	t.Run("layer", func(t *testing.T) {
		twice(t, func() (*engine.Module, error) {
			return engine.NewColumnLinear(c, "l", 4, 4, engine.LinearOptions{})
		})
	})
	t.Run("tape", func(t *testing.T) {
		twice(t, func() (*engine.Tape, error) {
			out, tape, err := m.ForwardTape(1, three)
			engine.CloseAll(out)
			return tape, err
		})
	})
	t.Run("load report", func(t *testing.T) {
		ranks.Flat(t, many, slack, func() error { return second(m.LoadSafetensors(file, true)) })
	})
	t.Run("optimizer", func(t *testing.T) {
		twice(t, func() (*nxd.Optimizer, error) { return engine.NewAdamW(m, nxd.AdamWOptions{}) })
	})
	t.Run("pipeline", func(t *testing.T) {
		ranks.Flat(t, many, slack, func() error {
			p, err := engine.NewPipeline(m, []*engine.Tensor{three}, engine.PipelineOptions{LossOutput: 0})
			if err == nil {
				p.Close()
			}
			return err
		})
	})
}

// Training goes on while another goroutine collects all the time, and nothing is closed by hand.
func TestForcedCollection(t *testing.T) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
				time.Sleep(time.Millisecond)
			}
		}
	}()
	ranks.Run(t, 2, func(c *nxd.Context) error {
		if err := c.InitModelParallel(nil); err != nil {
			return err
		}
		m, err := affine(c, nil)
		if err != nil {
			return err
		}
		ddp, err := engine.NewDDP(m, nxd.DDPOptions{Reduce: nxd.Avg})
		if err != nil {
			return err
		}
		sgd, err := nxd.NewSGD(ddp, nxd.SGDOptions{LearningRate: 0.01})
		if err != nil {
			return err
		}
		f := newScale(t, func() error { return nil })
		for step := 0; step < 100; step++ {
			x, err := engine.FromSlice([]float32{1, 2, 3}, 3)
			if err != nil {
				return err
			}
			y, err := m.Forward(x)
			if err != nil {
				return err
			}
			z, err := f.Apply(y)
			if err != nil {
				return err
			}
			loss, err := engine.Call("sum", z[0])
			if err != nil {
				return err
			}
			if err := first(loss.Backward(), second(sgd.Step(nxd.FinishOptions{})), m.ZeroGrad()); err != nil {
				return err
			}
		}
		return c.Finalize()
	})
	close(stop)
	<-stopped
	ranks.Settle(t)
}
