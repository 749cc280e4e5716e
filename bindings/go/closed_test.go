package nxd_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"libnxd.org/nxd"
	"libnxd.org/nxd/internal/ranks"
)

// wants fails unless err has the status.
func wants(t *testing.T, what string, err error, status nxd.Status) {
	t.Helper()
	if !errors.Is(err, status) {
		t.Errorf("%s: expected %v, got %v", what, status, err)
	}
}

// An object ends with the one it is borrowed from: the library has let go of its memory.
func TestBorrowedObjectsEndWithTheirOwner(t *testing.T) {
	ranks.Run(t, 1, func(c *nxd.Context) error {
		world, err := c.World()
		if err != nil {
			return err
		}
		if err := c.InitModelParallel(nil); err != nil {
			return err
		}
		data, err := c.ParallelGroup(nxd.AxisData)
		if err != nil {
			return err
		}
		if err := c.DestroyModelParallel(); err != nil {
			return err
		}
		_, err = data.Size()
		wants(t, "a group of a layout that is gone", err, nxd.InvalidState)
		c.Close()
		_, err = world.Size()
		wants(t, "the world of a closed context", err, nxd.InvalidArgument)
		wants(t, "a barrier of a closed context", world.Barrier(), nxd.InvalidArgument)
		return nil
	})
}

// An argument that may be left out is not left out where a closed object is given.
func TestClosedArgumentsAreRefused(t *testing.T) {
	ranks.Run(t, 1, func(c *nxd.Context) error {
		values, grads, err := arrays(4)
		if err != nil {
			return err
		}
		defer values.Close()
		defer grads.Close()
		group, err := c.NewGroup("g", 0)
		if err != nil {
			return err
		}
		group.Close()
		_, err = nxd.NewDDP(c, group, []nxd.Parameter{{Name: "w", Values: values, Grads: grads}}, nxd.DDPOptions{})
		wants(t, "a closed group", err, nxd.InvalidArgument)
		if err := c.InitModelParallel(nil); err != nil {
			return err
		}
		schedule, err := nxd.NewSchedule(nxd.ScheduleGPipe, 1, 1, 2)
		if err != nil {
			return err
		}
		schedule.Close()
		one := [][]nxd.Value{nil}
		_, err = nxd.NewPipeline(c, lossOnly{}, one, one, nxd.PipelineOptions{Microbatches: 2, CustomSchedule: schedule})
		wants(t, "a closed schedule", err, nxd.InvalidArgument)
		gone, err := nxd.NewArray[float32](4)
		if err != nil {
			return err
		}
		gone.Close()
		_, err = nxd.NewDDP(c, nil, []nxd.Parameter{{Name: "w", Values: gone, Grads: grads}}, nxd.DDPOptions{})
		wants(t, "a closed array", err, nxd.InvalidArgument)
		return first(c.Finalize())
	})
}

type lossOnly struct{}

func (lossOnly) Forward(nxd.StageCall, []nxd.Buffer, []nxd.Buffer) (float64, error) { return 1, nil }
func (lossOnly) Backward(nxd.StageCall, []nxd.Buffer, []nxd.Buffer, []nxd.Buffer) error {
	return nil
}

// Numbers that C's have no room for are refused, and not cut to others.
func TestNumbersBeyondThoseOfC(t *testing.T) {
	const beyond = 1 << 32
	ranks.Run(t, 1, func(c *nxd.Context) error {
		g, err := c.World()
		if err != nil {
			return err
		}
		wants(t, "root", nxd.Broadcast(g, make([]float32, 1), beyond), nxd.InvalidArgument)
		wants(t, "tag", nxd.Send(g, make([]float32, 1), 0, beyond), nxd.InvalidArgument)
		_, _, err = nxd.LayoutFind(nil, beyond+1, nxd.AxisData, 0)
		wants(t, "world size", err, nxd.InvalidArgument)
		_, err = nxd.SampleEpoch(4, beyond+1, 0, 0, 0, false, false)
		wants(t, "ranks", err, nxd.InvalidArgument)
		_, err = nxd.NewTCPStore("127.0.0.1", beyond, true, time.Second)
		wants(t, "port", err, nxd.InvalidArgument)
		_, err = nxd.NewSchedule(nxd.ScheduleGPipe, beyond+1, 1, 2)
		wants(t, "ranks of a schedule", err, nxd.InvalidArgument)
		return c.Finalize()
	})
}

func TestPlainKernelsBesideTheirVariable(t *testing.T) {
	for _, variable := range []string{"0", "1"} {
		t.Setenv("NXD_PLAIN_KERNELS", variable)
		for toggle, want := range map[nxd.Toggle]bool{nxd.Default: variable == "1", nxd.On: true, nxd.Off: false} {
			c, err := nxd.NewContext(bounded(t), &nxd.ContextOptions{PlainKernels: toggle})
			if err != nil {
				t.Fatal(err)
			}
			if plain, err := c.PlainKernels(); err != nil || plain != want {
				t.Errorf("NXD_PLAIN_KERNELS=%s, %v: %v, %v", variable, toggle, plain, err)
			}
			c.Close()
		}
	}
}

// The longest duration, which programs give for no bound, is one.
func TestTheLongestDuration(t *testing.T) {
	store, err := nxd.NewTCPStore("127.0.0.1", 0, true, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := store.Set("key", []byte("value")); err != nil {
		t.Error(err)
	}
	if value, err := store.Get("key", math.MaxInt64); err != nil || string(value) != "value" {
		t.Errorf("got %q, %v", value, err)
	}
}

// The schedule that a pipeline lends has as many stages as the pipeline.
func TestCostsOfAPipelinesSchedule(t *testing.T) {
	ranks.Run(t, 1, func(c *nxd.Context) error {
		if err := c.InitModelParallel(nil); err != nil {
			return err
		}
		one := [][]nxd.Value{nil}
		p, err := nxd.NewPipeline(c, lossOnly{}, one, one, nxd.PipelineOptions{Microbatches: 2})
		if err != nil {
			return err
		}
		defer p.Close()
		s, err := p.Schedule()
		if err != nil {
			return err
		}
		report, err := s.Report(&nxd.Costs{Forward: []float64{3}, BackwardInput: []float64{1}, BackwardWeight: []float64{1}})
		if err != nil {
			return err
		}
		if report.Makespan != 10 {
			t.Errorf("expected 2 microbatches of 5, got %g", report.Makespan)
		}
		_, err = s.Report(&nxd.Costs{Forward: []float64{3, 3}})
		wants(t, "costs of two stages", err, nxd.InvalidArgument)
		return c.Finalize()
	})
}
