package nxd_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"libnxd.org/nxd"
	"libnxd.org/nxd/internal/ranks"
)

func check[T any](what string, got, want T) error {
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("%s: expected %v, got %v", what, want, got)
	}
	return nil
}

// all runs checks until one fails.
func all(checks ...func() error) error {
	for _, f := range checks {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

func TestRendezvous(t *testing.T) {
	ranks.Run(t, 2, func(c *nxd.Context) error {
		g, err := c.World()
		if err != nil {
			return err
		}
		r, err := g.Rank()
		if err != nil {
			return err
		}
		brought, err := g.Rendezvous("here", make([]byte, 3*r))
		if err = first(err, check("payloads", brought, [][]byte{{}, {0, 0, 0}})); err != nil {
			return err
		}
		_, err = g.Rendezvous(fmt.Sprintf("place %d", r), nil)
		if err == nil || !strings.Contains(err.Error(), "\"place 1\" on rank 1") {
			return fmt.Errorf("different tags: %v", err)
		}
		return nil
	})
}

func TestCollectives(t *testing.T) {
	ranks.Run(t, 2, func(c *nxd.Context) error {
		g, err := c.World()
		if err != nil {
			return err
		}
		r, err := g.Rank()
		if err != nil {
			return err
		}
		x := float32(r + 1)
		return all(
			func() error {
				v := []float32{x, 10 * x}
				return first(nxd.AllReduce(g, v, v, nxd.Sum), check("all_reduce", v, []float32{3, 30}))
			},
			func() error {
				v := make([]float64, 1)
				return first(nxd.AllReduce(g, []float64{float64(x)}, v, nxd.Avg), check("avg", v, []float64{1.5}))
			},
			func() error {
				v := make([]int64, 4)
				return first(nxd.AllGather(g, []int64{int64(r), 7}, v), check("all_gather", v, []int64{0, 7, 1, 7}))
			},
			func() error {
				v := make([]int32, 1)
				return first(nxd.ReduceScatter(g, []int32{5, 6}, v, nxd.Sum),
					check("reduce_scatter", v, []int32{int32(10 + 2*r)}))
			},
			func() error {
				v := []bool{r == 1, false}
				return first(nxd.Broadcast(g, v, 1), check("broadcast", v, []bool{true, false}))
			},
			func() error {
				v := make([]uint8, 2)
				return first(nxd.AllToAll(g, []uint8{uint8(10 * r), uint8(10*r + 1)}, v),
					check("all_to_all", v, []uint8{uint8(r), uint8(10 + r)}))
			},
			func() error {
				v := []nxd.BFloat16{nxd.ToBFloat16(x)}
				return first(nxd.AllReduce(g, v, v, nxd.Sum), check("bf16", v[0].Float32(), 3))
			},
			func() error {
				v := []int16{int16(r)}
				if r == 0 {
					return nxd.Send(g, []int16{9}, 1, 3)
				}
				return first(nxd.Receive(g, v, 0, 3), check("receive", v, []int16{9}))
			},
			func() error { return nxd.AllReduce(g, []float32(nil), nil, nxd.Sum) },
			g.Barrier, c.Finalize)
	})
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestAsync(t *testing.T) {
	ranks.Run(t, 2, func(c *nxd.Context) error {
		g, err := c.World()
		if err != nil {
			return err
		}
		r, err := g.Rank()
		if err != nil {
			return err
		}
		const n = 4
		send, err := nxd.NewArray[float32](n)
		if err != nil {
			return err
		}
		recv, err := nxd.NewSharedArray[float32](c, 2*n)
		if err != nil {
			return err
		}
		for i := range send.Data() {
			send.Data()[i] = float32(10*r + i)
		}
		gather, err := nxd.AllGatherAsync(g, send, recv)
		if err != nil {
			return err
		}
		barrier, err := g.BarrierAsync()
		if err != nil {
			return err
		}
		if descriptor, err := barrier.Descriptor(); err != nil || descriptor < 0 {
			return fmt.Errorf("descriptor %d, %v", descriptor, err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), ranks.Timeout)
		defer cancel()
		if err := first(gather.Wait(ctx), barrier.Wait(nil)); err != nil {
			return err
		}
		want := []float32{0, 1, 2, 3, 10, 11, 12, 13}
		if err := check("gathered", append([]float32(nil), recv.Data()...), want); err != nil {
			return err
		}
		sum, err := nxd.AllReduceAsync(g, recv.Part(0, 2), recv.Part(0, 2), nxd.Sum)
		if err != nil {
			return err
		}
		if err := first(sum.Wait(ctx), check("sum", recv.Data()[1], 2)); err != nil {
			return err
		}
		done, err := sum.Done()
		if err := first(err, check("done", done, true)); err != nil {
			return err
		}
		if err := sum.Cancel(); !errors.Is(err, nxd.InvalidState) {
			return fmt.Errorf("cancel of an ended work: %v", err)
		}
		if err := c.Finalize(); err != nil {
			return err
		}
		c.Close()
		return check("shared memory of a closed context", recv.Data() == nil, true)
	})
}

// A wait ends with its context, and the work goes on.
func TestWaitIsCancelled(t *testing.T) {
	cancelled := make(chan struct{})
	ranks.Run(t, 2, func(c *nxd.Context) error {
		g, err := c.World()
		if err != nil {
			return err
		}
		r, err := g.Rank()
		if err != nil {
			return err
		}
		if r == 1 {
			<-cancelled
			return first(g.Barrier(), c.Finalize())
		}
		w, err := g.BarrierAsync()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
		defer cancel()
		err = w.Wait(ctx)
		close(cancelled)
		if !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("expected the context's error, got %v", err)
		}
		return first(w.Wait(context.Background()), c.Finalize())
	})
}

// A work that ends just when a wait looks at its context has ended well.
func TestWaitBesideItsSlices(t *testing.T) {
	const groups, rounds = 8, 40
	ranks.Run(t, 2, func(c *nxd.Context) error {
		r, err := c.Rank()
		if err != nil {
			return err
		}
		world, err := c.World()
		if err != nil {
			return err
		}
		var each []*nxd.Group
		for i := 0; i < groups; i++ {
			g, err := c.NewGroup("", 0, 1)
			if err != nil {
				return err
			}
			each = append(each, g)
		}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		ends := make(chan error, groups)
		for round := 0; round < rounds; round++ {
			if err := world.Barrier(); err != nil {
				return err
			}
			if r == 1 {
				// At the end of the first slice, or shortly before or behind it.
				time.Sleep(20*time.Millisecond - 100*time.Microsecond)
			}
			for i, g := range each {
				if r == 1 {
					time.Sleep(time.Duration(i) * 10 * time.Microsecond)
					if err := g.Barrier(); err != nil {
						return err
					}
					continue
				}
				w, err := g.BarrierAsync()
				if err != nil {
					return err
				}
				go func() { ends <- w.Wait(ctx) }()
			}
			for i := 0; r == 0 && i < groups; i++ {
				if err := <-ends; err != nil {
					return err
				}
			}
		}
		return c.Finalize()
	})
}

func TestGroupsAndLayout(t *testing.T) {
	ranks.Run(t, 2, func(c *nxd.Context) error {
		r, err := c.Rank()
		if err != nil {
			return err
		}
		own, err := c.NewGroup("own", r)
		if err != nil {
			return err
		}
		members, err := own.Ranks()
		if err := first(err, check("ranks", members, []int{r})); err != nil {
			return err
		}
		if err := first(own.SetTimeout(ranks.Timeout), own.Barrier()); err != nil {
			return err
		}
		own.Close()
		if err := c.InitModelParallel(&nxd.ParallelOptions{TensorParallelSize: 2}); err != nil {
			return err
		}
		groups, err := c.ParallelGroups(nxd.AxisTensor)
		if err := first(err, check("groups", groups, [][]int{{0, 1}})); err != nil {
			return err
		}
		size, err := c.ParallelSize(nxd.AxisTensor)
		if err := first(err, check("size", size, 2), check("initialized", c.ModelParallelInitialized(), true)); err != nil {
			return err
		}
		record, err := c.FlightRecord()
		if err := first(err, check("record", strings.HasPrefix(record, "{"), true)); err != nil {
			return err
		}
		return first(c.DestroyModelParallel(), c.Finalize())
	})
	groups, err := nxd.LayoutGroups(&nxd.ParallelOptions{TensorParallelSize: 2}, 4, nxd.AxisData)
	if err := first(err, check("layout", groups, [][]int{{0, 2}, {1, 3}})); err != nil {
		t.Error(err)
	}
}
