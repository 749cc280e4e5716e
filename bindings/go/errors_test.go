package nxd_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"libnxd.org/nxd"
	"libnxd.org/nxd/internal/ranks"
)

// Slices whose lengths do not fit are rejected on the rank that has them and on its peers, at once.
func TestBadLengthsTellThePeers(t *testing.T) {
	ends := ranks.Errors(t, context.Background(), 2, func(c *nxd.Context) error {
		g, err := c.World()
		if err != nil {
			return err
		}
		r, err := c.Rank()
		if err != nil {
			return err
		}
		failed := nxd.AllReduce(g, make([]float32, 4), make([]float32, 4-r), nxd.Sum)
		return first(g.Barrier(), failed) // the group goes on
	})
	for rank, err := range ends {
		var e *nxd.Error
		if !errors.Is(err, nxd.InvalidArgument) || !errors.As(err, &e) || e.Operation != "all_reduce" {
			t.Errorf("rank %d: expected INVALID_ARGUMENT of an all_reduce, got %v", rank, err)
		}
	}
	if !strings.Contains(ends[1].Error(), "receive: expected 4 elements, got 3") {
		t.Errorf("rank 1: %v", ends[1])
	}
	if want := "rank 1 rejected its arguments: all_reduce: receive: expected 4 elements"; !strings.Contains(ends[0].Error(), want) {
		t.Errorf("rank 0: expected %q, got %v", want, ends[0])
	}
}

// A program that finds that it cannot make a call tells the peers, too.
func TestReject(t *testing.T) {
	ends := ranks.Errors(t, context.Background(), 2, func(c *nxd.Context) error {
		g, err := c.World()
		if err != nil {
			return err
		}
		r, err := c.Rank()
		if err != nil {
			return err
		}
		var failed error
		if r == 1 {
			failed = g.Reject("all_reduce", errors.New("bias: expected a contiguous tensor"))
		} else {
			failed = nxd.AllReduce(g, make([]float32, 4), make([]float32, 4), nxd.Sum)
		}
		return first(g.Barrier(), failed) // the group goes on
	})
	if ends[1] == nil || ends[1].Error() != "bias: expected a contiguous tensor" {
		t.Errorf("rank 1: %v", ends[1])
	}
	want := "rank 1 rejected its arguments: all_reduce: bias: expected a contiguous tensor"
	if !errors.Is(ends[0], nxd.InvalidArgument) || !strings.Contains(ends[0].Error(), want) {
		t.Errorf("rank 0: expected %q, got %v", want, ends[0])
	}
}

// A rank whose text is none does not join, and the other hears of it at once.
func TestBadTextTellsThePeers(t *testing.T) {
	store, err := nxd.NewLocalStore()
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	ends := make([]chan error, 2)
	for rank, host := range []string{"", "a\x00b"} {
		ends[rank] = make(chan error)
		go func(rank int, host string) {
			c, err := nxd.NewContext(context.Background(), &nxd.ContextOptions{Store: store, Rank: rank, Size: 2,
				HostID: host, Timeout: ranks.Timeout})
			if err == nil {
				c.Close()
			}
			ends[rank] <- err
		}(rank, host)
	}
	for rank, want := range []nxd.Status{nxd.PeerLost, nxd.InvalidArgument} {
		if err := <-ends[rank]; !errors.Is(err, want) {
			t.Errorf("rank %d: expected %v, got %v", rank, want, err)
		}
	}
}

// Works, and a DDP, over arrays that do not fit on one rank: the peers get the reason, and go on.
func TestBadArraysTellThePeers(t *testing.T) {
	failures := make([][]error, 2)
	ranks.Run(t, 2, func(c *nxd.Context) error {
		g, err := c.World()
		if err != nil {
			return err
		}
		r, err := c.Rank()
		if err != nil {
			return err
		}
		values, grads, err := arrays(6)
		if err != nil {
			return err
		}
		defer values.Close()
		defer grads.Close()
		w, err := nxd.AllReduceAsync(g, values, values.Part(0, 6-r), nxd.Sum)
		if err == nil {
			err = w.Wait(context.Background())
			w.Close()
		}
		failures[r] = append(failures[r], err)
		for _, p := range []nxd.Parameter{
			{Name: "weight", Values: values, Grads: grads, Shape: []int64{2, 3 + int64(r)}},
			{Name: "weight"[:6-r] + "\x00"[:r], Values: values, Grads: grads},
		} {
			_, err = nxd.NewDDP(c, nil, []nxd.Parameter{p}, nxd.DDPOptions{})
			failures[r] = append(failures[r], err)
		}
		return first(g.Barrier(), c.Finalize())
	})
	for i, want := range []string{"receive: expected 6 elements, got 5",
		`parameter 0 ("weight"): Shape: expected a product of 6, got [2 4]`,
		`expected a name without NUL, got "weigh\x00"`} {
		for rank, ends := range failures {
			if err := ends[i]; !errors.Is(err, nxd.InvalidArgument) || !strings.Contains(err.Error(), want) {
				t.Errorf("rank %d: expected %q, got %v", rank, want, err)
			}
		}
		if err := failures[0][i]; err != nil && !strings.Contains(err.Error(), "rank 1 rejected") {
			t.Errorf("rank 0: expected rank 1 to be named, got %v", err)
		}
	}
}

func TestErrorInfo(t *testing.T) {
	ends := ranks.Errors(t, context.Background(), 2, func(c *nxd.Context) error {
		r, err := c.Rank()
		if err != nil {
			return err
		}
		g, err := c.NewGroup("pair", 0, 1)
		if err != nil {
			return err
		}
		if r == 1 {
			g.Close()
			c.Close() // leaves; rank 0 waits for it
			return nil
		}
		return g.Barrier()
	})
	var e *nxd.Error
	if !errors.As(ends[0], &e) || e.Status != nxd.PeerLost || e.RootRank != 1 || e.Operation != "barrier" ||
		e.Group != "pair" || e.Message == "" || e.Step != -1 {
		t.Errorf("got %#v", ends[0])
	}
	if errors.Is(ends[0], nxd.Timeout) || !errors.Is(fmt.Errorf("wrapped: %w", ends[0]), nxd.PeerLost) {
		t.Error("errors.Is does not tell statuses apart")
	}
}

// The library rejects a closed object by name.
func TestClosedObjects(t *testing.T) {
	s, err := nxd.NewLocalStore()
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	s.Close()
	if err := s.Set("k", nil); !errors.Is(err, nxd.InvalidArgument) || !strings.Contains(err.Error(), "store") {
		t.Errorf("got %v", err)
	}
	if _, err := nxd.NewFileStore("a\x00b"); !errors.Is(err, nxd.InvalidArgument) {
		t.Errorf("a 0 in a path: got %v", err)
	}
	if _, err := new(nxd.Context).Rank(); !errors.Is(err, nxd.InvalidArgument) {
		t.Errorf("a zero context: got %v", err)
	}
}

// A cancelled context of Go ends the collective that blocks, while other goroutines go on: one cancels it.
func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	start, ended := time.Now(), make(chan struct{})
	ends := ranks.Errors(t, ctx, 2, func(c *nxd.Context) error {
		r, err := c.Rank()
		if err != nil {
			return err
		}
		g, err := c.World()
		if err != nil {
			return err
		}
		if r == 1 {
			<-ended // to leave before would be the error
			return nil
		}
		defer close(ended)
		go func() {
			for i := 0; i < 50; i++ { // most likely this rank waits meanwhile
				time.Sleep(time.Millisecond)
			}
			cancel()
		}()
		return g.Barrier()
	})
	if err := ends[0]; !errors.Is(err, context.Canceled) || !errors.Is(err, nxd.Aborted) {
		t.Errorf("expected context.Canceled and ABORTED, got %v", err)
	}
	if d := time.Since(start); d > ranks.Timeout/2 {
		t.Errorf("%v passed", d)
	}
}

func TestAbort(t *testing.T) {
	ended := make(chan struct{})
	ends := ranks.Errors(t, context.Background(), 2, func(c *nxd.Context) error {
		r, err := c.Rank()
		if err != nil {
			return err
		}
		g, err := c.World()
		if err != nil {
			return err
		}
		if r == 0 {
			defer close(ended)
			time.AfterFunc(50*time.Millisecond, func() { _ = c.Abort() }) // most likely this rank waits
		}
		if r == 1 {
			<-ended
		}
		return g.Barrier()
	})
	if !errors.Is(ends[0], nxd.Aborted) || ends[1] == nil {
		t.Errorf("got %v", ends)
	}
}

// A context of Go that is done ends the wait for a peer that does not come.
func TestCancelJoin(t *testing.T) {
	s, err := nxd.NewLocalStore()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err = nxd.NewContext(ctx, &nxd.ContextOptions{Store: s, Size: 2, Timeout: ranks.Timeout})
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > ranks.Timeout/2 {
		t.Errorf("got %v after %v", err, time.Since(start))
	}
}

// The message of a call that fails within a callback is said once.
func TestNestedMessage(t *testing.T) {
	m := newMemory()
	s, err := nxd.NewStore(m)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	m.fail = func(string) error { return nxd.SetLogLevel(42) }
	err = s.Set("k", nil)
	if !errors.Is(err, nxd.InvalidArgument) || strings.Count(err.Error(), "42") != 1 {
		t.Errorf("got %v", err)
	}
}

// An error that a program makes fails the call, though its status says OK, or nothing that is known.
func TestCallbackErrorsWithoutAStatus(t *testing.T) {
	m := newMemory()
	s, err := nxd.NewStore(m)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, c := range []struct {
		failure error
		want    nxd.Status
	}{
		{&nxd.Error{Message: "mine"}, nxd.User},
		{&nxd.Error{Status: 7, Message: "mine"}, nxd.User},
		{nxd.Status(0), nxd.User},
		{nxd.Timeout, nxd.Timeout},
		{fmt.Errorf("wrapped: %w", nxd.PeerLost), nxd.PeerLost},
	} {
		m.fail = func(string) error { return c.failure }
		if err := s.Set("k", nil); !errors.Is(err, c.want) || !errors.Is(err, c.failure) {
			t.Errorf("%v: expected %v, got %v", c.failure, c.want, err)
		}
	}
}
