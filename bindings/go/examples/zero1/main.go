// ZeRO-1 inside a program that has its own model: a two-layer network, its backward pass and its arrays
// are plain Go, and libnxd_core reduces the gradients while the backward pass goes on, keeps the
// optimizer's state divided over the ranks and updates the weights in place. Losses do not depend on the
// number of ranks.
//
//	nxdrun -n 2 ./zero1
package main

import (
	"context"
	"fmt"
	"math"
	"os"

	"libnxd.org/nxd"
)

const features, hidden, classes, samples, steps = 12, 32, 4, 64, 40

// weights are slices of arrays that the library keeps using: the values, or what backward adds up.
type weights struct{ w1, b1, w2, b2 []float32 }

// Indices of the parameters.
const (
	w1 = iota
	b1
	w2
	b2
	parameters
)

// sample gives a wave of features, and where the wave is as one of the classes.
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

type activations struct {
	x     [features]float32
	h, dh [hidden]float32
	p     [classes]float32
	label int
}

// forward is the cross entropy of softmax(w2 tanh(w1 x + b1) + b2).
func forward(w *weights, index int, a *activations) float64 {
	a.label = sample(index, a.x[:])
	for j := range a.h {
		s := float64(w.b1[j])
		for i, x := range a.x {
			s += float64(w.w1[j*features+i]) * float64(x)
		}
		a.h[j] = float32(math.Tanh(s))
	}
	var z [classes]float64
	largest, sum := math.Inf(-1), 0.0
	for c := range z {
		z[c] = float64(w.b2[c])
		for j, h := range a.h {
			z[c] += float64(w.w2[c*hidden+j]) * float64(h)
		}
		largest = math.Max(largest, z[c])
	}
	for c := range z {
		sum += math.Exp(z[c] - largest)
	}
	for c := range z {
		a.p[c] = float32(math.Exp(z[c]-largest) / sum)
	}
	return -(z[a.label] - largest - math.Log(sum))
}

// backwardHead adds the gradients of the second layer; the first layer's follow from dh.
func backwardHead(w, g *weights, a *activations) {
	a.dh = [hidden]float32{}
	for c := 0; c < classes; c++ {
		dz := a.p[c]
		if c == a.label {
			dz--
		}
		dz /= samples
		g.b2[c] += dz
		for j := range a.h {
			g.w2[c*hidden+j] += dz * a.h[j]
			a.dh[j] += dz * w.w2[c*hidden+j]
		}
	}
}

func backwardBody(g *weights, a *activations) {
	for j := range a.h {
		ds := a.dh[j] * (1 - a.h[j]*a.h[j])
		g.b1[j] += ds
		for i, x := range a.x {
			g.w1[j*features+i] += ds * x
		}
	}
}

type example struct {
	c              *nxd.Context
	world          *nxd.Group
	ddp            *nxd.DDP
	optimizer      *nxd.Optimizer
	rank, size     int
	weights, grads weights
	all            nxd.Array[float32] // of all gradients, to clear them at once
}

// makeOptimizer says where the arrays are.
func (e *example) makeOptimizer() error {
	shapes := [parameters][]int64{{hidden, features}, {hidden}, {classes, hidden}, {classes}}
	names := [parameters]string{"w1", "b1", "w2", "b2"}
	total := hidden*features + hidden + classes*hidden + classes
	values, err := nxd.NewArray[float32](total)
	if err != nil {
		return err
	}
	if e.all, err = nxd.NewArray[float32](total); err != nil {
		return err
	}
	var list []nxd.Parameter
	at := 0
	into := [parameters][2]*[]float32{{&e.weights.w1, &e.grads.w1}, {&e.weights.b1, &e.grads.b1},
		{&e.weights.w2, &e.grads.w2}, {&e.weights.b2, &e.grads.b2}}
	for i, shape := range shapes {
		n := int(shape[0])
		if len(shape) == 2 {
			n *= int(shape[1])
		}
		v, g := values.Part(at, at+n), e.all.Part(at, at+n)
		*into[i][0], *into[i][1] = v.Data(), g.Data()
		list = append(list, nxd.Parameter{Name: names[i], Values: v, Grads: g, Shape: shape})
		at += n
	}
	// Two buckets, so that there is something to overlap.
	e.ddp, err = nxd.NewDDP(e.c, nil, list, nxd.DDPOptions{ZeroStage: 1, BucketBytes: 1024})
	if err != nil {
		return err
	}
	e.optimizer, err = nxd.NewAdamW(e.ddp, nxd.AdamWOptions{LearningRate: 0.02, WeightDecay: 0.01})
	if err != nil {
		return err
	}
	biases, err := e.optimizer.AddGroup("b?")
	if err != nil {
		return err
	}
	return e.optimizer.SetHyperparameter(biases, nxd.WeightDecay, 0)
}

func (e *example) markReady(indices ...int) error {
	for _, i := range indices {
		if err := e.ddp.MarkReady(i); err != nil {
			return err
		}
	}
	return nil
}

// trainStep takes this rank's share of the samples; the sum of the ranks' gradients is the whole's.
func (e *example) trainStep(step int) error {
	first, last := samples*e.rank/e.size, samples*(e.rank+1)/e.size
	for i := range e.all.Data() {
		e.all.Data()[i] = 0
	}
	acts := make([]activations, last-first)
	loss := []float64{0}
	for i := range acts {
		loss[0] += forward(&e.weights, first+i, &acts[i]) / samples
	}
	for i := range acts {
		backwardHead(&e.weights, &e.grads, &acts[i])
	}
	if err := e.markReady(b2, w2); err != nil { // their bucket may travel during what follows
		return err
	}
	for i := range acts {
		backwardBody(&e.grads, &acts[i])
	}
	if err := e.markReady(b1, w1); err != nil {
		return err
	}
	report, err := e.optimizer.Step(nxd.FinishOptions{MaxNorm: 1})
	if err != nil {
		return err
	}
	if err := nxd.AllReduce(e.world, loss, loss, nxd.Sum); err != nil {
		return err
	}
	return e.c.Print(fmt.Sprintf("step %d loss %.6f norm %.6f", step, loss[0], report.Norm))
}

func (e *example) run() (err error) {
	if e.c, err = nxd.NewContext(context.Background(), nil); err != nil {
		return err
	}
	defer e.c.Close()
	if e.rank, err = e.c.Rank(); err != nil {
		return err
	}
	if e.size, err = e.c.Size(); err != nil {
		return err
	}
	if e.world, err = e.c.World(); err != nil {
		return err
	}
	if err = e.makeOptimizer(); err != nil {
		return err
	}
	for i := range e.weights.w1 {
		e.weights.w1[i] = float32(0.3 * math.Sin(1.7*float64(i)))
	}
	for i := range e.weights.w2 {
		e.weights.w2[i] = float32(0.3 * math.Cos(2.3*float64(i)))
	}
	for step := 0; step < steps; step++ {
		if err = e.trainStep(step); err != nil {
			return err
		}
	}
	bytes, err := e.optimizer.StateBytes()
	if err != nil {
		return err
	}
	line := fmt.Sprintf("%d ranks; rank 0 keeps %d bytes of state for %d of weights", e.size, bytes, 4*e.all.Len())
	if err = e.c.Print(line); err != nil {
		return err
	}
	return e.c.Finalize()
}

func main() {
	if err := new(example).run(); err != nil {
		fmt.Fprintln(os.Stderr, "zero1:", err)
		os.Exit(1)
	}
}
