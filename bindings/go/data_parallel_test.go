package nxd_test

import (
	"errors"
	"math"
	"path/filepath"
	"testing"

	"libnxd.org/nxd"
	"libnxd.org/nxd/internal/ranks"
)

// arrays is a parameter of n values 1, 2, 3 and so on, with gradients.
func arrays(n int) (values, grads nxd.Array[float32], err error) {
	if values, err = nxd.NewArray[float32](n); err != nil {
		return values, grads, err
	}
	for i := range values.Data() {
		values.Data()[i] = float32(i + 1)
	}
	grads, err = nxd.NewArray[float32](n)
	return values, grads, err
}

// sgd is plain SGD as a rule of the program's own, counting its updates in a state.
func sgd(u *nxd.Update) error {
	values, err := nxd.View[float32](u.Values)
	if err != nil {
		return err
	}
	grad, err := nxd.View[float32](u.Grad)
	if err != nil {
		return err
	}
	updates, err := nxd.View[float32](u.States[0])
	if err != nil {
		return err
	}
	for i := range values {
		if updates[i] != float32(u.Step-1) {
			return errors.New("the state was not kept")
		}
		updates[i]++
		values[i] -= float32(u.LearningRate * u.GradScale * float64(grad[i]))
	}
	return nil
}

func train(c *nxd.Context, zero int32, make func(*nxd.DDP) (*nxd.Optimizer, error)) ([]float32, error) {
	const n = 1000
	rank, err := c.Rank()
	if err != nil {
		return nil, err
	}
	values, grads, err := arrays(n)
	if err != nil {
		return nil, err
	}
	ddp, err := nxd.NewDDP(c, nil, []nxd.Parameter{{Name: "w", Values: values, Grads: grads, Shape: []int64{n / 10, 10}}},
		nxd.DDPOptions{ZeroStage: zero})
	if err != nil {
		return nil, err
	}
	defer ddp.Close()
	o, err := make(ddp)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	for step := 0; step < 3; step++ {
		for i := range grads.Data() {
			grads.Data()[i] = float32(rank + 1) // the ranks' sum is 3
		}
		report, err := o.Step(nxd.FinishOptions{})
		if err := first(err, check("norm", math.Abs(report.Norm-3*math.Sqrt(n)) < 1e-3, true)); err != nil {
			return nil, err
		}
	}
	state, _, err := o.ParameterState()
	return values.Data(), first(err, check("state", state, nxd.ParameterStateNew))
}

func TestOptimizers(t *testing.T) {
	rate := nxd.SGDOptions{LearningRate: 0.5}
	custom := func(d *nxd.DDP) (*nxd.Optimizer, error) {
		return nxd.NewCustom(d, nxd.CustomOptions{Update: sgd, LearningRate: 0.5, States: 1})
	}
	ranks.Run(t, 2, func(c *nxd.Context) error {
		for zero := int32(0); zero < 2; zero++ {
			plain, err := train(c, zero, func(d *nxd.DDP) (*nxd.Optimizer, error) { return nxd.NewSGD(d, rate) })
			if err := first(err, check("first value", plain[0], 1-3*0.5*3)); err != nil {
				return err
			}
			own, err := train(c, zero, custom)
			if err := first(err, check("the rule's values", own, plain)); err != nil {
				return err
			}
		}
		return c.Finalize()
	})
}

// A rule that fails, or panics, fails the step on its rank.
func TestRuleFails(t *testing.T) {
	broken := errors.New("broken rule")
	for name, update := range map[string]func(*nxd.Update) error{
		"error": func(*nxd.Update) error { return broken },
		"panic": func(*nxd.Update) error { panic(broken) },
	} {
		ranks.Run(t, 1, func(c *nxd.Context) error {
			_, err := train(c, 0, func(d *nxd.DDP) (*nxd.Optimizer, error) {
				return nxd.NewCustom(d, nxd.CustomOptions{Update: update})
			})
			var p *nxd.PanicError
			if !errors.Is(err, nxd.User) || !errors.Is(err, broken) && !errors.As(err, &p) {
				t.Errorf("%s: got %v", name, err)
			}
			return nil
		})
	}
}

// A vocabulary of five rows, three on each of two ranks, and a norm whose gradients are partial.
func TestShards(t *testing.T) {
	ranks.Run(t, 2, func(c *nxd.Context) error {
		rank, err := tensorParallel(c)
		if err != nil {
			return err
		}
		rows, rowGrads, err := arrays(6)
		if err != nil {
			return err
		}
		norm, normGrads, err := arrays(2)
		if err != nil {
			return err
		}
		ddp, err := nxd.NewDDP(c, nil, []nxd.Parameter{
			{Name: "vocabulary", Values: rows, Grads: rowGrads, Shape: []int64{3, 2}},
			{Name: "norm", Values: norm, Grads: normGrads, Shape: []int64{2}},
		}, nxd.DDPOptions{})
		if err != nil {
			return err
		}
		defer ddp.Close()
		fused := nxd.ShardOptions{HasDim: 1, Size: 5, NumFused: 2}
		err = ddp.SetShards(nxd.ShardedParameter{Shard: &fused}, nxd.ShardedParameter{})
		if !errors.Is(err, nxd.InvalidArgument) {
			t.Errorf("fused and padded: got %v", err)
		}
		padded := nxd.ShardOptions{HasDim: 1, Size: 5}
		err = ddp.SetShards(nxd.ShardedParameter{Shard: &padded}, nxd.ShardedParameter{PartialGrad: true})
		if err != nil {
			return err
		}
		for i := range rowGrads.Data() {
			if rank == 0 || i < 4 { // the sixth row is padding
				rowGrads.Data()[i] = 1
			}
		}
		for i := range normGrads.Data() {
			normGrads.Data()[i] = 1
		}
		found, err := ddp.Finish(nxd.FinishOptions{})
		return first(err, check("norm", math.Abs(found-math.Sqrt(10+2*2*2)) < 1e-6, true), c.Finalize())
	})
}

func TestBadParameters(t *testing.T) {
	ranks.Run(t, 1, func(c *nxd.Context) error {
		values, grads, err := arrays(6)
		if err != nil {
			return err
		}
		_, err = nxd.NewDDP(c, nil, []nxd.Parameter{{Name: "w", Values: values, Grads: grads, Shape: []int64{4}}},
			nxd.DDPOptions{})
		if !errors.Is(err, nxd.InvalidArgument) {
			t.Errorf("a shape of 4 over 6 values: got %v", err)
		}
		_, err = nxd.NewDDP(c, nil, []nxd.Parameter{{Name: "w", Values: values, Grads: grads.Part(0, 3)}},
			nxd.DDPOptions{})
		if !errors.Is(err, nxd.InvalidArgument) {
			t.Errorf("3 gradients of 6 values: got %v", err)
		}
		if _, err := nxd.View[float64](nxd.NewBuffer(nil, nxd.F32, nil)); !errors.Is(err, nxd.InvalidArgument) {
			t.Errorf("a view of another type: got %v", err)
		}
		return nil
	})
}

func TestSchedules(t *testing.T) {
	half, err := nxd.LRScheduleFactor(nxd.LRScheduleOptions{Kind: nxd.LRScheduleLinear, TotalSteps: 10}, 5)
	if err != nil || half != 0.5 {
		t.Errorf("got %v, %v", half, err)
	}
	s, err := nxd.NewSchedule(nxd.Schedule1F1B, 4, 1, 8)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	tasks := make([][]nxd.Task, 4)
	for rank := range tasks {
		if tasks[rank], err = s.Tasks(rank); err != nil || len(tasks[rank]) != 16 {
			t.Fatalf("rank %d: %d tasks, %v", rank, len(tasks[rank]), err)
		}
	}
	report, err := s.Report(&nxd.Costs{Forward: []float64{1, 1, 1, 1}})
	if err != nil || report.Makespan <= 0 {
		t.Errorf("got %v, %v", report, err)
	}
	if _, err := s.Report(&nxd.Costs{Forward: []float64{1}}); !errors.Is(err, nxd.InvalidArgument) {
		t.Errorf("costs of one stage: got %v", err)
	}
	own, err := nxd.NewTaskSchedule(1, 8, tasks)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	tasks[0] = tasks[0][1:]
	if _, err := nxd.NewTaskSchedule(1, 8, tasks); !errors.Is(err, nxd.InvalidArgument) {
		t.Errorf("a missing task: got %v", err)
	}
}

// A gradient that is somewhere else at each step, and memory of another size.
func TestRebind(t *testing.T) {
	ranks.Run(t, 2, func(c *nxd.Context) error {
		values, grads, err := arrays(6)
		if err != nil {
			return err
		}
		defer values.Close()
		defer grads.Close()
		ddp, err := nxd.NewDDP(c, nil, []nxd.Parameter{{Name: "w", Values: values, Grads: grads, Shape: []int64{2, 3}}},
			nxd.DDPOptions{})
		if err != nil {
			return err
		}
		defer ddp.Close()
		for step := 1; step <= 2; step++ {
			moved, err := nxd.NewArray[float32](6)
			if err != nil {
				return err
			}
			defer moved.Close()
			moved.Data()[5] = float32(step)
			if err := ddp.Rebind(0, nil, moved, 2, 3); err != nil {
				return err
			}
			if _, err := ddp.Finish(nxd.FinishOptions{}); err != nil {
				return err
			}
			if got := moved.Data()[5]; got != float32(2*step) {
				t.Errorf("step %d: the sum is %g", step, got)
			}
		}
		if grads.Data()[5] != 0 {
			t.Error("memory that was left has been written")
		}
		other, _, err := arrays(5)
		if err != nil {
			return err
		}
		defer other.Close()
		if err := ddp.Rebind(0, nil, other, 5); !errors.Is(err, nxd.InvalidArgument) {
			t.Errorf("another shape: %v", err)
		}
		return nil
	})
}

// A channels-last array trains as the same one in C order does, and their saved states are one.
func TestDimensionsInAnotherOrder(t *testing.T) {
	shape, last := []int64{2, 3, 2, 2}, []int64{12, 1, 6, 3}
	// Where the element of an index of C order lies.
	place := func(i int) int { return i/12*12 + i/4%3 + i/2%2*6 + i%2*3 }
	path := filepath.Join(t.TempDir(), "state.safetensors")
	ranks.Run(t, 2, func(c *nxd.Context) error {
		make := func(strides []int64, at func(int) int, value, grad float32) (nxd.Parameter, *nxd.DDP, *nxd.Optimizer, error) {
			values, grads, err := arrays(24)
			if err != nil {
				return nxd.Parameter{}, nil, nil, err
			}
			for i := 0; i < 24; i++ {
				values.Data()[at(i)], grads.Data()[at(i)] = 100-value*float32(i), grad*float32(i)
			}
			p := nxd.Parameter{Name: "w", Values: values, Grads: grads, Shape: shape, Strides: strides}
			ddp, err := nxd.NewDDP(c, nil, []nxd.Parameter{p}, nxd.DDPOptions{ZeroStage: 1})
			if err != nil {
				return p, nil, nil, err
			}
			sgd, err := nxd.NewSGD(ddp, nxd.SGDOptions{LearningRate: 0.5, Momentum: 0.5})
			return p, ddp, sgd, err
		}
		check := func(what string, p nxd.Parameter, at func(int) int, factor float32) {
			for i := 0; i < 24; i++ {
				if got := p.Values.(nxd.Array[float32]).Data()[at(i)]; got != 100-factor*float32(i) {
					t.Errorf("%s: element %d is %g, expected %g", what, i, got, 100-factor*float32(i))
				}
			}
		}
		turned, ddp, sgd, err := make(last, place, 1, 1)
		if err != nil {
			return err
		}
		if _, err := sgd.Step(nxd.FinishOptions{}); err != nil {
			return err
		}
		check("channels last", turned, place, 2)
		if err := sgd.Save(path); err != nil {
			return err
		}
		plain, _, loaded, err := make(nil, func(i int) int { return i }, 2, 0)
		if err != nil {
			return err
		}
		if err := loaded.Load(path); err != nil {
			return err
		}
		if _, err := loaded.Step(nxd.FinishOptions{}); err != nil {
			return err
		}
		check("loaded", plain, func(i int) int { return i }, 2.5)
		// Memory that has moved lies in the same order.
		moved, err := nxd.NewArray[float32](24)
		if err != nil {
			return err
		}
		if err := ddp.Rebind(0, nil, moved); err != nil {
			return err
		}
		if _, err := sgd.Step(nxd.FinishOptions{}); err != nil {
			return err
		}
		check("moved", turned, place, 2.5)
		// Gaps, strides that leave the memory, and too few of them are errors on all ranks.
		for _, bad := range [][]int64{{12, 1, 6, 0}, {12, 1, 6, 4}, {12, 1, 6}} {
			p := turned
			p.Strides = bad
			if _, err := nxd.NewDDP(c, nil, []nxd.Parameter{p}, nxd.DDPOptions{}); !errors.Is(err, nxd.InvalidArgument) {
				t.Errorf("strides %v: got %v", bad, err)
			}
		}
		return c.Finalize()
	})
}
