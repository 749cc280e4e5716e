package nxd

import (
	"errors"
	"strings"
	"time"
	"unsafe"

	"libnxd.org/nxd/internal/own"
	"libnxd.org/nxd/raw"
)

// Group is an ordered set of ranks that communicate.
type Group struct{ own.Handle[raw.Group] }

// NewGroup makes a group of some of the world's ranks, in the same order on every member.
// [collective: the listed ranks]
func (c *Context) NewGroup(name string, ranks ...int) (*Group, error) {
	list := make([]int32, len(ranks))
	for i, r := range ranks {
		list[i] = int32(r)
		if int(list[i]) != r {
			list[i] = -1 // which is no rank either
		}
	}
	if name == "" {
		name = "group"
	}
	if _, err := raw.CString("name", name); err != nil {
		// The library tells the peers of a list that begins so that arguments cannot be read.
		list = append([]int32{-1}, list...)
		_, _ = own.Get(c.Handle, func(p *raw.Context) (*raw.Group, error) {
			return raw.GroupCreate(p, first(list), len(list), "group")
		})
		return nil, err
	}
	p, err := own.Get(c.Handle, func(p *raw.Context) (*raw.Group, error) {
		return raw.GroupCreate(p, first(list), len(list), name)
	})
	if err != nil {
		return nil, err
	}
	return &Group{own.New(p, raw.GroupDestroy, c)}, nil
}

// Abort ends every pending and later call on the group with Aborted; from any goroutine.
func (g *Group) Abort() error { return own.Do(g.Handle, raw.GroupAbort) }

// Size is the number of ranks.
func (g *Group) Size() (int, error) { return own.Int(g.Handle, raw.GroupGetSize) }

// Rank is this rank's place in the group.
func (g *Group) Rank() (int, error) { return own.Int(g.Handle, raw.GroupGetRank) }

// Ranks is the world ranks of the group.
func (g *Group) Ranks() ([]int, error) {
	return ints(list(func(ranks *int32, capacity int) (int, error) {
		return own.Get(g.Handle, func(p *raw.Group) (int, error) {
			return raw.GroupGetRanks(p, ranks, capacity)
		})
	}))
}

// SetTimeout bounds every later call on the group.
func (g *Group) SetTimeout(d time.Duration) error {
	return own.Do(g.Handle, func(p *raw.Group) error { return raw.GroupSetTimeout(p, milliseconds(d)) })
}

// SetNextKey gives the group's next call a key: ranks whose keys differ all get InvalidArgument.
func (g *Group) SetNextKey(key uint64) error {
	return own.Do(g.Handle, func(p *raw.Group) error { return raw.GroupSetNextKey(p, key) })
}

// Transport is what carries the group's data.
func (g *Group) Transport() (Transport, error) { return own.Get(g.Handle, raw.GroupGetTransport) }

// Barrier returns when every rank of the group has called. [collective: group]
func (g *Group) Barrier() error { return own.Do(g.Handle, raw.Barrier) }

// BarrierAsync is Barrier without waiting. [collective: group]
func (g *Group) BarrierAsync() (*Work, error) { return g.work(raw.BarrierAsync) }

// Rendezvous waits for all ranks at the place of this name, and gives what each has brought, by rank.
// [collective: group]
func (g *Group) Rendezvous(tag string, payload []byte) ([][]byte, error) {
	if _, err := raw.CString("tag", tag); err != nil {
		return nil, g.Reject("", err)
	}
	all, err := own.Get(g.Handle, func(p *raw.Group) (*raw.Payloads, error) {
		return raw.GroupRendezvous(p, tag, unsafe.Pointer(first(payload)), len(payload))
	})
	if err != nil {
		return nil, err
	}
	defer raw.PayloadsDestroy(all)
	n, err := g.Size()
	if err != nil {
		return nil, err
	}
	found := make([][]byte, n)
	for rank := range found {
		data, size, err := raw.PayloadsGet(all, int32(rank))
		if err != nil {
			return nil, err
		}
		found[rank] = append([]byte{}, unsafe.Slice((*byte)(data), size)...)
	}
	return found, nil
}

// Reject makes a collective that this rank cannot make fail on its peers, with the reason, and gives
// the reason back: they would wait for this rank otherwise. For arrays of other packages: the calls of
// this one do so themselves. operation is the collective's name, such as "all_reduce", or "" for any.
// [collective: group]
func (g *Group) Reject(operation string, why error) error {
	told := why.Error()
	var known *Error
	if errors.As(why, &known) {
		told = known.Message
	}
	_ = own.Do(g.Handle, func(p *raw.Group) error { return raw.GroupReject(p, operation, -1, -1, told) })
	return why
}

// collective makes a call, or, when the lengths of its slices do not fit together, rejects it: so the
// peers are told why, and do not wait for this rank.
func (g *Group) collective(fits *Error, call func(p *raw.Group) error) error {
	if fits == nil {
		return own.Do(g.Handle, call)
	}
	_ = own.Do(g.Handle, func(p *raw.Group) error {
		return raw.GroupReject(p, fits.Operation, -1, -1, reason(fits))
	})
	return fits
}

// reason is an error's message without the operation, which the library puts before it.
func reason(e *Error) string { return strings.TrimPrefix(e.Message, e.Operation+": ") }

func lengths(operation, name string, got, want int) *Error {
	if got == want {
		return nil
	}
	e := raw.Invalid("%s: %s: expected %d elements, got %d", operation, name, want, got)
	e.Operation = operation
	return e
}

// AllReduce reduces the elements of every rank into recv, which may be send. [collective: group]
func AllReduce[T Element](g *Group, send, recv []T, op Reduce) error {
	return g.collective(lengths("all_reduce", "receive", len(recv), len(send)),
		func(p *raw.Group) error {
			return raw.AllReduce(p, pointer(send), pointer(recv), len(send),
				DTypeOf[T](), op)
		})
}

// AllGather concatenates send of every rank, in rank order, in recv. [collective: group]
func AllGather[T Element](g *Group, send, recv []T) error {
	n, err := g.Size()
	if err != nil {
		return err
	}
	return g.collective(lengths("all_gather", "receive", len(recv), n*len(send)),
		func(p *raw.Group) error {
			return raw.AllGather(p, pointer(send), pointer(recv), len(send),
				DTypeOf[T]())
		})
}

// ReduceScatter reduces send and leaves this rank's part of it in recv. [collective: group]
func ReduceScatter[T Element](g *Group, send, recv []T, op Reduce) error {
	n, err := g.Size()
	if err != nil {
		return err
	}
	return g.collective(lengths("reduce_scatter", "send", len(send), n*len(recv)),
		func(p *raw.Group) error {
			return raw.ReduceScatter(p, pointer(send), pointer(recv), len(recv),
				DTypeOf[T](), op)
		})
}

// Broadcast copies the buffer of rank root of the group to all others. [collective: group]
func Broadcast[T Element](g *Group, buffer []T, root int) error {
	return own.Do(g.Handle, func(p *raw.Group) error {
		return raw.Broadcast(p, pointer(buffer), len(buffer), DTypeOf[T](), raw.Int32(root))
	})
}

// AllToAll sends the i-th part of send to rank i, and receives its part for this rank.
// [collective: group]
func AllToAll[T Element](g *Group, send, recv []T) error {
	n, err := g.Size()
	if err != nil {
		return err
	}
	fits := lengths("all_to_all", "receive", len(recv), len(send))
	if fits == nil {
		fits = lengths("all_to_all", "send", len(send), len(send)/n*n)
	}
	return g.collective(fits, func(p *raw.Group) error {
		return raw.AllToAll(p, pointer(send), pointer(recv), len(send)/n,
			DTypeOf[T]())
	})
}

// Send sends to a rank of the group, which calls Receive with the same tag. [collective: the two ranks]
func Send[T Element](g *Group, buffer []T, to, tag int) error {
	return own.Do(g.Handle, func(p *raw.Group) error {
		return raw.Send(p, pointer(buffer), len(buffer), DTypeOf[T](), raw.Int32(to), raw.Int32(tag))
	})
}

// Receive receives from a rank of the group, which calls Send with the same tag.
// [collective: the two ranks]
func Receive[T Element](g *Group, buffer []T, from, tag int) error {
	return own.Do(g.Handle, func(p *raw.Group) error {
		return raw.Receive(p, pointer(buffer), len(buffer), DTypeOf[T](), raw.Int32(from), raw.Int32(tag))
	})
}
