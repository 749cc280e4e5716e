// Errors and how they look. Two ranks that disagree both get an ordinary error and go on; then rank 1 is
// killed in the middle of a collective, and rank 0 gets an error that names it.
//
//	./peerlost
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"libnxd.org/nxd"
)

func run() error {
	c, err := nxd.NewContext(context.Background(), &nxd.ContextOptions{Timeout: time.Minute})
	if err != nil {
		return err
	}
	defer c.Close()
	rank, err := c.Rank()
	if err != nil {
		return err
	}
	world, err := c.World()
	if err != nil {
		return err
	}
	values := make([]float32, 3+rank) // the ranks disagree about the number of elements
	err = nxd.AllReduce(world, values, values, nxd.Sum)
	if !errors.Is(err, nxd.InvalidArgument) {
		return fmt.Errorf("expected INVALID_ARGUMENT, got %w", err)
	}
	if rank == 0 {
		fmt.Println(err)
	}
	if err := world.Barrier(); err != nil { // the group goes on
		return err
	}
	if rank == 1 {
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	err = nxd.AllReduce(world, values, values, nxd.Sum)
	var lost *nxd.Error
	if !errors.As(err, &lost) || lost.Status != nxd.PeerLost {
		return fmt.Errorf("expected PEER_LOST, got %w", err)
	}
	fmt.Printf("%v\nrank %d was lost during %s of %s\n", err, lost.RootRank, lost.Operation, lost.Group)
	return nil
}

// start runs two ranks, and expects the one that is killed to fail and the other to end well. In a process
// that is a rank already, by a launcher too, it runs that.
func start() error {
	job, err := nxd.Spawn(&nxd.SpawnOptions{Processes: 2})
	if errors.Is(err, nxd.InvalidState) {
		return run()
	}
	if err != nil {
		return err
	}
	defer job.Close()
	if err := job.Wait(context.Background()); !errors.Is(err, nxd.PeerLost) {
		return fmt.Errorf("expected a job whose rank 1 is killed, got %w", err)
	}
	for rank, want := range []int{0, 128 + int(syscall.SIGKILL)} {
		if code, _, err := job.ExitCode(rank); err != nil || code != want {
			return fmt.Errorf("rank %d: expected exit code %d, got %d (%v)", rank, want, code, err)
		}
	}
	return nil
}

func main() {
	if err := start(); err != nil {
		fmt.Fprintln(os.Stderr, "peerlost:", err)
		os.Exit(1)
	}
}
