package nxd

// #include "callbacks.h"
import "C"

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"libnxd.org/nxd/internal/own"
	"libnxd.org/nxd/raw"
)

// Context is one rank: its identity, its groups and its failure state. Normally there is one in a
// process; several, each with a goroutine of its own, work too. Close without Finalize leaves now: peers
// that wait for this rank get PeerLost, in groups of NewGroup once these are closed too.
type Context struct{ own.Handle[raw.Context] }

// ContextOptions say where a rank meets its peers. Zero values are defaults.
type ContextOptions struct {
	Store        *Store // nil: what torchrun, nxdrun, Spawn, mpirun or srun put into the environment
	Rank, Size   int    // with Store
	LocalRank    int    // with Store: rank on this host
	Timeout      time.Duration
	Interface    string // network interface or address
	Seed         uint64
	PlainKernels Toggle // Default: by NXD_PLAIN_KERNELS, or Off
	Transport    Transport
	HostID       string // ranks that give the same name share memory
}

// Toggle is an option that is on or off, or as its place has it.
type Toggle = raw.Toggle

// Toggles.
const (
	Default = raw.ToggleDefault
	On      = raw.ToggleOn
	Off     = raw.ToggleOff
)

type canceller interface{ Err() error }

// Contexts of Go by number, of which blocked calls ask whether they are done. By number and not by
// pointer, because what was made from a context may outlive it.
var (
	interrupts    sync.Map
	lastInterrupt atomic.Uintptr
)

// NewContext joins the world: every rank meets every other. ctx stays with the result: when it is
// cancelled, the call that blocks then, and each later one that would, ends with an error that is
// ctx.Err() and Aborted, and its group is of no more use. [collective: world]
func NewContext(ctx context.Context, o *ContextOptions) (*Context, error) {
	if o == nil {
		o = &ContextOptions{}
	}
	var scratch raw.Scratch
	defer scratch.Free()
	c := raw.ContextOptions{
		Rank: raw.Int32(o.Rank), Size: raw.Int32(o.Size), LocalRank: raw.Int32(o.LocalRank),
		TimeoutMs: milliseconds(o.Timeout), Seed: o.Seed, PlainKernels: o.PlainKernels,
		Transport: o.Transport,
	}.Sized()
	var badInterface, badHost error
	c.InterfaceName, badInterface = scratch.String("Interface", o.Interface)
	c.HostID, badHost = scratch.String("HostID", o.HostID)
	bad := raw.FirstError(badInterface, badHost)
	if bad != nil {
		c.Transport = raw.TransportInvalid // by which the peers, who wait for this rank, are told
	}
	if o.Store != nil || o.Size != 0 {
		c.Rendezvous = raw.RendezvousStore
	}
	var store own.Handle[raw.Store]
	if o.Store != nil {
		store = o.Store.Handle
		if _, err := store.Given("Store"); err != nil {
			return nil, err
		}
	}
	id := lastInterrupt.Add(1)
	if ctx != nil && ctx.Done() != nil {
		c.Interrupt = uintptr(unsafe.Pointer(C.nxdgo_interrupt))
		c.InterruptData = id
		interrupts.Store(id, ctx)
	}
	p, err := own.Get(store, func(s *raw.Store) (*raw.Context, error) {
		c.Store = s
		return raw.ContextCreate(&c)
	})
	if err = raw.FirstError(bad, err); err != nil {
		interrupts.Delete(id)
		return nil, err
	}
	return &Context{own.New(p, func(p *raw.Context) {
		raw.ContextDestroy(p)
		interrupts.Delete(id)
	})}, nil
}

// Finalize leaves in agreement: it waits for all ranks. Afterwards only getters work. [collective: world]
func (c *Context) Finalize() error { return own.Do(c.Handle, raw.ContextFinalize) }

// Abort ends every pending and later collective with Aborted; from any goroutine.
func (c *Context) Abort() error { return own.Do(c.Handle, raw.ContextAbort) }

// Rank is this rank's number in the world.
func (c *Context) Rank() (int, error) { return own.Int(c.Handle, raw.ContextGetRank) }

// Size is the number of ranks in the world.
func (c *Context) Size() (int, error) { return own.Int(c.Handle, raw.ContextGetSize) }

// LocalRank is the number among the ranks of this host.
func (c *Context) LocalRank() (int, error) { return own.Int(c.Handle, raw.ContextGetLocalRank) }

// World is the group of all ranks.
func (c *Context) World() (*Group, error) {
	p, err := own.Get(c.Handle, raw.ContextGetWorldGroup)
	if err != nil {
		return nil, err
	}
	return &Group{own.Borrow(p, c)}, nil
}

// FlightRecord is the last collectives and messages of each group as JSON; from any goroutine, also
// while calls block on others.
func (c *Context) FlightRecord() (string, error) {
	buf := make([]byte, 1<<14)
	for {
		n, err := own.Get(c.Handle, func(p *raw.Context) (int, error) {
			return raw.ContextGetFlightRecord(p, &buf[0], len(buf))
		})
		if err == nil {
			return string(buf[:n-1]), nil
		}
		if n <= len(buf) {
			return "", err
		}
		buf = make([]byte, n+n/4) // it may have grown by the next call
	}
}

// SetPlainKernels switches layers between fused kernels and plain ATen operators.
func (c *Context) SetPlainKernels(plain bool) error {
	return own.Do(c.Handle, func(p *raw.Context) error { return raw.ContextSetPlainKernels(p, flag(plain)) })
}

// PlainKernels tells whether layers run through plain ATen operators.
func (c *Context) PlainKernels() (bool, error) {
	plain, err := own.Get(c.Handle, raw.ContextGetPlainKernels)
	return plain != 0, err
}

// SetStep sets the training step and microbatch that random bits are drawn for.
func (c *Context) SetStep(step, microbatch int64) error {
	return own.Do(c.Handle, func(p *raw.Context) error { return raw.ContextSetStep(p, step, microbatch) })
}

// Step gives the training step and microbatch that random bits are drawn for.
func (c *Context) Step() (step, microbatch int64, err error) {
	err = own.Do(c.Handle, func(p *raw.Context) error {
		step, microbatch, err = raw.ContextGetStep(p)
		return err
	})
	return step, microbatch, err
}

// Print writes a line to stdout on rank 0, and nothing elsewhere.
func (c *Context) Print(line string) error {
	return own.Do(c.Handle, func(p *raw.Context) error { return raw.MasterPrint(p, line) })
}
