package nxd_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"libnxd.org/nxd"
	"libnxd.org/nxd/internal/ranks"
)

// A leak of 210 bytes for each object is found in both forms.
var (
	many  = long(10000, 5000)
	slack = int64(long(2<<20, 1<<20))
)

// twice makes objects that are closed, then objects that are left to the collector.
func twice[T interface{ Close() }](t *testing.T, n int, make func() (T, error)) {
	t.Helper()
	closed(t, n, make)
	ranks.Flat(t, n, slack, func() error {
		_, err := make()
		return err
	})
}

// closed makes objects that are closed.
func closed[T interface{ Close() }](t *testing.T, n int, make func() (T, error)) {
	t.Helper()
	ranks.Flat(t, n, slack, func() error {
		x, err := make()
		if err == nil {
			x.Close()
		}
		return err
	})
}

// Making and dropping objects, five thousand of each kind, takes no memory. NXD_LONG=1: ten thousand, of jobs too.
func TestEndurance(t *testing.T) {
	if testing.Short() {
		t.Skip("measures memory")
	}
	t.Run("store", func(t *testing.T) { twice(t, many, nxd.NewLocalStore) })
	t.Run("store of callbacks", func(t *testing.T) {
		twice(t, many, func() (*nxd.Store, error) { return nxd.NewStore(newMemory()) })
	})
	t.Run("array", func(t *testing.T) {
		closed(t, many, func() (nxd.Array[float32], error) { return nxd.NewArray[float32](100) })
	})
	t.Run("schedule", func(t *testing.T) {
		twice(t, many, func() (*nxd.Schedule, error) { return nxd.NewSchedule(nxd.Schedule1F1B, 2, 1, 4) })
	})
	t.Run("error", func(t *testing.T) {
		m := newMemory()
		s, err := nxd.NewStore(m)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		m.fail = func(key string) error { return errors.New(key) }
		ranks.Flat(t, many, slack, func() error {
			if s.Set("k", nil) == nil {
				return errors.New("expected an error")
			}
			return nil
		})
	})
	t.Run("context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		twice(t, many, func() (*nxd.Context, error) {
			return nxd.NewContext(ctx, &nxd.ContextOptions{Size: 1})
		})
	})
	t.Run("job", func(t *testing.T) {
		t.Setenv("NXDGO_PROGRAM", "meet")
		ranks.Flat(t, long(10000, 50), slack, func() error {
			j, err := nxd.Spawn(&nxd.SpawnOptions{Processes: 1, Args: []string{"/bin/true"}})
			if err != nil {
				return err
			}
			defer j.Close()
			return j.Wait(context.Background())
		})
	})
	ranks.Run(t, 1, func(c *nxd.Context) error { enduranceOf(t, c); return c.Finalize() })
}

// long is n in the long form of the tests.
func long(n, short int) int {
	if os.Getenv("NXD_LONG") == "1" {
		return n
	}
	return short
}

// enduranceOf is the objects that need a context.
func enduranceOf(t *testing.T, c *nxd.Context) {
	world, err := c.World()
	if err != nil {
		t.Fatal(err)
	}
	t.Run("group", func(t *testing.T) {
		twice(t, many, func() (*nxd.Group, error) { return c.NewGroup("g", 0) })
	})
	t.Run("work", func(t *testing.T) {
		twice(t, many, func() (*nxd.Work, error) {
			// The works before are done then: a busy machine's queue of them is no leak.
			if err := world.Barrier(); err != nil {
				return nil, err
			}
			return world.BarrierAsync()
		})
	})
	t.Run("shared array", func(t *testing.T) {
		closed(t, many, func() (nxd.Array[float32], error) { return nxd.NewSharedArray[float32](c, 100) })
	})
	values, grads, err := arrays(100)
	if err != nil {
		t.Fatal(err)
	}
	newDDP := func() (*nxd.DDP, error) {
		return nxd.NewDDP(c, world, []nxd.Parameter{{Name: "w", Values: values, Grads: grads}}, nxd.DDPOptions{})
	}
	t.Run("ddp", func(t *testing.T) { twice(t, many, newDDP) })
	ddp, err := newDDP()
	if err != nil {
		t.Fatal(err)
	}
	defer ddp.Close()
	t.Run("optimizer", func(t *testing.T) {
		twice(t, many, func() (*nxd.Optimizer, error) {
			return nxd.NewCustom(ddp, nxd.CustomOptions{Update: sgd, States: 1})
		})
	})
	if err := c.InitModelParallel(nil); err != nil {
		t.Fatal(err)
	}
	t.Run("pipeline", func(t *testing.T) {
		twice(t, many, func() (*nxd.Pipeline, error) {
			return nxd.NewPipeline(c, &doubling{last: true}, [][]nxd.Value{nil}, [][]nxd.Value{nil}, nxd.PipelineOptions{})
		})
	})
}
