package engine_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"libnxd.org/nxd"
	"libnxd.org/nxd/engine"
	"libnxd.org/nxd/internal/ranks"
)

func TestRecordedDevice(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tensor, text := must[*engine.Tensor](t), must[string](t)
	host := tensor(engine.FromSlice([]float32{1, -2, 3}, 3))
	defer host.Close()
	x := tensor(host.ToDevice(nxd.XLA))
	defer x.Close()
	if err := engine.ResetDeviceMetrics(); err != nil {
		t.Fatal(err)
	}
	y := tensor(engine.Call("relu", x))
	defer y.Close()
	total := tensor(engine.Call("sum", y))
	defer total.Close()
	seen := 0.0
	err := engine.AddStepClosure(func() (err error) {
		seen, err = total.Item()
		return err
	})
	if err = first(err, engine.MarkStep(true)); err != nil {
		t.Fatal(err)
	}
	m := must[engine.DeviceMetrics](t)(engine.ReadDeviceMetrics())
	if seen != 4 || m.Steps != 1 || m.Executions != 1 || m.ImplicitSyncs != 0 || m.ResultBytes < 4 {
		t.Fatalf("closure saw %v; metrics %+v", seen, m)
	}
	if graph := text(engine.StepGraph(engine.GraphFormatText)); !strings.Contains(graph, "aten::relu(f32[3])") {
		t.Fatal(graph)
	}
	if graph := text(engine.StepGraph(engine.GraphFormatDot)); !strings.HasPrefix(graph, "digraph step {") {
		t.Fatal(graph)
	}
	if report := text(engine.DeviceReport()); !strings.Contains(report, "executions 1\n") {
		t.Fatal(report)
	}
	mine := errors.New("mine")
	if err := engine.AddStepClosure(func() error { return mine }); err != nil {
		t.Fatal(err)
	}
	if err := engine.MarkStep(true); !errors.Is(err, mine) {
		t.Fatal(err)
	}
}

func TestClosuresOnAThread(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	calls := 0
	err := engine.AddStepClosureAsync(func() error {
		calls++
		return nil
	})
	if err = first(err, engine.MarkStep(false), engine.WaitStepClosures()); err != nil || calls != 1 {
		t.Fatal(err, calls)
	}
	err = engine.AddStepClosureAsync(func() error { return errors.New("mine") })
	if err != nil {
		t.Fatal(err)
	}
	err = first(engine.MarkStep(true), engine.WaitStepClosures())
	if !errors.Is(err, nxd.User) || !strings.Contains(err.Error(), "mine") {
		t.Fatal(err)
	}
}

// The closures that follow on the library's thread know nothing of an error there.
func TestAClosureOnAThreadLeavesNoError(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, fail := range []func() error{
		func() error { return errors.New("the one before") },
		func() error { panic("the one before") },
	} {
		var later error
		err := first(engine.AddStepClosureAsync(fail), engine.AddStepClosureAsync(func() error {
			_, later = engine.Zeros(nxd.DType(99), nxd.CPU, 2)
			return nil
		}))
		if err != nil {
			t.Fatal(err)
		}
		if err := first(engine.MarkStep(true), engine.WaitStepClosures()); !errors.Is(err, nxd.User) {
			t.Fatal(err)
		}
		if !errors.Is(later, nxd.InvalidArgument) || strings.Contains(later.Error(), "the one before") {
			t.Fatal(later)
		}
	}
}

func TestDeviceLoaderOfAFunction(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	mine, made := errors.New("mine"), float32(0)
	l, err := engine.NewDeviceLoaderFunc(func() ([]*engine.Tensor, error) {
		made++
		switch made {
		case 2:
			return nil, mine
		case 4:
			panic("four")
		case 5:
			return nil, nil
		}
		x, err := engine.FromSlice([]float32{made, 0.5}, 2)
		return []*engine.Tensor{x}, err
	}, 1, nxd.XLA, engine.DeviceLoaderOptions{Prefetch: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	take := func(want float32) {
		t.Helper()
		batch, err := l.Next()
		if err != nil || len(batch) != 1 {
			t.Fatal(batch, err)
		}
		defer engine.CloseAll(batch)
		host := must[*engine.Tensor](t)(batch[0].ToDevice(nxd.CPU))
		defer host.Close()
		values := must[[]float32](t)(engine.Data[float32](host))
		if values[0] != want || values[1] != 0.5 {
			t.Fatal(values)
		}
	}
	take(1)
	if _, err := l.Next(); !errors.Is(err, mine) {
		t.Fatal(err)
	}
	take(3)
	if _, err := l.Next(); err == nil || !strings.Contains(err.Error(), "panic: four") {
		t.Fatal(err)
	}
	if batch, err := l.Next(); err != nil || batch != nil {
		t.Fatal(batch, err)
	}
	if n := must[int64](t)(l.Position()); n != 2 {
		t.Fatal(n)
	}
}

func TestDeviceLoaderOfADataLoader(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	path := filepath.Join(t.TempDir(), "tokens.bin")
	content := make([]byte, 128)
	for i := 0; i < len(content); i += 2 {
		content[i] = byte(i / 2)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	ranks.Run(t, 1, func(c *nxd.Context) error {
		tokens, err := nxd.NewDataLoader(c, []string{path}, 2, 4, nxd.DataLoaderOptions{})
		if err != nil {
			return err
		}
		defer tokens.Close()
		ids := make([]int64, 16)
		if err := first(tokens.Next(ids, nil), tokens.SetPosition(0)); err != nil {
			return err
		}
		l, err := engine.NewDeviceLoader(tokens, 1, nxd.XLA, engine.DeviceLoaderOptions{})
		if err != nil {
			return err
		}
		defer l.Close()
		for i, position := range []int64{-1, -1, 2} {
			if position >= 0 {
				if err := l.SetPosition(position); err != nil {
					return err
				}
			}
			batch, err := l.Next()
			if err != nil {
				return err
			}
			host, err := batch[0].ToDevice(nxd.CPU)
			if err != nil {
				return err
			}
			got, err := engine.Data[int64](host)
			engine.CloseAll(append(batch, host))
			from := 8
			if i == 0 {
				from = 0
			}
			if err != nil || !reflect.DeepEqual(got, ids[from:from+8]) {
				return fmt.Errorf("batch %d: %v, %w", i, got, err)
			}
		}
		return nil
	})
}
