package nxd_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"libnxd.org/nxd"
	"libnxd.org/nxd/internal/ranks"
)

// The test program is also the program of the ranks that it starts, which one NXDGO_PROGRAM says.
func TestMain(m *testing.M) {
	name := os.Getenv("NXDGO_PROGRAM")
	if name == "" || os.Getenv("RANK") == "" {
		os.Exit(m.Run())
	}
	if err := programs[name](); err != nil {
		fmt.Fprintf(os.Stderr, "%s: rank %s: %v\n", name, os.Getenv("RANK"), err)
		os.Exit(1)
	}
}

var programs = map[string]func() error{
	"meet":      meet,
	"lose":      lose,
	"interrupt": interrupt,
	"forget":    forget,
	"log":       logLines,
	"wait":      func() error { time.Sleep(ranks.Limit); return nil },
}

func start(t *testing.T, program string) *nxd.Job {
	t.Helper()
	t.Setenv("NXDGO_PROGRAM", program)
	t.Setenv("NXDGO_DIRECTORY", t.TempDir())
	job, err := nxd.Spawn(&nxd.SpawnOptions{Processes: 2, Args: []string{os.Args[0]}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(job.Close)
	return job
}

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), ranks.Limit)
	t.Cleanup(cancel)
	return ctx
}

func join(ctx context.Context) (c *nxd.Context, world *nxd.Group, rank int, err error) {
	c, err = nxd.NewContext(ctx, &nxd.ContextOptions{Timeout: ranks.Timeout})
	if err != nil {
		return nil, nil, 0, err
	}
	if world, err = c.World(); err != nil {
		return nil, nil, 0, err
	}
	rank, err = c.Rank()
	return c, world, rank, err
}

func meet() error {
	c, world, rank, err := join(context.Background())
	if err != nil {
		return err
	}
	defer c.Close()
	v := []int64{int64(rank) + 1}
	return first(nxd.AllReduce(world, v, v, nxd.Sum), check("sum", v[0], 3), c.Finalize())
}

func TestSpawn(t *testing.T) {
	job := start(t, "meet")
	if err := job.Wait(bounded(t)); err != nil {
		t.Error(err)
	}
	n, err := job.Size()
	if err := first(err, check("size", n, 2)); err != nil {
		t.Error(err)
	}
	if code, running, err := job.ExitCode(1); code != 0 || running || err != nil {
		t.Errorf("exit code %d, %v, %v", code, running, err)
	}
}

// lose: rank 1 is killed while rank 0 waits for it, which gets an ordinary error, is left with objects
// that are of no more use, and ends well.
func lose() error {
	c, world, rank, err := join(context.Background())
	if err != nil {
		return err
	}
	a, err := nxd.NewArray[float32](8)
	if err != nil {
		return err
	}
	if err := world.Barrier(); err != nil {
		return err
	}
	if rank == 1 {
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	started := time.Now()
	pending, err := nxd.AllReduceAsync(world, a, a, nxd.Sum)
	if err != nil {
		return err
	}
	var lost *nxd.Error
	if err := world.Barrier(); !errors.As(err, &lost) || lost.Status != nxd.PeerLost || lost.RootRank != 1 {
		return fmt.Errorf("expected PEER_LOST by rank 1, got %v", err)
	}
	if err := pending.Wait(context.Background()); !errors.Is(err, nxd.PeerLost) {
		return fmt.Errorf("the work: expected PEER_LOST, got %v", err)
	}
	if d := time.Since(started); d > ranks.Timeout/2 {
		return fmt.Errorf("took %v", d)
	}
	if err := c.Finalize(); !errors.Is(err, nxd.PeerLost) {
		return fmt.Errorf("finalize: expected PEER_LOST, got %v", err)
	}
	forgetful(c, world)
	c, world, pending, a = nil, nil, nil, nxd.Array[float32]{}
	for i := 0; i < 5; i++ { // finalizers after a lost peer, in the collector's order
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

// forgetful leaves works and groups to the collector.
func forgetful(c *nxd.Context, world *nxd.Group) {
	for i := 0; i < 10; i++ {
		a, err := nxd.NewArray[float32](8)
		if err == nil {
			_, _ = nxd.AllReduceAsync(world, a, a, nxd.Sum)
		}
		_, _ = c.NewGroup("late", 0, 1)
	}
}

func TestLostPeer(t *testing.T) {
	job := start(t, "lose")
	if err := job.Wait(bounded(t)); !errors.Is(err, nxd.PeerLost) {
		t.Errorf("a job whose rank is killed: got %v", err)
	}
	for rank, want := range []int{0, 128 + int(syscall.SIGKILL)} {
		if code, _, err := job.ExitCode(rank); err != nil || code != want {
			t.Errorf("rank %d: expected exit code %d, got %d (%v)", rank, want, code, err)
		}
	}
}

// interrupt: rank 0 gets Ctrl-C while it waits for rank 1 in a collective.
func interrupt() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	c, world, rank, err := join(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if rank == 1 {
		signal.Ignore(os.Interrupt)
		time.Sleep(ranks.Limit) // the job's end is its own
		return nil
	}
	waiting := filepath.Join(os.Getenv("NXDGO_DIRECTORY"), "waiting")
	if err := os.WriteFile(waiting, nil, 0o666); err != nil {
		return err
	}
	started := time.Now()
	if err := world.Barrier(); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("expected context.Canceled, got %v", err)
	}
	if d := time.Since(started); d > ranks.Timeout/2 {
		return fmt.Errorf("took %v", d)
	}
	return nil
}

func TestInterrupt(t *testing.T) {
	job := start(t, "interrupt")
	waiting := filepath.Join(os.Getenv("NXDGO_DIRECTORY"), "waiting")
	for end := time.Now().Add(ranks.Limit); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(waiting); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("rank 0 does not come to wait")
		}
	}
	time.Sleep(100 * time.Millisecond) // most likely it is inside of the barrier
	pid, err := job.PID(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(ranks.Limit); ; time.Sleep(5 * time.Millisecond) {
		code, running, err := job.ExitCode(0)
		if err != nil {
			t.Fatal(err)
		}
		if !running {
			if code != 0 {
				t.Errorf("rank 0: exit code %d", code)
			}
			break
		}
		if time.Now().After(end) {
			t.Fatal("rank 0 goes on")
		}
	}
}

// forget ends with objects open, works pending and finalizers at it.
func forget() error {
	c, world, rank, err := join(context.Background())
	if err != nil {
		return err
	}
	for i := 0; i < 100; i++ {
		a, err := nxd.NewArray[float32](1000)
		if err != nil {
			return err
		}
		w, err := nxd.AllReduceAsync(world, a, a, nxd.Sum)
		if err != nil {
			return err
		}
		if i%3 == rank {
			if err := w.Wait(context.Background()); err != nil {
				return err
			}
		}
		if i%10 == 0 {
			runtime.GC()
		}
	}
	if err := world.Barrier(); err != nil {
		return err
	}
	runtime.KeepAlive(c)
	if _, err := world.BarrierAsync(); err != nil {
		return err
	}
	go runtime.GC()
	return nil
}

func TestForgottenAtExit(t *testing.T) {
	if err := start(t, "forget").Wait(bounded(t)); err != nil {
		t.Error(err)
	}
}

// logLines: a flight record that cannot be written is a line of the log, which Go gets.
func logLines() error {
	c, world, rank, err := join(context.Background())
	if err != nil {
		return err
	}
	defer c.Close()
	var lines []string
	if err := nxd.SetLogger(func(level nxd.LogLevel, line string) {
		if level == nxd.LogWarn {
			lines = append(lines, line)
		}
	}); err != nil {
		return err
	}
	if rank == 1 {
		return nil
	}
	if err := world.Barrier(); !errors.Is(err, nxd.PeerLost) {
		return fmt.Errorf("expected PEER_LOST, got %v", err)
	}
	if len(lines) == 0 || !strings.Contains(lines[0], "flight record") {
		return fmt.Errorf("expected a line about the flight record, got %q", lines)
	}
	return nxd.SetLogger(nil)
}

func TestLogger(t *testing.T) {
	t.Setenv("NXD_FLIGHT_RECORD", filepath.Join(t.TempDir(), "absent", "record"))
	if err := start(t, "log").Wait(bounded(t)); err != nil {
		t.Error(err)
	}
}

func TestJobIsKilled(t *testing.T) {
	job := start(t, "wait")
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := job.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if err := job.Kill(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := job.Wait(bounded(t)); !errors.Is(err, nxd.PeerLost) {
		t.Errorf("got %v", err)
	}
	if code, _, err := job.ExitCode(0); code != 128+int(syscall.SIGTERM) || err != nil {
		t.Errorf("exit code %d, %v", code, err)
	}
}

func TestSpawnFails(t *testing.T) {
	_, err := nxd.Spawn(&nxd.SpawnOptions{Processes: 2, Args: []string{"/nowhere/program"}})
	if !errors.Is(err, nxd.IO) {
		t.Errorf("got %v", err)
	}
}
