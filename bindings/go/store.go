package nxd

// #include "callbacks.h"
import "C"

import (
	"runtime/cgo"
	"time"
	"unsafe"

	"libnxd.org/nxd/internal/own"
	"libnxd.org/nxd/raw"
)

// Store is a key-value store through which ranks find one another. Its methods may be called from any
// goroutine.
type Store struct{ own.Handle[raw.Store] }

func newStore(p *raw.Store, err error) (*Store, error) {
	if err != nil {
		return nil, err
	}
	return &Store{own.New(p, raw.StoreDestroy)}, nil
}

// NewLocalStore is for ranks that are threads of this process.
func NewLocalStore() (*Store, error) { return newStore(raw.StoreCreateLocal()) }

// NewFileStore is for ranks that can write one file, which must be fresh for each job.
func NewFileStore(path string) (*Store, error) { return newStore(raw.StoreCreateFile(path)) }

// NewTCPStore is served by one rank. The server's port 0 picks a free one; timeout 0 is 5 minutes, and
// bounds each later Get too.
func NewTCPStore(host string, port int, server bool, timeout time.Duration) (*Store, error) {
	return newStore(raw.StoreCreateTCP(host, raw.Int32(port), flag(server), milliseconds(timeout)))
}

// KeyValues is a store of the program's own. Several goroutines may call it at once.
type KeyValues interface {
	Set(key string, value []byte) error
	// Get does not wait; ok is false for a key that is absent.
	Get(key string) (value []byte, ok bool, err error)
	// Add adds to an integer that starts at 0, atomically.
	Add(key string, amount int64) (int64, error)
}

// NewStore is a store over the program's own.
func NewStore(values KeyValues) (*Store, error) {
	h := cgo.NewHandle(values)
	c := raw.StoreCallbacks{
		UserData: uintptr(h),
		Destroy:  uintptr(unsafe.Pointer(C.nxdgo_destroy)),
		Set:      uintptr(unsafe.Pointer(C.nxdgo_store_set)),
		Get:      uintptr(unsafe.Pointer(C.nxdgo_store_get)),
		Add:      uintptr(unsafe.Pointer(C.nxdgo_store_add)),
	}.Sized()
	s, err := newStore(raw.StoreCreateCallbacks(&c))
	if err != nil {
		h.Delete()
	}
	return s, err
}

// Port is what the server of a TCP store listens on.
func (s *Store) Port() (int, error) { return own.Int(s.Handle, raw.StoreGetPort) }

// Set stores a copy of value.
func (s *Store) Set(key string, value []byte) error {
	return own.Do(s.Handle, func(p *raw.Store) error {
		return raw.StoreSet(p, key, pointer(value), len(value))
	})
}

// Get waits for a key; a timeout of 0 asks once. An absent key is Timeout.
func (s *Store) Get(key string, timeout time.Duration) ([]byte, error) {
	value := make([]byte, 256)
	for {
		n, err := own.Get(s.Handle, func(p *raw.Store) (int, error) {
			return raw.StoreGet(p, key, milliseconds(timeout), pointer(value), len(value))
		})
		if err == nil {
			return value[:n], nil
		}
		if n <= len(value) {
			return nil, err
		}
		value = make([]byte, n)
	}
}

// Add adds to an integer that starts at 0, atomically, and gives the sum.
func (s *Store) Add(key string, amount int64) (int64, error) {
	return own.Get(s.Handle, func(p *raw.Store) (int64, error) { return raw.StoreAdd(p, key, amount) })
}

// milliseconds rounds up, so that a short time does not become 0, which means a default or none.
func milliseconds(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	whole := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		whole++
	}
	return whole
}
