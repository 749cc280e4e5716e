// Package problem has the data and first weights of the examples with frameworks, and what both programs
// compute in plain Go.
package problem

import "math"

// Sizes of the classifier and of its training.
const (
	Features, Hidden, Classes, Samples, Steps = 12, 32, 4, 64, 40

	Rate, WeightDecay = 0.02, 0.01
)

// Sample fills x, and gives its class: where a wave of the features is, in quarters.
func Sample(index int, x []float32) int {
	sum := 0.0
	for i := range x {
		x[i] = float32(math.Sin(0.7*float64(index+1)*float64(i+1) + 0.2*float64(i)))
		sum += float64(x[i]) * math.Cos(1.1*float64(i))
	}
	label := int((0.5 + 0.5*math.Sin(sum)) * Classes)
	if label >= Classes {
		return Classes - 1
	}
	return label
}

// W1 is [Hidden, Features], W2 [Classes, Hidden]; biases start as zeros.
func W1() []float32 {
	w := make([]float32, Hidden*Features)
	for i := range w {
		w[i] = float32(0.3 * math.Sin(1.7*float64(i)))
	}
	return w
}

func W2() []float32 {
	w := make([]float32, Classes*Hidden)
	for i := range w {
		w[i] = float32(0.3 * math.Cos(2.3*float64(i)))
	}
	return w
}

func Tanh(h []float32) {
	for i, v := range h {
		h[i] = float32(math.Tanh(float64(v)))
	}
}

// TanhGradient takes the gradient of tanh's result h to that of its argument.
func TanhGradient(h, dh []float32) {
	for i, v := range h {
		dh[i] *= 1 - v*v
	}
}

// CrossEntropy gives the loss of these rows of logits, as a share of that of all samples, and its gradient.
func CrossEntropy(z []float32, labels []int, dz []float32) (loss float64) {
	for s, label := range labels {
		row, gradient := z[s*Classes:(s+1)*Classes], dz[s*Classes:(s+1)*Classes]
		largest, sum := math.Inf(-1), 0.0
		for _, v := range row {
			largest = math.Max(largest, float64(v))
		}
		for _, v := range row {
			sum += math.Exp(float64(v) - largest)
		}
		for c, v := range row {
			p := math.Exp(float64(v)-largest) / sum
			if c == label {
				p--
			}
			gradient[c] = float32(p / Samples)
		}
		loss -= (float64(row[label]) - largest - math.Log(sum)) / Samples
	}
	return loss
}
