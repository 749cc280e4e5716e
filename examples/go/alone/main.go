// A classifier with two layers in plain Go, in one process, with AdamW. ../parallel is the same over several
// ranks.
//
//	go run ./alone
package main

import (
	"fmt"
	"math"

	p "example.org/mlp/problem"
)

// linear: y = x w^T + b, of rows of x.
func linear(x, w, b, y []float32) {
	out := len(b)
	in := len(w) / out
	for r := 0; r < len(x)/in; r++ {
		for o := 0; o < out; o++ {
			sum := b[o]
			for i := 0; i < in; i++ {
				sum += x[r*in+i] * w[o*in+i]
			}
			y[r*out+o] = sum
		}
	}
}

// linearGradients are those of linear; dx may be nil.
func linearGradients(x, w, dy, dx, dw, db []float32) {
	out := len(db)
	in := len(w) / out
	for _, g := range [][]float32{dx, dw, db} {
		for i := range g {
			g[i] = 0
		}
	}
	for r := 0; r < len(x)/in; r++ {
		for o := 0; o < out; o++ {
			d := dy[r*out+o]
			db[o] += d
			for i := 0; i < in; i++ {
				dw[o*in+i] += d * x[r*in+i]
				if dx != nil {
					dx[r*in+i] += d * w[o*in+i]
				}
			}
		}
	}
}

// parameter is values, gradients, and AdamW's state.
type parameter struct{ value, grad, moment, square []float32 }

func newParameter(value []float32) *parameter {
	n := len(value)
	return &parameter{value, make([]float32, n), make([]float32, n), make([]float32, n)}
}

func (a *parameter) adamW(step int) {
	first, second := 1-math.Pow(0.9, float64(step)), 1-math.Pow(0.999, float64(step))
	for i, g := range a.grad {
		a.moment[i] = 0.9*a.moment[i] + 0.1*g
		a.square[i] = 0.999*a.square[i] + 0.001*g*g
		scaled := float64(a.moment[i]) / first / (math.Sqrt(float64(a.square[i])/second) + 1e-8)
		a.value[i] = float32(float64(a.value[i])*(1-p.Rate*p.WeightDecay) - p.Rate*scaled)
	}
}

func main() {
	x, labels := make([]float32, p.Samples*p.Features), make([]int, p.Samples)
	for s := range labels {
		labels[s] = p.Sample(s, x[s*p.Features:(s+1)*p.Features])
	}
	w1, b1 := newParameter(p.W1()), newParameter(make([]float32, p.Hidden))
	w2, b2 := newParameter(p.W2()), newParameter(make([]float32, p.Classes))
	h, dh := make([]float32, p.Samples*p.Hidden), make([]float32, p.Samples*p.Hidden)
	z, dz := make([]float32, p.Samples*p.Classes), make([]float32, p.Samples*p.Classes)
	for step := 0; step < p.Steps; step++ {
		linear(x, w1.value, b1.value, h)
		p.Tanh(h)
		linear(h, w2.value, b2.value, z)
		loss := p.CrossEntropy(z, labels, dz)
		linearGradients(h, w2.value, dz, dh, w2.grad, b2.grad)
		p.TanhGradient(h, dh)
		linearGradients(x, w1.value, dh, nil, w1.grad, b1.grad)
		for _, a := range []*parameter{w1, b1, w2, b2} {
			a.adamW(step + 1)
		}
		fmt.Printf("step %d loss %.6f\n", step, loss)
	}
}
