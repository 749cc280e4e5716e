package nxd_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"libnxd.org/nxd"
	"libnxd.org/nxd/internal/ranks"
)

// tokenFile has sixteen samples of four tokens, 0 to 63.
func tokenFile(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "tokens.bin")
	var content []byte
	for token := uint16(0); token < 64; token++ {
		content = binary.LittleEndian.AppendUint16(content, token)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// take checks the batch of a rank, goes back to its start, and gives the first tokens of its samples.
func take(l *nxd.DataLoader) ([]int64, error) {
	ids, labels, again := make([]int64, 20), make([]int64, 20), make([]int64, 20)
	if err := first(l.Next(ids, labels), l.SetPosition(0), l.Next(again, labels)); err != nil {
		return nil, err
	}
	var starts []int64
	for i, id := range ids {
		if labels[i] != id+1 || again[i] != id {
			return nil, errors.New("labels or a second batch differ")
		}
		if i%4 == 0 {
			starts = append(starts, id)
		}
	}
	if l.Next(ids, nil) == nil || l.Next(ids, labels[1:]) == nil {
		return nil, errors.New("bad labels were taken")
	}
	position, err := l.Position()
	return starts, first(err, check("position", position, 10))
}

func TestDataLoader(t *testing.T) {
	path := tokenFile(t)
	starts := make(chan []int64, 2)
	ranks.Run(t, 2, func(c *nxd.Context) error {
		o := nxd.DataLoaderOptions{Format: nxd.TokensUint16, NextLabels: 1, VocabSize: 64}
		l, err := nxd.NewDataLoader(c, []string{path}, 5, 4, o)
		if err != nil {
			return err
		}
		defer l.Close()
		n, err := l.NumSamples()
		if err = first(err, check("samples", n, 15)); err != nil {
			return err
		}
		found, err := take(l)
		starts <- found
		return err
	})
	seen := map[int64]bool{}
	for _, start := range append(<-starts, <-starts...) {
		seen[start] = true
	}
	if len(seen) != 10 {
		t.Errorf("expected ten samples of two ranks, got %d", len(seen))
	}
}

func TestDataLoaderSeed(t *testing.T) {
	path := tokenFile(t)
	ranks.Run(t, 1, func(c *nxd.Context) error {
		order := func(o nxd.DataLoaderOptions) (string, error) {
			l, err := nxd.NewDataLoader(c, []string{path}, 1, 4, o)
			if err != nil {
				return "", err
			}
			defer l.Close()
			ids := make([]int64, 64)
			err = l.Next(ids, nil)
			return fmt.Sprint(ids), err
		}
		five, err := order(nxd.DataLoaderOptions{Seed: 5})
		same, err2 := order(nxd.DataLoaderOptions{Seed: 5, HasSeed: 1})
		none, err3 := order(nxd.DataLoaderOptions{})
		if err := first(err, err2, err3); err != nil {
			return err
		}
		if five != same || five == none {
			return fmt.Errorf("orders %v, %v, %v", five, same, none)
		}
		return nil
	})
}

func TestDataLoaderOfBadPaths(t *testing.T) {
	path := tokenFile(t)
	ranks.Run(t, 2, func(c *nxd.Context) error {
		rank, err := c.Rank()
		if err != nil {
			return err
		}
		for _, bad := range []struct {
			path   string
			status nxd.Status
		}{{"/nonexistent", nxd.IO}, {"with\x00nul", nxd.InvalidArgument}} {
			paths := []string{path}
			if rank == 1 {
				paths[0] = bad.path
			}
			_, err := nxd.NewDataLoader(c, paths, 1, 4, nxd.DataLoaderOptions{})
			if !errors.Is(err, bad.status) {
				return fmt.Errorf("path %q: %v", bad.path, err)
			}
		}
		return nil
	})
}
