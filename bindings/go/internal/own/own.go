// Package own says who destroys an object of the library's, and when.
package own

import (
	"runtime"
	"sync"
	"sync/atomic"

	"libnxd.org/nxd/raw"
)

// Handle is an object of the library's. Close destroys it, and so does the garbage collector for one
// that was forgotten. Objects that it needs stay alive as long as it does.
type Handle[T any] struct{ s *state[T] }

type state[T any] struct {
	ptr     atomic.Pointer[T]
	destroy func(*T)
	ended   func(*T) bool // nil, or whether destroy would change nothing for others
	settle  func(*T)      // waits until ended
	keep    []any
	owners  []owner // of a borrowed object
}

// owner is what a borrowed object belongs to.
type owner interface{ isOpen() bool }

// Scope is how long objects are lent that no handle owns: until End.
type Scope struct{ over atomic.Bool }

// End ends what was lent.
func (s *Scope) End() { s.over.Store(true) }

func (s *Scope) isOpen() bool { return s == nil || !s.over.Load() }

// New owns ptr. keep are Go values that ptr needs.
func New[T any](ptr *T, destroy func(*T), keep ...any) Handle[T] {
	s := &state[T]{destroy: destroy, keep: keep}
	s.ptr.Store(ptr)
	runtime.SetFinalizer(s, func(s *state[T]) { reap(s.forgotten) })
	return Handle[T]{s}
}

// NewManual is New, for an object that Close alone destroys: something that the collector does not see
// may use it. It and what it needs stay alive until then.
func NewManual[T any](ptr *T, destroy func(*T), keep ...any) Handle[T] {
	s := &state[T]{keep: keep}
	s.destroy = func(ptr *T) {
		manual.Delete(s)
		destroy(ptr)
	}
	s.ptr.Store(ptr)
	manual.Store(s, nil)
	return Handle[T]{s}
}

// The objects of NewManual that are not closed.
var manual sync.Map

// NewSettling is New, for an object that must not be destroyed too early: one that was forgotten before
// it has ended is settled first, on a goroutine of its own.
func NewSettling[T any](ptr *T, destroy func(*T), ended func(*T) bool, settle func(*T), keep ...any) Handle[T] {
	h := New(ptr, destroy, keep...)
	h.s.ended, h.s.settle = ended, settle
	return h
}

// Borrow refers to ptr, which something in keep owns: it ends with each handle and Scope there. Close only
// lets it go.
func Borrow[T any](ptr *T, keep ...any) Handle[T] {
	s := &state[T]{destroy: func(*T) {}, keep: keep}
	for _, k := range keep {
		if o, ok := k.(owner); ok {
			s.owners = append(s.owners, o)
		}
	}
	s.ptr.Store(ptr)
	return Handle[T]{s}
}

func (s *state[T]) forgotten() {
	ptr := s.ptr.Load()
	if s.ended == nil || s.ended(ptr) {
		s.close()
		return
	}
	settling.Add(1)
	go func() {
		defer settling.Add(-1)
		s.settle(ptr)
		s.close()
	}()
}

func (s *state[T]) close() {
	if ptr := s.ptr.Swap(nil); ptr != nil {
		s.destroy(ptr)
		runtime.SetFinalizer(s, nil)
		s.keep = nil
	}
}

// Raw is the object for package raw; nil after Close, and once its owner is closed. It is valid while the
// handle is reachable.
func (h Handle[T]) Raw() *T {
	if h.s == nil {
		return nil
	}
	for _, o := range h.s.owners {
		if !o.isOpen() {
			return nil
		}
	}
	return h.s.ptr.Load()
}

func (h Handle[T]) isOpen() bool { return h.Raw() != nil }

// Given is Raw of an argument that may be left out, which a closed object is not.
func (h Handle[T]) Given(name string) (*T, error) {
	p := h.Raw()
	if p == nil {
		return nil, raw.Invalid("%s: expected an open object, got a closed one", name)
	}
	return p, nil
}

// Needs are the Go values that the object needs, for another that keeps it in the library.
func (h Handle[T]) Needs() []any {
	if h.s == nil {
		return nil
	}
	return h.s.keep
}

// Close destroys the object now. It may be called again. No other call may be using the object.
func (h Handle[T]) Close() {
	if h.s != nil {
		h.s.close()
	}
}

// Do calls f with the object, which stays alive meanwhile.
func Do[T any](h Handle[T], f func(*T) error) error {
	err := f(h.Raw())
	runtime.KeepAlive(h.s)
	return err
}

// Get calls a getter.
func Get[T, R any](h Handle[T], f func(*T) (R, error)) (R, error) {
	r, err := f(h.Raw())
	runtime.KeepAlive(h.s)
	return r, err
}

// Int calls a getter of a small number.
func Int[T any](h Handle[T], f func(*T) (int32, error)) (int, error) {
	r, err := f(h.Raw())
	runtime.KeepAlive(h.s)
	return int(r), err
}

// Objects that the collector found are destroyed on a goroutine of this package: some wait for the end
// of a transfer, which would hold up the finalizers of the whole program.
var settling atomic.Int64

var reaper struct {
	sync.Mutex
	running bool
	queue   []func()
}

func reap(close func()) {
	reaper.Lock()
	defer reaper.Unlock()
	reaper.queue = append(reaper.queue, close)
	if !reaper.running {
		reaper.running = true
		go drain()
	}
}

func drain() {
	for {
		reaper.Lock()
		batch := reaper.queue
		reaper.queue = nil
		if len(batch) == 0 {
			reaper.running = false
			reaper.Unlock()
			return
		}
		reaper.Unlock()
		for _, close := range batch {
			close()
		}
	}
}

// Pending is the number of objects that wait to be destroyed, for tests.
func Pending() int {
	reaper.Lock()
	defer reaper.Unlock()
	n := len(reaper.queue) + int(settling.Load())
	if reaper.running {
		n++
	}
	return n
}
