//go:build go1.21

package nxd_test

import (
	"runtime"
	"testing"

	"libnxd.org/nxd"
	"libnxd.org/nxd/internal/ranks"
)

// Ordinary slices as parameters, with a gradient that is allocated anew at each step.
func TestPinnedSlices(t *testing.T) {
	ranks.Run(t, 2, func(c *nxd.Context) error {
		const n = 1000
		rank, err := c.Rank()
		if err != nil {
			return err
		}
		values, first := nxd.Pin(make([]float32, n)), nxd.Pin(make([]float32, n))
		defer values.Close()
		grads := first
		ddp, err := nxd.NewDDP(c, nil, []nxd.Parameter{{Name: "w", Values: values, Grads: grads}}, nxd.DDPOptions{ZeroStage: 1})
		if err != nil {
			return err
		}
		defer ddp.Close()
		sgd, err := nxd.NewSGD(ddp, nxd.SGDOptions{LearningRate: 0.5})
		if err != nil {
			return err
		}
		defer sgd.Close()
		for step := 0; step < 4; step++ {
			moved := nxd.Pin(make([]float32, n))
			for i := range moved.Data() {
				moved.Data()[i] = float32(rank + 1) // the ranks' sum is 3
			}
			if err := ddp.Rebind(0, nil, moved); err != nil {
				return err
			}
			grads.Close()
			grads = moved
			runtime.GC()
			if err := ddp.MarkReady(0); err != nil {
				return err
			}
			if _, err := sgd.Step(nxd.FinishOptions{}); err != nil {
				return err
			}
		}
		defer grads.Close()
		for i, v := range values.Data() {
			if v != -6 {
				t.Errorf("value %d is %g, expected -6", i, v)
				break
			}
		}
		if err := ddp.Rebind(0, nil, first); err == nil {
			t.Error("a closed slice was taken")
		}
		return ddp.Rebind(0, nil, grads)
	})
}
