// The classifier of ../alone over several ranks: its layers are split over the tensor-parallel ones, its
// samples over the others, which also divide the optimizer's state (ZeRO-1). Losses are those of ../alone.
//
//	nxdrun -n 2 ./parallel 2      two tensor-parallel ranks
//	nxdrun -n 2 ./parallel 1      two data-parallel ranks
//	nxdrun -n 4 ./parallel 2      two of two
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"

	p "example.org/mlp/problem"
	"libnxd.org/nxd"
)

// parameter is values and gradients in memory that the library may keep.
type parameter struct {
	name        string
	value, grad nxd.Array[float32]
	shape       []int64
	placed      nxd.Placed
}

func (a parameter) values() nxd.LayerArray    { return nxd.In(a.value, a.shape...) }
func (a parameter) gradients() nxd.LayerArray { return nxd.In(a.grad, a.shape...) }

type model struct {
	c              *nxd.Context
	data           *nxd.Group
	w1, b1, w2, b2 parameter
	x, h, dh       nxd.Array[float32]
	z, dz          nxd.Array[float32]
	labels         []int
	part           int64 // hidden units of this rank
}

func array(n int) nxd.Array[float32] {
	a, err := nxd.NewArray[float32](n)
	check(err)
	return a
}

// part is an equal one of count for each of so many ranks.
func part(count int, what string, ranks int, axis string) int {
	if count%ranks != 0 {
		check(fmt.Errorf("%d %s do not divide by %d %s-parallel ranks", count, what, ranks, axis))
	}
	return count / ranks
}

// rows is an activation of this rank's samples.
func (m *model) rows(a nxd.Array[float32]) nxd.LayerArray {
	n := int64(len(m.labels))
	return nxd.In(a, n, int64(a.Len())/n)
}

// own makes a parameter of this rank's part of a whole one.
func (m *model) own(name string, whole []float32, placed nxd.Placed, shape ...int64) parameter {
	a := parameter{name: name, shape: shape, placed: placed}
	n := int64(1)
	for _, size := range shape {
		n *= size
	}
	a.value, a.grad = array(int(n)), array(int(n))
	if whole == nil {
		return a
	}
	all := array(len(whole))
	defer all.Close()
	copy(all.Data(), whole)
	undivided := append([]int64{}, shape...)
	undivided[placed.Dim] *= int64(len(whole)) / n
	part := nxd.ShardOptions{HasDim: 1, Dim: int32(placed.Dim)}
	check(nxd.ShardSetFull(m.c, nxd.In(all, undivided...), part, a.values()))
	return a
}

func newModel(c *nxd.Context, tp int) *model {
	m := &model{c: c}
	check(c.InitModelParallel(&nxd.ParallelOptions{TensorParallelSize: int32(tp)}))
	var err error
	m.data, err = c.ParallelGroup(nxd.AxisData)
	check(err)
	ranks, err := m.data.Size()
	check(err)
	rank, err := m.data.Rank()
	check(err)
	rows, columns := nxd.Placed{Placement: nxd.Sharded}, nxd.Placed{Placement: nxd.Sharded, Dim: 1}
	m.part = int64(part(p.Hidden, "hidden units", tp, "tensor"))
	m.w1 = m.own("w1", p.W1(), rows, m.part, p.Features)
	m.b1 = m.own("b1", nil, rows, m.part)
	m.w2 = m.own("w2", p.W2(), columns, p.Classes, m.part)
	m.b2 = m.own("b2", nil, nxd.Placed{Placement: nxd.Replicated}, p.Classes)
	n := part(p.Samples, "samples", ranks, "data")
	m.x = array(n * p.Features)
	for s := 0; s < n; s++ {
		m.labels = append(m.labels, p.Sample(rank*n+s, m.x.Data()[s*p.Features:(s+1)*p.Features]))
	}
	m.h, m.dh, m.z, m.dz = array(n*int(m.part)), array(n*int(m.part)), array(n*p.Classes), array(n*p.Classes)
	return m
}

// step computes the loss of this rank's samples, and all gradients; ready tells of those that are complete.
func (m *model) step(ready func(indices ...int)) float64 {
	column, row := nxd.ColumnLinearOptions{}, nxd.RowLinearOptions{}
	check(nxd.ColumnLinearForward(m.c, m.rows(m.x), m.w1.values(), m.b1.values(), column, m.rows(m.h)))
	p.Tanh(m.h.Data())
	check(nxd.RowLinearForward(m.c, m.rows(m.h), m.w2.values(), m.b2.values(), row, m.rows(m.z)))
	loss := p.CrossEntropy(m.z.Data(), m.labels, m.dz.Data())
	check(nxd.RowLinearBackward(m.c, m.rows(m.h), m.w2.values(), m.rows(m.dz), row, m.rows(m.dh),
		m.w2.gradients(), m.b2.gradients()))
	ready(3, 2)
	p.TanhGradient(m.h.Data(), m.dh.Data())
	check(nxd.ColumnLinearBackward(m.c, m.rows(m.x), m.w1.values(), m.rows(m.dh), column, nxd.LayerArray{},
		m.w1.gradients(), m.b1.gradients()))
	ready(1, 0)
	return loss
}

func (m *model) train() {
	var list []nxd.Parameter
	var placed []nxd.Placed
	for _, a := range []parameter{m.w1, m.b1, m.w2, m.b2} {
		list = append(list, nxd.Parameter{Name: a.name, Values: a.value, Grads: a.grad, Shape: a.shape})
		placed = append(placed, a.placed)
	}
	// Two buckets, so that one may travel during the backward pass.
	ddp, err := nxd.NewDDP(m.c, m.data, list, nxd.DDPOptions{ZeroStage: 1, BucketBytes: 1024})
	check(err)
	check(ddp.SetPlacements(placed...))
	optimizer, err := nxd.NewAdamW(ddp, nxd.AdamWOptions{LearningRate: p.Rate, WeightDecay: p.WeightDecay})
	check(err)
	for i := 0; i < p.Steps; i++ {
		loss := []float64{m.step(func(indices ...int) {
			for _, k := range indices {
				check(ddp.MarkReady(k))
			}
		})}
		_, err := optimizer.Step(nxd.FinishOptions{})
		check(err)
		check(nxd.AllReduce(m.data, loss, loss, nxd.Sum))
		check(m.c.Print(fmt.Sprintf("step %d loss %.6f", i, loss[0])))
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	tp := 1
	if len(os.Args) > 1 {
		var err error
		tp, err = strconv.Atoi(os.Args[1])
		check(err)
	}
	c, err := nxd.NewContext(context.Background(), nil)
	check(err)
	defer c.Close()
	newModel(c, tp).train()
	check(c.Finalize())
}
