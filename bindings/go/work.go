package nxd

import (
	"context"
	"errors"
	"time"
	"unsafe"

	"libnxd.org/nxd/internal/own"
	"libnxd.org/nxd/raw"
)

// Work is a call that goes on while its caller does other things. Until it is done, its arrays belong to
// the library: sent ones must not be written, received ones not touched. Close takes back a work that has
// not begun, and waits for one that has; a work that is forgotten goes on to its end.
type Work struct{ own.Handle[raw.Work] }

func (g *Group) work(start func(*raw.Group) (*raw.Work, error), keep ...any) (*Work, error) {
	p, err := own.Get(g.Handle, start)
	if err != nil {
		return nil, err
	}
	// To destroy a work that has not begun is to cancel it, which its peers would notice whenever the
	// collector comes by.
	ended := func(p *raw.Work) bool {
		done, err := raw.WorkTest(p)
		return done != 0 || err != nil
	}
	settle := func(p *raw.Work) { _ = raw.WorkWait(p, -1) }
	return &Work{own.NewSettling(p, raw.WorkDestroy, ended, settle, append(keep, g)...)}, nil
}

// Done tells whether the work has ended, well or not; from any goroutine.
func (w *Work) Done() (bool, error) {
	done, err := own.Get(w.Handle, raw.WorkTest)
	return done != 0, err
}

// slice is how long a wait goes on before it looks at its context.
const slice = 20 * time.Millisecond

// Wait waits until the work is done, and returns how it ended. When ctx is done before, Wait returns
// its error, and the work goes on. The group's timeout bounds the work.
func (w *Work) Wait(ctx context.Context) error {
	if ctx == nil || ctx.Done() == nil {
		return own.Do(w.Handle, func(p *raw.Work) error { return raw.WorkWait(p, -1) })
	}
	for {
		err := own.Do(w.Handle, func(p *raw.Work) error { return raw.WorkWait(p, milliseconds(slice)) })
		if !errors.Is(err, Timeout) {
			return err
		}
		if done, failed := w.Done(); done || failed != nil {
			// How it has ended, which may have been behind the slice.
			return own.Do(w.Handle, func(p *raw.Work) error { return raw.WorkWait(p, 0) })
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// Descriptor is a file descriptor that poll and epoll find readable once the work is done. It is the
// work's own, until Close.
func (w *Work) Descriptor() (int, error) {
	descriptor, err := own.Get(w.Handle, raw.WorkGetDescriptor)
	return int(descriptor), err
}

// Cancel takes back a work that has not begun on this rank; one that has is InvalidState.
func (w *Work) Cancel() error { return own.Do(w.Handle, raw.WorkCancel) }

// AllReduceAsync is AllReduce without waiting. [collective: group]
func AllReduceAsync[T Element](g *Group, send, recv Array[T], op Reduce) (*Work, error) {
	return g.start(lengths("all_reduce", "receive", recv.Len(), send.Len()), send, recv, send.Len(),
		func(p *raw.Group, s, r unsafe.Pointer, n int) (*raw.Work, error) {
			return raw.AllReduceAsync(p, s, r, n, DTypeOf[T](), op)
		})
}

// start begins a work over two arrays; see collective for those whose lengths do not fit. The work that
// tells the peers of them goes on without anybody.
func (g *Group) start(fits *Error, send, recv Memory, count int,
	call func(p *raw.Group, send, recv unsafe.Pointer, count int) (*raw.Work, error)) (*Work, error) {
	if fits != nil {
		_, _ = g.work(func(p *raw.Group) (*raw.Work, error) {
			return raw.GroupRejectAsync(p, fits.Operation, -1, -1, reason(fits))
		})
		return nil, fits
	}
	return g.work(func(p *raw.Group) (*raw.Work, error) {
		return call(p, send.buffer().ptr, recv.buffer().ptr, count)
	}, send.keep(), recv.keep())
}

// AllGatherAsync is AllGather without waiting. [collective: group]
func AllGatherAsync[T Element](g *Group, send, recv Array[T]) (*Work, error) {
	n, err := g.Size()
	if err != nil {
		return nil, err
	}
	return g.start(lengths("all_gather", "receive", recv.Len(), n*send.Len()), send, recv, send.Len(),
		func(p *raw.Group, s, r unsafe.Pointer, n int) (*raw.Work, error) {
			return raw.AllGatherAsync(p, s, r, n, DTypeOf[T]())
		})
}

// ReduceScatterAsync is ReduceScatter without waiting. [collective: group]
func ReduceScatterAsync[T Element](g *Group, send, recv Array[T], op Reduce) (*Work, error) {
	n, err := g.Size()
	if err != nil {
		return nil, err
	}
	return g.start(lengths("reduce_scatter", "send", send.Len(), n*recv.Len()), send, recv, recv.Len(),
		func(p *raw.Group, s, r unsafe.Pointer, n int) (*raw.Work, error) {
			return raw.ReduceScatterAsync(p, s, r, n, DTypeOf[T](), op)
		})
}

// AllToAllAsync is AllToAll without waiting. [collective: group]
func AllToAllAsync[T Element](g *Group, send, recv Array[T]) (*Work, error) {
	n, err := g.Size()
	if err != nil {
		return nil, err
	}
	fits := lengths("all_to_all", "receive", recv.Len(), send.Len())
	if fits == nil {
		fits = lengths("all_to_all", "send", send.Len(), send.Len()/n*n)
	}
	return g.start(fits, send, recv, send.Len()/n,
		func(p *raw.Group, s, r unsafe.Pointer, n int) (*raw.Work, error) {
			return raw.AllToAllAsync(p, s, r, n, DTypeOf[T]())
		})
}

// BroadcastAsync is Broadcast without waiting. [collective: group]
func BroadcastAsync[T Element](g *Group, buffer Array[T], root int) (*Work, error) {
	return g.work(func(p *raw.Group) (*raw.Work, error) {
		return raw.BroadcastAsync(p, buffer.buffer().ptr, buffer.Len(), DTypeOf[T](), raw.Int32(root))
	}, buffer.keep())
}

// SendAsync is Send without waiting. [collective: the two ranks]
func SendAsync[T Element](g *Group, buffer Array[T], to, tag int) (*Work, error) {
	return g.work(func(p *raw.Group) (*raw.Work, error) {
		return raw.SendAsync(p, buffer.buffer().ptr, buffer.Len(), DTypeOf[T](), raw.Int32(to), raw.Int32(tag))
	}, buffer.keep())
}

// ReceiveAsync is Receive without waiting. [collective: the two ranks]
func ReceiveAsync[T Element](g *Group, buffer Array[T], from, tag int) (*Work, error) {
	return g.work(func(p *raw.Group) (*raw.Work, error) {
		return raw.ReceiveAsync(p, buffer.buffer().ptr, buffer.Len(), DTypeOf[T](), raw.Int32(from), raw.Int32(tag))
	}, buffer.keep())
}
