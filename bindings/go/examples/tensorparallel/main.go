// Tensor parallelism and ZeRO-1 inside a program that owns its arrays: libnxd_core multiplies what each
// rank has of the weights, sums over the ranks, and divides the optimizer's state; the rest is plain Go.
// Losses do not depend on the ranks, and are those of embed_tensor_parallel in C.
//
//	nxdrun -n 2 ./tensorparallel 2    # two ranks that are tensor parallel
//	nxdrun -n 2 ./tensorparallel      # ZeRO-1 over two ranks
package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"strconv"

	"libnxd.org/nxd"
)

const features, hidden, classes, samples, steps = 12, 32, 4, 64, 40

// Indices of the parameters, in the order of use.
const (
	w1 = iota
	b1
	w2
	b2
	parameters
)

type array = nxd.Array[float32]

type example struct {
	c         *nxd.Context
	data      *nxd.Group
	ddp       *nxd.DDP
	optimizer *nxd.Optimizer
	// Units between the layers that this rank has, and samples that it takes.
	part, count    int
	shapes         [parameters][]int64
	weights, grads [parameters]array
	x, h, z        array
	dh, dz         array
	labels         []int
}

// sample gives a wave of features, and the quarter that the wave is in as its class.
func sample(index int, x []float32) int {
	sum := 0.0
	for i := range x {
		x[i] = float32(math.Sin(0.7*float64(index+1)*float64(i+1) + 0.2*float64(i)))
		sum += float64(x[i]) * math.Cos(1.1*float64(i))
	}
	label := int((0.5 + 0.5*math.Sin(sum)) * classes)
	if label >= classes {
		return classes - 1
	}
	return label
}

// join divides the world into tensor- and data-parallel groups.
func (e *example) join(tp int) (err error) {
	if e.c, err = nxd.NewContext(context.Background(), nil); err != nil {
		return err
	}
	if err = e.c.InitModelParallel(&nxd.ParallelOptions{TensorParallelSize: int32(tp)}); err != nil {
		return err
	}
	dp, err := e.c.ParallelSize(nxd.AxisData)
	if err != nil {
		return err
	}
	if hidden%tp != 0 || samples%dp != 0 {
		return fmt.Errorf("%d units do not divide by %d ranks, or %d samples by %d", hidden, tp, samples, dp)
	}
	e.part, e.count = hidden/tp, samples/dp
	e.data, err = e.c.ParallelGroup(nxd.AxisData)
	return err
}

// allocate makes all arrays, and fills the weights with this rank's part of what they start from.
func (e *example) allocate() (err error) {
	part := int64(e.part)
	e.shapes = [parameters][]int64{{part, features}, {part}, {classes, part}, {classes}}
	sizes := []int{e.part * features, e.part, classes * e.part, classes}
	for i, n := range sizes {
		for _, to := range []*array{&e.weights[i], &e.grads[i]} {
			if *to, err = nxd.NewArray[float32](n); err != nil {
				return err
			}
		}
	}
	activations := map[*array]int{&e.x: features, &e.h: e.part, &e.z: classes, &e.dh: e.part, &e.dz: classes}
	for to, width := range activations {
		if *to, err = nxd.NewArray[float32](e.count * width); err != nil {
			return err
		}
	}
	first := nxd.In(e.weights[w1], e.shapes[w1]...)
	err = nxd.ShardInitialize(e.c, "w1", nxd.InitNormal, 0, 0.3, nxd.ShardOptions{HasDim: 1, Dim: 0}, first)
	if err != nil {
		return err
	}
	second := nxd.In(e.weights[w2], e.shapes[w2]...)
	return nxd.ShardInitialize(e.c, "w2", nxd.InitNormal, 0, 0.3, nxd.ShardOptions{HasDim: 1, Dim: 1}, second)
}

func (e *example) loadSamples() error {
	r, err := e.data.Rank()
	if err != nil {
		return err
	}
	for s := 0; s < e.count; s++ {
		e.labels = append(e.labels, sample(r*e.count+s, e.x.Data()[s*features:(s+1)*features]))
	}
	return nil
}

func (e *example) makeOptimizer() (err error) {
	names := [parameters]string{"w1", "b1", "w2", "b2"}
	var list []nxd.Parameter
	for i, name := range names {
		list = append(list, nxd.Parameter{Name: name, Values: e.weights[i], Grads: e.grads[i], Shape: e.shapes[i]})
	}
	// Two buckets, so that there is something to overlap.
	e.ddp, err = nxd.NewDDP(e.c, e.data, list, nxd.DDPOptions{ZeroStage: 1, BucketBytes: 1024})
	if err != nil {
		return err
	}
	// So that the norm is that of the undivided network.
	err = e.ddp.SetPlacements(nxd.Placed{Placement: nxd.Sharded}, nxd.Placed{Placement: nxd.Sharded},
		nxd.Placed{Placement: nxd.Sharded, Dim: 1}, nxd.Placed{Placement: nxd.Replicated})
	if err != nil {
		return err
	}
	e.optimizer, err = nxd.NewAdamW(e.ddp, nxd.AdamWOptions{LearningRate: 0.02})
	return err
}

// in is a weight, or with a gradient its gradient, as the layers see it.
func (e *example) in(of *[parameters]array, i int) nxd.LayerArray {
	return nxd.In(of[i], e.shapes[i]...)
}

// rows are the activations of this rank's samples.
func (e *example) rows(a array, width int) nxd.LayerArray {
	return nxd.In(a, int64(e.count), int64(width))
}

// forward is softmax(w2 tanh(w1 x + b1) + b2) up to the logits.
func (e *example) forward() error {
	var none nxd.ColumnLinearOptions
	// Column-parallel: every rank has x, and gets its own units of h.
	err := nxd.ColumnLinearForward(e.c, e.rows(e.x, features), e.in(&e.weights, w1), e.in(&e.weights, b1), none,
		e.rows(e.h, e.part))
	if err != nil {
		return err
	}
	for i, h := range e.h.Data() {
		e.h.Data()[i] = float32(math.Tanh(float64(h)))
	}
	// Row-parallel: z is the sum over ranks, the same on all of them.
	return nxd.RowLinearForward(e.c, e.rows(e.h, e.part), e.in(&e.weights, w2), e.in(&e.weights, b2),
		nxd.RowLinearOptions{}, e.rows(e.z, classes))
}

// crossEntropy gives the loss of this rank's samples, and the logits' gradient.
func (e *example) crossEntropy() (loss float64) {
	for s, label := range e.labels {
		z, dz := e.z.Data()[s*classes:(s+1)*classes], e.dz.Data()[s*classes:(s+1)*classes]
		largest, sum := math.Inf(-1), 0.0
		for _, v := range z {
			largest = math.Max(largest, float64(v))
		}
		for _, v := range z {
			sum += math.Exp(float64(v) - largest)
		}
		for c, v := range z {
			p := math.Exp(float64(v)-largest) / sum
			if c == label {
				p--
			}
			dz[c] = float32(p / samples)
		}
		loss -= (float64(z[label]) - largest - math.Log(sum)) / samples
	}
	return loss
}

func (e *example) backward() error {
	err := nxd.RowLinearBackward(e.c, e.rows(e.h, e.part), e.in(&e.weights, w2), e.rows(e.dz, classes),
		nxd.RowLinearOptions{}, e.rows(e.dh, e.part), e.in(&e.grads, w2), e.in(&e.grads, b2))
	if err != nil {
		return err
	}
	// Their bucket may travel during what follows.
	if err := e.markReady(b2, w2); err != nil {
		return err
	}
	for i, h := range e.h.Data() {
		e.dh.Data()[i] *= 1 - h*h
	}
	// x has no gradient to ask for, so nothing is summed here.
	err = nxd.ColumnLinearBackward(e.c, e.rows(e.x, features), e.in(&e.weights, w1), e.rows(e.dh, e.part),
		nxd.ColumnLinearOptions{}, nxd.LayerArray{}, e.in(&e.grads, w1), e.in(&e.grads, b1))
	if err != nil {
		return err
	}
	return e.markReady(b1, w1)
}

func (e *example) markReady(indices ...int) error {
	for _, i := range indices {
		if err := e.ddp.MarkReady(i); err != nil {
			return err
		}
	}
	return nil
}

func (e *example) trainStep(step int) error {
	if err := e.forward(); err != nil {
		return err
	}
	loss := []float64{e.crossEntropy()}
	if err := e.backward(); err != nil {
		return err
	}
	report, err := e.optimizer.Step(nxd.FinishOptions{})
	if err != nil {
		return err
	}
	if err := nxd.AllReduce(e.data, loss, loss, nxd.Sum); err != nil {
		return err
	}
	return e.c.Print(fmt.Sprintf("step %d loss %.6f, norm %.6f", step, loss[0], report.Norm))
}

func (e *example) run(tp int) error {
	for _, part := range []func() error{func() error { return e.join(tp) }, e.allocate, e.loadSamples,
		e.makeOptimizer} {
		if err := part(); err != nil {
			return err
		}
	}
	defer e.c.Close()
	for step := 0; step < steps; step++ {
		if err := e.trainStep(step); err != nil {
			return err
		}
	}
	return e.c.Finalize()
}

func main() {
	tp := 1
	if len(os.Args) > 1 {
		tp, _ = strconv.Atoi(os.Args[1])
	}
	if err := new(example).run(tp); err != nil {
		fmt.Fprintln(os.Stderr, "tensorparallel:", err)
		os.Exit(1)
	}
}
