package engine_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"libnxd.org/nxd"
	"libnxd.org/nxd/engine"
	"libnxd.org/nxd/internal/ranks"
)

func check[T any](what string, got, want T) error {
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("%s: expected %v, got %v", what, want, got)
	}
	return nil
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// must is for the test's own goroutine.
func must[T any](t testing.TB) func(x T, err error) T {
	return func(x T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
}

func tensor(t testing.TB, data []float32, shape ...int64) *engine.Tensor {
	t.Helper()
	x := must[*engine.Tensor](t)(engine.FromSlice(data, shape...))
	t.Cleanup(x.Close)
	return x
}

func data(t testing.TB, x *engine.Tensor) []float32 {
	t.Helper()
	return must[[]float32](t)(engine.Data[float32](x))
}

func TestTensors(t *testing.T) {
	x := tensor(t, []float32{1, 2, 3, 4, 5, 6}, 2, 3)
	shape := must[[]int64](t)(x.Shape())
	strides := must[[]int64](t)(x.Strides())
	if err := first(check("shape", shape, []int64{2, 3}), check("strides", strides, []int64{3, 1}),
		engine.SetData(x, []float32{6, 5, 4, 3, 2, 1})); err != nil {
		t.Error(err)
	}
	y := must[*engine.Tensor](t)(engine.Call("t", x))
	defer y.Close()
	if err := check("transposed", data(t, y), []float32{6, 3, 5, 2, 4, 1}); err != nil {
		t.Error(err)
	}
	if _, err := y.Buffer(); !errors.Is(err, nxd.InvalidArgument) {
		t.Errorf("a buffer out of C order: got %v", err)
	}
	empty := must[*engine.Tensor](t)(engine.Zeros(nxd.F32, nxd.CPU, 3, 0))
	defer empty.Close()
	if view := must[[]float32](t)(nxd.View[float32](must[nxd.Buffer](t)(empty.Buffer()))); len(view) != 0 {
		t.Errorf("a tensor without elements has %d", len(view))
	}
	meta := must[*engine.Tensor](t)(engine.Zeros(nxd.BF16, nxd.Meta, 4))
	defer meta.Close()
	if d := must[nxd.Device](t)(meta.Device()); d != nxd.Meta {
		t.Errorf("device: got %v", d)
	}
	for what, err := range map[string]error{
		"too few elements": second(engine.FromSlice([]float32{1}, 2, 3)),
		"another type":     second(engine.Data[float64](x)),
		"data of meta":     second(engine.Data[nxd.BFloat16](meta)),
		"an item of six":   second(x.Item()),
		"no operator":      second(engine.Call("relo", x)),
		"too short":        engine.SetData(x, []float32{1}),
		"a closed tensor":  second(closed(t).Shape()),
	} {
		if !errors.Is(err, nxd.InvalidArgument) && !errors.Is(err, nxd.Unsupported) {
			t.Errorf("%s: got %v", what, err)
		}
	}
	if _, err := engine.Call("relo", x); !strings.Contains(err.Error(), "relu") {
		t.Errorf("near names are missing: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

func closed(t testing.TB) *engine.Tensor {
	x := tensor(t, nil, 0)
	x.Close()
	return x
}

// A tensor over an array shares its memory, and keeps it when the array is closed.
func TestArrayWithoutCopy(t *testing.T) {
	a := must[nxd.Array[float32]](t)(nxd.NewArray[float32](6))
	x := must[*engine.Tensor](t)(engine.FromArray(a, 2, 3))
	defer x.Close()
	a.Data()[5] = 7
	if err := first(x.MarkModified(), check("written in Go", data(t, x)[5], 7),
		engine.SetData(x, []float32{9, 8, 7, 6, 5, 4}), check("written by the library", a.Data()[0], 9)); err != nil {
		t.Error(err)
	}
	view := must[[]float32](t)(nxd.View[float32](must[nxd.Buffer](t)(x.Buffer())))
	if &view[0] != &a.Data()[0] {
		t.Error("the view is a copy")
	}
	a.Close()
	ranks.Settle(t)
	if err := check("after Close", data(t, x)[1], 8); err != nil {
		t.Error(err)
	}
	managed := must[*engine.Tensor](t)(engine.FromDLPack(dlpack(t, x)))
	defer managed.Close()
	x.Close()
	if err := check("through DLPack", data(t, managed)[2], 7); err != nil {
		t.Error(err)
	}
	if _, err := engine.FromArray(a, 6); !errors.Is(err, nxd.InvalidArgument) {
		t.Errorf("a closed array: got %v", err)
	}
}

func TestOp(t *testing.T) {
	x := tensor(t, []float32{1, 2, 3, 4}, 2, 2)
	op := must[*engine.Op](t)(engine.NewOp("aten::sum.dim_IntList"))
	defer op.Close()
	if err := first(op.Set("self", x), op.Set("dim", []int64{0}), op.Set("keepdim", true), op.Run()); err != nil {
		t.Fatal(err)
	}
	sum := must[*engine.Tensor](t)(op.Tensor(0))
	defer sum.Close()
	shape := must[[]int64](t)(sum.Shape())
	if err := first(check("shape", shape, []int64{1, 2}), check("sum", data(t, sum), []float32{4, 6})); err != nil {
		t.Error(err)
	}
	if err := op.Set("dim", struct{}{}); !errors.Is(err, nxd.InvalidArgument) {
		t.Errorf("an argument of no type: got %v", err)
	}
	cat := must[*engine.Op](t)(engine.NewOp("cat"))
	defer cat.Close()
	if err := first(cat.Set("tensors", []*engine.Tensor{x, x}), cat.Set("dim", 0), cat.Run()); err != nil {
		t.Fatal(err)
	}
	if n := must[int](t)(cat.Results()); n != 1 {
		t.Errorf("%d results", n)
	}
	if s := must[string](t)(cat.Schema()); !strings.HasPrefix(s, "aten::cat") {
		t.Errorf("schema %q", s)
	}
}

func TestResultsThatAreLeftOut(t *testing.T) {
	x, rows := tensor(t, []float32{1, 2, 3, 4}, 2, 2), tensor(t, []float32{1, 1}, 2, 1)
	norm := must[*engine.Op](t)(engine.NewOp("native_layer_norm_backward"))
	defer norm.Close()
	if err := first(norm.Set("grad_out", x), norm.Set("input", x), norm.Set("normalized_shape", []int64{2}),
		norm.Set("mean", rows), norm.Set("rstd", rows), norm.Set("weight", nil), norm.Set("bias", nil),
		norm.Set("output_mask", []int64{1, 0, 0}), norm.Run()); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < 3; i++ {
		if left := must[*engine.Tensor](t)(norm.Tensor(i)); left != nil {
			t.Errorf("result %d is %v", i, left)
		}
	}
	grad := must[*engine.Tensor](t)(norm.Tensor(0))
	defer grad.Close()
	if err := check("grad", data(t, grad), []float32{-0.5, -0.5, -18.5, -26.5}); err != nil {
		t.Error(err)
	}
}

func TestAutograd(t *testing.T) {
	x := tensor(t, []float32{1, 2, 3}, 3)
	if err := x.SetRequiresGrad(true); err != nil {
		t.Fatal(err)
	}
	square := must[*engine.Tensor](t)(engine.Call("square", x))
	sum := must[*engine.Tensor](t)(engine.Call("sum", square))
	defer engine.CloseAll([]*engine.Tensor{square, sum})
	grads := must[[]*engine.Tensor](t)(engine.Grad([]*engine.Tensor{sum}, nil, []*engine.Tensor{x}, true))
	if err := check("gradients", data(t, grads[0]), []float32{2, 4, 6}); err != nil {
		t.Error(err)
	}
	if none := must[*engine.Tensor](t)(x.Grad()); none != nil {
		t.Error("a gradient before backward")
	}
	if err := sum.Backward(); err != nil {
		t.Fatal(err)
	}
	if err := check("grad", data(t, must[*engine.Tensor](t)(x.Grad())), []float32{2, 4, 6}); err != nil {
		t.Error(err)
	}
	if err := sum.Backward(); !errors.Is(err, nxd.InvalidState) {
		t.Errorf("twice: got %v", err)
	}
	err := engine.NoGrad(func() error {
		y, err := engine.Call("square", x)
		if err != nil {
			return err
		}
		recorded, err := y.RequiresGrad()
		return first(err, check("recorded", recorded, false))
	})
	if err := first(err, x.SetGrad(nil)); err != nil {
		t.Error(err)
	}
	err = engine.Autocast(nxd.BF16, func() error {
		m := tensor(t, []float32{1, 2, 3, 4}, 2, 2)
		y, err := engine.Call("mm", m, m)
		if err != nil {
			return err
		}
		dtype, err := y.DType()
		return first(err, check("dtype", dtype, nxd.BF16))
	})
	if err != nil {
		t.Error(err)
	}
}

// newScale is y = 3x, in Go.
func newScale(t testing.TB, fail func() error) *engine.Function {
	times := func(x *engine.Tensor) ([]*engine.Tensor, error) {
		v, err := engine.Data[float32](x)
		if err != nil {
			return nil, err
		}
		for i := range v {
			v[i] *= 3
		}
		shape, err := x.Shape()
		if err != nil {
			return nil, err
		}
		y, err := engine.FromSlice(v, shape...)
		return []*engine.Tensor{y}, err
	}
	f := must[*engine.Function](t)(engine.NewFunction(engine.FunctionOptions{
		Name: "test::scale",
		Forward: func(call *engine.FunctionCall, in []*engine.Tensor) ([]*engine.Tensor, error) {
			if err := call.Save(in[0]); err != nil {
				return nil, err
			}
			return times(in[0])
		},
		Backward: func(call *engine.FunctionCall, grads []*engine.Tensor) ([]*engine.Tensor, error) {
			if err := fail(); err != nil {
				return nil, err
			}
			if _, err := call.Saved(0); err != nil {
				return nil, err
			}
			needs, err := call.NeedsGrad(0)
			if err := first(err, check("needs", needs, true)); err != nil {
				return nil, err
			}
			return times(grads[0])
		},
	}))
	t.Cleanup(f.Close)
	return f
}

func TestFunction(t *testing.T) {
	var fail error
	panics := false
	f := newScale(t, func() error {
		if panics {
			panic(fail)
		}
		return fail
	})
	backward := func() ([]float32, error) {
		x := tensor(t, []float32{1, 2}, 2)
		if err := x.SetRequiresGrad(true); err != nil {
			return nil, err
		}
		y, err := f.Apply(x)
		if err != nil {
			return nil, err
		}
		defer engine.CloseAll(y)
		sum := must[*engine.Tensor](t)(engine.Call("sum", y[0]))
		defer sum.Close()
		if err := sum.Backward(); err != nil {
			return nil, err
		}
		return data(t, must[*engine.Tensor](t)(x.Grad())), nil
	}
	grad, err := backward()
	if err := first(err, check("grad", grad, []float32{3, 3})); err != nil {
		t.Error(err)
	}
	fail = errors.New("no derivative")
	if _, err = backward(); !errors.Is(err, fail) || !errors.Is(err, nxd.User) {
		t.Errorf("got %v", err)
	}
	panics = true
	var p *nxd.PanicError
	if _, err = backward(); !errors.As(err, &p) || p.Value != fail || !strings.Contains(string(p.Stack), "TestFunction") {
		t.Errorf("got %v", err)
	}
}
