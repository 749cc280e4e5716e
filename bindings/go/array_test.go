package nxd_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"libnxd.org/nxd"
	"libnxd.org/nxd/internal/ranks"
)

// A slice of an array's memory is good while the array, which has no reference any more, is not closed.
func TestSliceOutlivesItsArray(t *testing.T) {
	const n, arrays = 1000, 8
	lasts := func(make func() (nxd.Array[float32], error)) error {
		var slices [arrays][]float32
		for i := range slices {
			a, err := make()
			if err != nil {
				return err
			}
			slices[i] = a.Data()
			for j := range slices[i] {
				slices[i][j] = float32(i*n + j)
			}
		}
		ranks.Settle(t)
		// Others that would get the memory if it were free.
		for i := 0; i < 10*arrays; i++ {
			a, err := make()
			if err != nil {
				return err
			}
			defer a.Close()
			for j := range a.Data() {
				a.Data()[j] = -1
			}
		}
		ranks.Settle(t)
		for i, s := range slices {
			for j, x := range s {
				if x != float32(i*n+j) {
					return fmt.Errorf("slice %d: expected %d at %d, got %g", i, i*n+j, j, x)
				}
			}
		}
		return nil
	}
	if err := lasts(func() (nxd.Array[float32], error) { return nxd.NewArray[float32](n) }); err != nil {
		t.Error(err)
	}
	ranks.Run(t, 1, func(c *nxd.Context) error {
		err := lasts(func() (nxd.Array[float32], error) { return nxd.NewSharedArray[float32](c, n) })
		return first(err, c.Finalize())
	})
}

// The memory of a context's shared array keeps the context, until one of them is closed.
func TestSharedArrayKeepsItsContext(t *testing.T) {
	make := func() (nxd.Array[float64], error) {
		s, err := nxd.NewLocalStore()
		if err != nil {
			return nxd.Array[float64]{}, err
		}
		c, err := nxd.NewContext(context.Background(), &nxd.ContextOptions{Store: s, Size: 1})
		if err != nil {
			return nxd.Array[float64]{}, err
		}
		return nxd.NewSharedArray[float64](c, 1000)
	}
	a, err := make()
	if err != nil {
		t.Fatal(err)
	}
	slice := a.Data()
	slice[999] = 7
	a = nxd.Array[float64]{}
	ranks.Settle(t)
	if slice[999] != 7 {
		t.Errorf("expected 7, got %g", slice[999])
	}
}

func TestOpenArrayBytes(t *testing.T) {
	before := nxd.OpenArrayBytes()
	a, err := nxd.NewArray[int64](100)
	if err != nil {
		t.Fatal(err)
	}
	if got := nxd.OpenArrayBytes() - before; got != 800 {
		t.Errorf("expected 800 bytes, got %d", got)
	}
	a.Part(0, 10).Close()
	a.Close()
	if got := nxd.OpenArrayBytes() - before; got != 0 {
		t.Errorf("after Close: expected no bytes, got %d", got)
	}
}

// Bytes that no number counts, and lengths that are none.
func TestLengthsOfArrays(t *testing.T) {
	s, err := nxd.NewLocalStore()
	if err != nil {
		t.Fatal(err)
	}
	c, err := nxd.NewContext(context.Background(), &nxd.ContextOptions{Store: s, Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	before := nxd.OpenArrayBytes()
	for _, n := range []int{-1, math.MaxInt/8 + 1, math.MaxInt/4 + 2, math.MaxInt} {
		for name, make := range map[string]func() (nxd.Array[float64], error){
			"NewArray":       func() (nxd.Array[float64], error) { return nxd.NewArray[float64](n) },
			"NewSharedArray": func() (nxd.Array[float64], error) { return nxd.NewSharedArray[float64](c, n) },
		} {
			a, err := make()
			var failure *nxd.Error
			if !errors.As(err, &failure) || failure.Status != nxd.InvalidArgument || a.Len() != 0 {
				t.Errorf("%s of %d: expected InvalidArgument, got %v and %d elements", name, n, err, a.Len())
			}
		}
	}
	if got := nxd.OpenArrayBytes() - before; got != 0 {
		t.Errorf("expected no bytes, got %d", got)
	}
}
