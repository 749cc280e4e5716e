package engine_test

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"libnxd.org/nxd"
	"libnxd.org/nxd/engine"
)

func TestRecordedDevice(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tensor, text := must[*engine.Tensor](t), must[string](t)
	host := tensor(engine.FromSlice([]float32{1, -2, 3}, 3))
	defer host.Close()
	x := tensor(host.ToDevice(nxd.XLA))
	defer x.Close()
	if err := engine.ResetDeviceMetrics(); err != nil {
		t.Fatal(err)
	}
	y := tensor(engine.Call("relu", x))
	defer y.Close()
	total := tensor(engine.Call("sum", y))
	defer total.Close()
	seen := 0.0
	err := engine.AddStepClosure(func() (err error) {
		seen, err = total.Item()
		return err
	})
	if err = first(err, engine.MarkStep(true)); err != nil {
		t.Fatal(err)
	}
	m := must[engine.DeviceMetrics](t)(engine.ReadDeviceMetrics())
	if seen != 4 || m.Steps != 1 || m.Executions != 1 || m.ImplicitSyncs != 0 {
		t.Fatalf("closure saw %v; metrics %+v", seen, m)
	}
	if graph := text(engine.StepGraph(engine.GraphFormatText)); !strings.Contains(graph, "aten::relu(f32[3])") {
		t.Fatal(graph)
	}
	if graph := text(engine.StepGraph(engine.GraphFormatDot)); !strings.HasPrefix(graph, "digraph step {") {
		t.Fatal(graph)
	}
	if report := text(engine.DeviceReport()); !strings.Contains(report, "executions 1\n") {
		t.Fatal(report)
	}
	mine := errors.New("mine")
	if err := engine.AddStepClosure(func() error { return mine }); err != nil {
		t.Fatal(err)
	}
	if err := engine.MarkStep(true); !errors.Is(err, mine) {
		t.Fatal(err)
	}
}
