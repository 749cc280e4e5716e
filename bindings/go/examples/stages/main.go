// A pipeline whose stages are plain Go: a network of tanh layers with its own forward and backward pass,
// cut over the ranks there are. libnxd_core runs the schedule and carries the values; plain SGD on the
// program's slices follows each step. Losses are the same to the last digit for every number of ranks and
// every schedule.
//
//	nxdrun -n 2 ./stages zero-bubble
package main

import (
	"context"
	"fmt"
	"math"
	"os"

	"libnxd.org/nxd"
)

const (
	layers, width, rows, microbatches, steps = 8, 24, 16, 8, 30
	rate                                     = 0.5
)

type layer struct{ w, b []float32 }

func newLayer() layer { return layer{make([]float32, width*width), make([]float32, width)} }

// network is the program's own memory, of which this rank uses its stages' layers.
type network struct {
	ranks, step   int
	layers, grads [layers]layer
}

// readSample is waves, and target what is to be made of them.
func (n *network) readSample(microbatch int) []float32 {
	x := make([]float32, rows*width)
	for r := 0; r < rows; r++ {
		sample := (n.step%4*microbatches+microbatch)*rows + r
		for i := 0; i < width; i++ {
			x[r*width+i] = float32(math.Sin(0.11*float64(sample+1)*float64(i%5+1) + float64(i)))
		}
	}
	return x
}

func target(x []float32, i int) float32 { return 0.5 * x[i] * x[(i+1)%width] }

// forward is y = h + tanh(w h + b).
func (l layer) forward(h []float32) []float32 {
	y := make([]float32, len(h))
	for r := 0; r < rows; r++ {
		row := h[r*width : (r+1)*width]
		for o := 0; o < width; o++ {
			z := l.b[o]
			for i, v := range row {
				z += l.w[o*width+i] * v
			}
			y[r*width+o] = row[o] + float32(math.Tanh(float64(z)))
		}
	}
	return y
}

// backward turns dy into dh; g, if there is one, takes the weights' part.
func (l layer) backward(h, y, dy []float32, g *layer) {
	for r := 0; r < rows; r++ {
		at := r * width
		dh := append([]float32(nil), dy[at:at+width]...)
		for o := 0; o < width; o++ {
			t := y[at+o] - h[at+o]
			dz := dy[at+o] * (1 - t*t)
			if g != nil {
				g.b[o] += dz
			}
			for i := 0; i < width; i++ {
				if g != nil {
					g.w[o*width+i] += dz * h[at+i]
				}
				dh[i] += dz * l.w[o*width+i]
			}
		}
		copy(dy[at:], dh)
	}
}

// run gives the rows before each of a stage's layers and after the last.
func (n *network) run(call nxd.StageCall, inputs []nxd.Buffer) (first int, h [][]float32, err error) {
	first, last := call.Stage*layers/n.ranks, (call.Stage+1)*layers/n.ranks
	x := n.readSample(call.Microbatch)
	if call.Stage > 0 {
		if x, err = nxd.View[float32](inputs[0]); err != nil {
			return 0, nil, err
		}
	}
	h = append(h, x)
	for l := first; l < last; l++ {
		h = append(h, n.layers[l].forward(h[l-first]))
	}
	return first, h, nil
}

// loss gives the error's mean square, and its gradient. The data are read again: every stage can.
func (n *network) loss(call nxd.StageCall, y []float32) (float64, []float32) {
	x, dy, sum := n.readSample(call.Microbatch), make([]float32, len(y)), 0.0
	for r := 0; r < rows; r++ {
		for i := 0; i < width; i++ {
			e := y[r*width+i] - target(x[r*width:(r+1)*width], i)
			sum += float64(e) * float64(e)
			dy[r*width+i] = float32(call.LossWeight) * 2 * e / (rows * width)
		}
	}
	return sum / (rows * width), dy
}

func (n *network) Forward(call nxd.StageCall, inputs, outputs []nxd.Buffer) (float64, error) {
	_, h, err := n.run(call, inputs)
	if err != nil {
		return 0, err
	}
	y := h[len(h)-1]
	if call.Stage+1 == n.ranks {
		loss, _ := n.loss(call, y)
		return loss, nil
	}
	to, err := nxd.View[float32](outputs[0])
	copy(to, y)
	return 0, err
}

// back computes the stage's rows anew from its inputs, which the library has kept.
func (n *network) back(call nxd.StageCall, inputs, gradOutputs, gradInputs []nxd.Buffer, weights bool) error {
	first, h, err := n.run(call, inputs)
	if err != nil {
		return err
	}
	var d []float32
	if call.Stage+1 == n.ranks {
		_, d = n.loss(call, h[len(h)-1])
	} else {
		from, err := nxd.View[float32](gradOutputs[0])
		if err != nil {
			return err
		}
		d = append(d, from...)
	}
	for l := len(h) - 2; l >= 0; l-- {
		var g *layer
		if weights {
			g = &n.grads[first+l]
		}
		n.layers[first+l].backward(h[l], h[l+1], d, g)
	}
	if len(gradInputs) > 0 {
		to, err := nxd.View[float32](gradInputs[0])
		if err != nil {
			return err
		}
		copy(to, d)
	}
	return nil
}

func (n *network) Backward(call nxd.StageCall, inputs, gradOutputs, gradInputs []nxd.Buffer) error {
	return n.back(call, inputs, gradOutputs, gradInputs, true)
}

func (n *network) BackwardInput(call nxd.StageCall, inputs, gradOutputs, gradInputs []nxd.Buffer) error {
	return n.back(call, inputs, gradOutputs, gradInputs, false)
}

func (n *network) BackwardWeight(call nxd.StageCall, inputs, gradOutputs []nxd.Buffer) error {
	return n.back(call, inputs, gradOutputs, nil, true)
}

func (n *network) trainStep(c *nxd.Context, p *nxd.Pipeline) error {
	for i := range n.grads {
		n.grads[i] = newLayer()
	}
	loss, err := p.Run(true)
	if err != nil {
		return err
	}
	for l := range n.layers {
		for i, g := range n.grads[l].w {
			n.layers[l].w[i] -= rate * g
		}
		for i, g := range n.grads[l].b {
			n.layers[l].b[i] -= rate * g
		}
	}
	return c.Print(fmt.Sprintf("step %d loss %.17g", n.step, loss))
}

func run(schedule nxd.ScheduleKind) error {
	c, err := nxd.NewContext(context.Background(), nil)
	if err != nil {
		return err
	}
	defer c.Close()
	rank, err := c.Rank()
	if err != nil {
		return err
	}
	n := &network{}
	if n.ranks, err = c.Size(); err != nil {
		return err
	}
	if err := c.InitModelParallel(&nxd.ParallelOptions{PipelineParallelSize: int32(n.ranks)}); err != nil {
		return err
	}
	for l := range n.layers {
		n.layers[l] = newLayer()
		for i := range n.layers[l].w {
			n.layers[l].w[i] = float32(0.1 * math.Sin(1.7*float64(i)+5.3*float64(l)))
		}
	}
	value := []nxd.Value{{Name: "h", Shape: []int64{rows, width}, DType: nxd.F32, NeedsGrad: true}}
	inputs, outputs := [][]nxd.Value{value}, [][]nxd.Value{value}
	if rank == 0 {
		inputs[0] = nil
	}
	if rank == n.ranks-1 {
		outputs[0] = nil
	}
	p, err := nxd.NewPipeline(c, n, inputs, outputs, nxd.PipelineOptions{Microbatches: microbatches,
		Schedule: schedule, BroadcastAndAverageLoss: true})
	if err != nil {
		return err
	}
	defer p.Close()
	for ; n.step < steps; n.step++ {
		if err := n.trainStep(c, p); err != nil {
			return err
		}
	}
	return c.Finalize()
}

func main() {
	schedules := map[string]nxd.ScheduleKind{"default": nxd.ScheduleDefault, "1f1b": nxd.Schedule1F1B,
		"gpipe": nxd.ScheduleGPipe, "zero-bubble": nxd.ScheduleZeroBubble}
	name := "default"
	if len(os.Args) > 1 {
		name = os.Args[1]
	}
	schedule, ok := schedules[name]
	if !ok || len(os.Args) > 2 {
		fmt.Fprintln(os.Stderr, "usage: stages [1f1b|gpipe|zero-bubble]")
		os.Exit(2)
	}
	if err := run(schedule); err != nil {
		fmt.Fprintln(os.Stderr, "stages:", err)
		os.Exit(1)
	}
}
