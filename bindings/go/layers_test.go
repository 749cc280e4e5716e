package nxd_test

import (
	"math"
	"strings"
	"testing"

	"libnxd.org/nxd"
	"libnxd.org/nxd/internal/ranks"
)

func numbers(n int, phase float64) (nxd.Array[float64], error) {
	a, err := nxd.NewArray[float64](n)
	if err != nil {
		return a, err
	}
	for i := range a.Data() {
		a.Data()[i] = math.Sin(float64(i) + phase)
	}
	return a, nil
}

func tensorParallel(c *nxd.Context) (rank int, err error) {
	size, err := c.Size()
	if err != nil {
		return 0, err
	}
	if err := c.InitModelParallel(&nxd.ParallelOptions{TensorParallelSize: int32(size)}); err != nil {
		return 0, err
	}
	return c.Rank()
}

// The column layer's features of both ranks, and the row layer's sum over them, are those of plain loops.
func TestLayersOverArrays(t *testing.T) {
	const rows, in, hidden, out, part = 5, 3, 8, 4, 4
	ranks.Run(t, 2, func(c *nxd.Context) error {
		rank, err := tensorParallel(c)
		if err != nil {
			return err
		}
		x, err := numbers(rows*in, 0)
		if err != nil {
			return err
		}
		w1, err := numbers(hidden*in, 1)
		if err != nil {
			return err
		}
		w2, err := numbers(out*hidden, 2)
		if err != nil {
			return err
		}
		h, err := nxd.NewArray[float64](rows * part)
		if err != nil {
			return err
		}
		y, err := nxd.NewArray[float64](rows * out)
		if err != nil {
			return err
		}
		defer func() {
			for _, a := range []nxd.Array[float64]{x, w1, w2, h, y} {
				a.Close()
			}
		}()
		own := nxd.In(w1.Part(rank*part*in, (rank+1)*part*in), part, in)
		if err := nxd.ColumnLinearForward(c, nxd.In(x, rows, in), own, nxd.LayerArray{}, nxd.ColumnLinearOptions{},
			nxd.In(h, rows, part)); err != nil {
			return err
		}
		// This rank's columns, as far apart as the whole's.
		columns := nxd.LayerArray{Memory: w2.Part(rank*part, (out-1)*hidden+(rank+1)*part),
			Shape: []int64{out, part}, Strides: []int64{hidden, 1}}
		if err := nxd.RowLinearForward(c, nxd.In(h, rows, part), columns, nxd.LayerArray{}, nxd.RowLinearOptions{},
			nxd.In(y, rows, out)); err != nil {
			return err
		}
		for r := 0; r < rows; r++ {
			for o := 0; o < out; o++ {
				sum := 0.0
				for j := 0; j < hidden; j++ {
					for k := 0; k < in; k++ {
						sum += x.Data()[r*in+k] * w1.Data()[j*in+k] * w2.Data()[o*hidden+j]
					}
				}
				if got := y.Data()[r*out+o]; math.Abs(got-sum) > 1e-12*(1+math.Abs(sum)) {
					t.Errorf("y[%d][%d] is %g, expected %g", r, o, got, sum)
				}
			}
		}
		return nil
	})
}

// Two weights of one input: the results are those of one call each, and the input's gradient is one sum.
func TestSeveralWeightsOfOneInput(t *testing.T) {
	ranks.Run(t, 2, func(c *nxd.Context) error {
		if _, err := tensorParallel(c); err != nil {
			return err
		}
		var arrays [9]nxd.Array[float64]
		for i, n := range []int{6, 12, 6, 8, 4, 8, 6, 6, 6} { // x, two weights, ys, y alone, dx, and dx of each
			var err error
			if arrays[i], err = numbers(n, float64(i)); err != nil {
				return err
			}
			defer arrays[i].Close()
		}
		x := nxd.In(arrays[0], 2, 3)
		weights := []nxd.LayerArray{nxd.In(arrays[1], 4, 3), nxd.In(arrays[2], 2, 3)}
		ys := []nxd.LayerArray{nxd.In(arrays[3], 2, 4), nxd.In(arrays[4], 2, 2)}
		var o nxd.ColumnLinearOptions
		if err := nxd.ColumnLinearsForward(c, x, weights, nil, o, ys); err != nil {
			return err
		}
		if err := nxd.ColumnLinearForward(c, x, weights[0], nxd.LayerArray{}, o, nxd.In(arrays[5], 2, 4)); err != nil {
			return err
		}
		for i, want := range arrays[5].Data() {
			if got := arrays[3].Data()[i]; got != want {
				t.Errorf("element %d is %g, expected %g", i, got, want)
			}
		}
		if err := nxd.ColumnLinearsBackward(c, x, weights, ys, o, nxd.In(arrays[6], 2, 3), nil, nil); err != nil {
			return err
		}
		for i := range weights {
			dx := nxd.In(arrays[7+i], 2, 3)
			if err := nxd.ColumnLinearBackward(c, x, weights[i], ys[i], o, dx, nxd.LayerArray{}, nxd.LayerArray{}); err != nil {
				return err
			}
		}
		for i, got := range arrays[6].Data() {
			if want := arrays[7].Data()[i] + arrays[8].Data()[i]; math.Abs(got-want) > 1e-12*(1+math.Abs(want)) {
				t.Errorf("gradient %d is %g, expected %g", i, got, want)
			}
		}
		err := nxd.ColumnLinearsForward(c, x, weights, nil, o, ys[:1])
		if err == nil || !strings.Contains(err.Error(), "ys: expected one for each of 2 weights, got 1") {
			t.Errorf("one result for two weights: %v", err)
		}
		return nil
	})
}

// Initial values are those of the whole weight, which is put together again.
func TestShardsOfWeights(t *testing.T) {
	ranks.Run(t, 2, func(c *nxd.Context) error {
		rank, err := tensorParallel(c)
		if err != nil {
			return err
		}
		whole, err := nxd.NewArray[float32](12)
		if err != nil {
			return err
		}
		defer whole.Close()
		shard, err := nxd.NewArray[float32](6)
		if err != nil {
			return err
		}
		defer shard.Close()
		again, err := nxd.NewArray[float32](12)
		if err != nil {
			return err
		}
		defer again.Close()
		rows := nxd.ShardOptions{HasDim: 1}
		if err := nxd.ShardInitialize(c, "w", nxd.InitNormal, 0, 1, nxd.ShardOptions{}, nxd.In(whole, 4, 3)); err != nil {
			return err
		}
		if err := nxd.ShardInitialize(c, "w", nxd.InitNormal, 0, 1, rows, nxd.In(shard, 2, 3)); err != nil {
			return err
		}
		if err := nxd.ShardGatherFull(c, nxd.In(shard, 2, 3), rows, nxd.In(again, 4, 3)); err != nil {
			return err
		}
		// A dimension that is not 0 counts without its flag.
		counted := nxd.ShardOptions{Dim: -2}
		if err := nxd.ShardGatherFull(c, nxd.In(shard, 2, 3), counted, nxd.In(again, 4, 3)); err != nil {
			return err
		}
		for i, v := range whole.Data() {
			if again.Data()[i] != v || (i/6 == rank && shard.Data()[i%6] != v) {
				t.Errorf("element %d: %g, and %g", i, v, again.Data()[i])
			}
		}
		return nil
	})
}

// An array that is bad on one rank is an error on both, and the next call goes well.
func TestBadArraysOfOneRank(t *testing.T) {
	ranks.Run(t, 2, func(c *nxd.Context) error {
		rank, err := tensorParallel(c)
		if err != nil {
			return err
		}
		x, err := numbers(6, 0)
		if err != nil {
			return err
		}
		defer x.Close()
		y, err := numbers(6, 1)
		if err != nil {
			return err
		}
		defer y.Close()
		for _, bad := range []nxd.LayerArray{nxd.In(y, 7), nxd.In(y, 3, 2),
			{Memory: y, Shape: []int64{2, 3}, Strides: []int64{4, 1}}} {
			to := nxd.In(y, 2, 3)
			if rank == 1 {
				to = bad
			}
			err := nxd.DropoutForward(c, "drop", nxd.In(x, 2, 3), nxd.DropoutOptions{P: 0.5}, to)
			if err == nil || !strings.Contains(err.Error(), "expected") {
				t.Errorf("rank %d: got %v", rank, err)
			}
			if err := nxd.DropoutForward(c, "drop", nxd.In(x, 2, 3), nxd.DropoutOptions{P: 0.5}, nxd.In(y, 2, 3)); err != nil {
				return err
			}
		}
		for i, v := range y.Data() {
			if v != 0 && v != 2*x.Data()[i] {
				t.Errorf("element %d is %g of %g", i, v, x.Data()[i])
			}
		}
		return nil
	})
}
