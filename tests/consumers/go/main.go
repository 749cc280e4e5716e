// Curvefit fits a small network to a noisy curve, on two ranks that each see half of the points.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"runtime"

	"libnxd.org/nxd"
)

func main() {
	log.SetFlags(0)
	steps := flag.Int("steps", 60, "training steps")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := start(ctx, *steps); err != nil {
		log.Fatal("curvefit: ", err)
	}
}

// start makes this process the launcher of two ranks, or one of them.
func start(ctx context.Context, steps int) error {
	job, err := nxd.Spawn(&nxd.SpawnOptions{Processes: 2})
	if errors.Is(err, nxd.InvalidState) { // a launcher has started this process
		return fit(ctx, steps)
	}
	if err != nil {
		return err
	}
	defer job.Close()
	return job.Wait(ctx)
}

func fit(ctx context.Context, steps int) error {
	runtime.LockOSThread()
	c, err := nxd.NewContext(ctx, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	t, err := newTrainer(c)
	if err != nil {
		return err
	}
	defer t.close()
	var first, last float64
	for step := 0; step < steps; step++ {
		if last, err = t.step(); err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
		if step == 0 {
			first = last
		}
	}
	if last > first/4 {
		return errors.New("the network does not learn")
	}
	if err := c.Print(fmt.Sprintf("loss %.4f -> %.4f", first, last)); err != nil {
		return err
	}
	return c.Finalize()
}
