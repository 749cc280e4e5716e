// Costs of calls through package nxd, on two ranks that it starts itself: a getter, and an all-reduce
// of 256 numbers.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sort"
	"time"

	"libnxd.org/nxd"
)

// median is the median time of one of n calls, over batches.
func median(batches, n int, f func() error) (time.Duration, error) {
	times := make([]time.Duration, batches)
	for i := range times {
		start := time.Now()
		for j := 0; j < n; j++ {
			if err := f(); err != nil {
				return 0, err
			}
		}
		times[i] = time.Since(start)
	}
	sort.Slice(times, func(i, j int) bool { return times[i] < times[j] })
	return times[batches/2], nil
}

func run() error {
	runtime.LockOSThread()
	c, err := nxd.NewContext(context.Background(), &nxd.ContextOptions{Timeout: time.Minute})
	if err != nil {
		return err
	}
	defer c.Close()
	world, err := c.World()
	if err != nil {
		return err
	}
	if size, err := world.Size(); err != nil || size != 2 {
		return fmt.Errorf("expected two ranks, got %d (%v)", size, err)
	}
	values := make([]float32, 256)
	allReduce := func() error { return nxd.AllReduce(world, values, values, nxd.Sum) }
	if _, err := median(1, 1000, allReduce); err != nil { // warm
		return err
	}
	empty, err := median(101, 1000, func() error {
		_, err := c.Rank()
		return err
	})
	if err != nil {
		return err
	}
	if err := world.Barrier(); err != nil {
		return err
	}
	reduce, err := median(2001, 1, allReduce)
	if err != nil {
		return err
	}
	lines := fmt.Sprintf("empty_call_ns %.1f\nall_reduce_1k_us %.2f", float64(empty.Nanoseconds())/1000,
		float64(reduce.Nanoseconds())/1000)
	if err := c.Print(lines); err != nil {
		return err
	}
	return c.Finalize()
}

func start() error {
	job, err := nxd.Spawn(&nxd.SpawnOptions{Processes: 2})
	if errors.Is(err, nxd.InvalidState) { // this process is a rank already
		return run()
	}
	if err != nil {
		return err
	}
	defer job.Close()
	return job.Wait(context.Background())
}

func main() {
	if err := start(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}
