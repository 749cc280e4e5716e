package nxd_test

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"libnxd.org/nxd"
	"libnxd.org/nxd/internal/ranks"
)

// memory is a store of the program's own.
type memory struct {
	sync.Mutex
	values map[string][]byte
	sums   map[string]int64
	fail   func(key string) error
}

func (m *memory) Set(key string, value []byte) error {
	m.Lock()
	defer m.Unlock()
	if m.fail != nil {
		return m.fail(key)
	}
	m.values[key] = value
	return nil
}

func (m *memory) Get(key string) ([]byte, bool, error) {
	m.Lock()
	defer m.Unlock()
	value, ok := m.values[key]
	return value, ok, nil
}

func (m *memory) Add(key string, amount int64) (int64, error) {
	m.Lock()
	defer m.Unlock()
	m.sums[key] += amount
	return m.sums[key], nil
}

func newMemory() *memory { return &memory{values: map[string][]byte{}, sums: map[string]int64{}} }

func testStore(t *testing.T, s *nxd.Store, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	long := bytes.Repeat([]byte("x"), 1000)
	if err := first(s.Set("a", []byte("value")), s.Set("long", long), s.Set("empty", nil)); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"a": "value", "long": string(long), "empty": ""} {
		if got, err := s.Get(key, ranks.Timeout); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v", key, got, err)
		}
	}
	if sum, err := s.Add("n", 3); err != nil || sum != 3 {
		t.Errorf("add: got %d, %v", sum, err)
	}
	if _, err := s.Get("absent", 0); !errors.Is(err, nxd.Timeout) {
		t.Errorf("an absent key: got %v", err)
	}
}

func TestStores(t *testing.T) {
	s, err := nxd.NewLocalStore()
	testStore(t, s, err)
	s, err = nxd.NewFileStore(filepath.Join(t.TempDir(), "store"))
	testStore(t, s, err)
	s, err = nxd.NewTCPStore("127.0.0.1", 0, true, ranks.Timeout)
	if err == nil {
		port, err := s.Port()
		if err != nil || port == 0 {
			t.Errorf("port %d, %v", port, err)
		}
	}
	testStore(t, s, err)
	s, err = nxd.NewStore(newMemory())
	testStore(t, s, err)
}

// Errors and panics of a callback come out of the call that it was made from.
func TestStoreFails(t *testing.T) {
	m := newMemory()
	s, err := nxd.NewStore(m)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	full := errors.New("disk full")
	m.fail = func(string) error { return full }
	if err := s.Set("k", nil); !errors.Is(err, full) || !errors.Is(err, nxd.User) {
		t.Errorf("got %v", err)
	}
	m.fail = func(key string) error { panic("no " + key) }
	var p *nxd.PanicError
	if err := s.Set("k", nil); !errors.As(err, &p) || p.Value != "no k" ||
		!strings.Contains(err.Error(), "store_test.go") {
		t.Errorf("got %v", err)
	}
	m.fail = func(string) error { return &nxd.Error{Status: nxd.IO, Message: "gone"} }
	if err := s.Set("k", nil); !errors.Is(err, nxd.IO) {
		t.Errorf("got %v", err)
	}
	m.fail = nil
	if err := s.Set("k", nil); err != nil {
		t.Errorf("an earlier failure stays: %v", err)
	}
}

// Ranks meet over a store written in Go.
func TestRendezvousOverOwnStore(t *testing.T) {
	s, err := nxd.NewStore(newMemory())
	if err != nil {
		t.Fatal(err)
	}
	ends := make(chan error)
	for rank := 0; rank < 2; rank++ {
		go func(rank int) {
			c, err := nxd.NewContext(context.Background(), &nxd.ContextOptions{Store: s, Rank: rank, Size: 2,
				Timeout: ranks.Timeout})
			if err == nil {
				err = c.Finalize()
				c.Close()
			}
			ends <- err
		}(rank)
	}
	if err := first(<-ends, <-ends); err != nil {
		t.Error(err)
	}
	s.Close()
}
