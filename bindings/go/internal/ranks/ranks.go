// Package ranks runs the ranks of a test as goroutines of one process, and measures what it keeps.
package ranks

// #include <malloc.h>
import "C"

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"libnxd.org/nxd"
	"libnxd.org/nxd/internal/own"
)

// Timeout bounds every collective of a test, so that a rank that is missing is an error.
const Timeout = 2 * time.Minute

// Limit ends what hangs, however slow and busy the machine: no test is about how long it is.
const Limit = 5 * time.Minute

// Run runs f on n ranks, each a goroutine on a thread of its own, and reports their errors.
func Run(t testing.TB, n int, f func(c *nxd.Context) error) {
	t.Helper()
	for rank, err := range Errors(t, context.Background(), n, f) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// Errors runs f on n ranks and gives how each has ended.
func Errors(t testing.TB, ctx context.Context, n int, f func(c *nxd.Context) error) []error {
	t.Helper()
	store, err := nxd.NewLocalStore()
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	type end struct {
		rank int
		err  error
	}
	ends := make(chan end, n)
	for rank := 0; rank < n; rank++ {
		go func(rank int) {
			runtime.LockOSThread()
			ends <- end{rank, one(ctx, store, rank, n, f)}
		}(rank)
	}
	errors := make([]error, n)
	for range errors {
		select {
		case e := <-ends:
			errors[e.rank] = e.err
		case <-time.After(Limit):
			t.Fatal("a rank hangs")
		}
	}
	return errors
}

func one(ctx context.Context, store *nxd.Store, rank, n int, f func(c *nxd.Context) error) error {
	c, err := nxd.NewContext(ctx, &nxd.ContextOptions{Store: store, Rank: rank, Size: n, Timeout: Timeout})
	if err != nil {
		return err
	}
	defer c.Close()
	return f(c)
}

// Settle collects what is forgotten, and waits until it is closed.
func Settle(t testing.TB) {
	t.Helper()
	for i := 0; i < 2; i++ { // what the first collection closes lets go of more
		runtime.GC()
		finalized(t)
		for end := time.Now().Add(Limit); own.Pending() > 0; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("objects are not closed")
			}
		}
	}
}

// finalized waits until each finalizer that is due has been called. The runtime's goroutine takes all
// that are due at once and calls them in any order, so that one of a first marker may come before others
// of its lot; a second marker, made after the first one's call, is in a later lot.
func finalized(t testing.TB) {
	t.Helper()
	for i := 0; i < 2; i++ {
		called := make(chan struct{})
		mark(called)
		runtime.GC()
		select {
		case <-called:
		case <-time.After(Limit):
			t.Fatal("finalizers are not called")
		}
	}
}

// mark makes an object that nothing refers to, whose finalizer closes called.
//
//go:noinline
func mark(called chan struct{}) {
	runtime.SetFinalizer(&struct{ p *int }{new(int)}, func(*struct{ p *int }) { close(called) })
}

// resident is the process's memory in bytes, without what is free but kept.
func resident(t testing.TB) int64 {
	t.Helper()
	debug.FreeOSMemory()
	C.malloc_trim(0)
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip(err)
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

const batch = 1000

// Flat runs make n times after a warm-up, and fails where the process has grown by more than slack bytes. A leak
// grows each time, while the runtime's own memory moves once: three runs must grow.
func Flat(t testing.TB, n int, slack int64, make func() error) {
	t.Helper()
	// Only Settle collects, so that the warm-up has as many forgotten objects at once as what follows.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	grown := func(times int) int64 {
		before := resident(t)
		for i := 0; i < times; i++ {
			if err := make(); err != nil {
				t.Fatal(err)
			}
			if i%batch == batch-1 {
				Settle(t) // so that no more than a batch of forgotten objects is there at once
			}
		}
		Settle(t)
		return resident(t) - before
	}
	grown(n/5 + batch)
	got := grown(n)
	for again := 0; again < 2 && got > slack; again++ {
		got = grown(n)
	}
	if got > slack {
		t.Errorf("%d times: grown by %d KiB, expected at most %d", n, got>>10, slack>>10)
	}
}
