package nxd_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"libnxd.org/nxd"
	"libnxd.org/nxd/internal/ranks"
)

// doubling is two stages: the first sends its microbatch's number, the second doubles it as the loss.
type doubling struct {
	last   bool
	fail   error
	panics bool
	grads  float32
}

func (d *doubling) Forward(call nxd.StageCall, inputs, outputs []nxd.Buffer) (float64, error) {
	if d.fail != nil && call.Microbatch == 1 {
		return 0, d.fail
	}
	if d.panics {
		panic("in a stage")
	}
	for _, b := range append(inputs, outputs...) {
		if err := check("rows", b.Shape()[0], 2); err != nil {
			return 0, err
		}
	}
	if err := check("arrays", len(inputs)+len(outputs), 1); err != nil {
		return 0, err
	}
	if !d.last {
		x, err := nxd.View[float32](outputs[0])
		if err != nil {
			return 0, err
		}
		for i := range x {
			x[i] = float32(call.Microbatch)
		}
		return 0, nil
	}
	x, err := nxd.View[float32](inputs[0])
	if err != nil {
		return 0, err
	}
	return 2 * float64(x[0]), nil
}

func (d *doubling) Backward(call nxd.StageCall, inputs, gradOutputs, gradInputs []nxd.Buffer) error {
	if d.last {
		g, err := nxd.View[float32](gradInputs[0])
		if err != nil {
			return err
		}
		for i := range g {
			g[i] = float32(call.LossWeight)
		}
		return nil
	}
	g, err := nxd.View[float32](gradOutputs[0])
	if err != nil {
		return err
	}
	d.grads += g[0]
	return nil
}

func runStages(c *nxd.Context, stage *doubling, schedule nxd.ScheduleKind) (float64, error) {
	if err := c.InitModelParallel(&nxd.ParallelOptions{PipelineParallelSize: 2}); err != nil {
		return 0, err
	}
	value := []nxd.Value{{Name: "x", Shape: []int64{2, 3}, DType: nxd.F32, NeedsGrad: true}}
	in, out := [][]nxd.Value{nil}, [][]nxd.Value{value}
	if stage.last {
		in, out = out, in
	}
	p, err := nxd.NewPipeline(c, stage, in, out, nxd.PipelineOptions{Microbatches: 4, Schedule: schedule,
		BroadcastAndAverageLoss: true})
	if err != nil {
		return 0, err
	}
	defer p.Close()
	// The lists are the caller's again.
	value[0].Shape[0] = 4
	in[0], out[0] = append(in[0], value...), append(out[0], value...)
	return p.Run(true)
}

func TestPipeline(t *testing.T) {
	ranks.Run(t, 2, func(c *nxd.Context) error {
		r, err := c.Rank()
		if err != nil {
			return err
		}
		stage := &doubling{last: r == 1}
		loss, err := runStages(c, stage, nxd.ScheduleGPipe)
		if err := first(err, check("loss", loss, 2*(0+1+2+3)/4.0)); err != nil {
			return err
		}
		if !stage.last && stage.grads != 1 {
			t.Errorf("gradients: expected 1, got %v", stage.grads)
		}
		return c.Finalize()
	})
}

// A stage that fails fails the run on all ranks; its own error comes out on its rank.
func TestStageFails(t *testing.T) {
	full := errors.New("out of data")
	ends := ranks.Errors(t, context.Background(), 2, func(c *nxd.Context) error {
		r, err := c.Rank()
		if err != nil {
			return err
		}
		stage := &doubling{last: r == 1}
		if r == 1 {
			stage.fail = full
		}
		_, err = runStages(c, stage, nxd.ScheduleDefault)
		return err
	})
	if !errors.Is(ends[1], full) || !errors.Is(ends[1], nxd.User) {
		t.Errorf("rank 1: got %v", ends[1])
	}
	if ends[0] == nil || !strings.Contains(ends[0].Error(), "rank 1") ||
		!strings.Contains(ends[0].Error(), "out of data") {
		t.Errorf("rank 0: got %v", ends[0])
	}
	if strings.Count(ends[1].Error(), "out of data") != 1 {
		t.Errorf("rank 1 repeats itself: %v", ends[1])
	}
	ends = ranks.Errors(t, context.Background(), 2, func(c *nxd.Context) error {
		r, err := c.Rank()
		if err != nil {
			return err
		}
		_, err = runStages(c, &doubling{last: r == 1, panics: true}, nxd.ScheduleDefault)
		return err
	})
	var p *nxd.PanicError
	if !errors.As(ends[0], &p) || p.Value != "in a stage" || !strings.Contains(ends[0].Error(), "pipeline_test.go") {
		t.Errorf("a panic: got %v", ends[0])
	}
}

// Stages that cannot split their backward pass are rejected where a schedule needs it.
func TestUnsplitStage(t *testing.T) {
	for rank, err := range ranks.Errors(t, context.Background(), 2, func(c *nxd.Context) error {
		r, err := c.Rank()
		if err != nil {
			return err
		}
		_, err = runStages(c, &doubling{last: r == 1}, nxd.ScheduleZeroBubble)
		return err
	}) {
		if !errors.Is(err, nxd.InvalidArgument) {
			t.Errorf("rank %d: got %v", rank, err)
		}
	}
}

// A name or a list that this binding refuses before the library has it: the peers hear of it at once.
func TestPeersHearOfWhatIsRefusedHere(t *testing.T) {
	value := func(name string) []nxd.Value {
		return []nxd.Value{{Name: name, Shape: []int64{2}, DType: nxd.F32, NeedsGrad: true}}
	}
	pipeline := func(c *nxd.Context, rank int, name string, chunks int) error {
		in, out := [][]nxd.Value{nil}, [][]nxd.Value{value("x")}
		if rank == 1 {
			in, out = [][]nxd.Value{value(name)}, in
		}
		p, err := nxd.NewPipeline(c, &doubling{last: rank == 1}, in, out, nxd.PipelineOptions{Chunks: chunks})
		if err == nil {
			p.Close()
		}
		return err
	}
	nul := func(bad bool) string {
		if bad {
			return "a\x00b"
		}
		return "a"
	}
	calls := map[string]func(c *nxd.Context, rank int) error{
		"value":  func(c *nxd.Context, rank int) error { return pipeline(c, rank, nul(rank == 1), 1) },
		"chunks": func(c *nxd.Context, rank int) error { return pipeline(c, rank, "x", 1+rank) },
		"timeline": func(c *nxd.Context, rank int) error {
			in, out := [][]nxd.Value{nil}, [][]nxd.Value{value("x")}
			if rank == 1 {
				in, out = out, in
			}
			p, err := nxd.NewPipeline(c, &doubling{last: rank == 1}, in, out, nxd.PipelineOptions{})
			if err != nil {
				return err
			}
			defer p.Close()
			return first(p.SetTimeline(true), p.WriteTimeline(t.TempDir()+"/"+nul(rank == 1)+".json"))
		},
		"tag": func(c *nxd.Context, rank int) error {
			world, err := c.World()
			if err == nil {
				_, err = world.Rendezvous(nul(rank == 1), nil)
			}
			return err
		},
		"name": func(c *nxd.Context, rank int) error {
			_, err := c.NewGroup(nul(rank == 1), 0, 1)
			return err
		},
		"rank": func(c *nxd.Context, rank int) error {
			list := []int{0, 1}
			if rank == 1 {
				list = append(list, rank<<32) // 0 in 32 bits
			}
			_, err := c.NewGroup("pair", list...)
			return err
		},
	}
	for name, call := range calls {
		ranks.Run(t, 2, func(c *nxd.Context) error {
			rank, err := c.Rank()
			if err != nil {
				return err
			}
			if err := c.InitModelParallel(&nxd.ParallelOptions{PipelineParallelSize: 2}); err != nil {
				return err
			}
			err = call(c, rank)
			if !errors.Is(err, nxd.InvalidArgument) || rank == 0 && !strings.Contains(err.Error(), "rank 1") {
				t.Errorf("%s: rank %d: got %v", name, rank, err)
			}
			world, err := c.World()
			if err != nil {
				return err
			}
			return first(world.Barrier(), c.Finalize())
		})
	}
}
