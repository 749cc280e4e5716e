package engine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"

	"libnxd.org/nxd"
	"libnxd.org/nxd/engine"
	"libnxd.org/nxd/internal/ranks"
	"libnxd.org/nxd/raw"
)

func dlpack(t testing.TB, x *engine.Tensor) *raw.DLManagedTensor {
	t.Helper()
	return must[*raw.DLManagedTensor](t)(x.ToDLPack())
}

const llama = `{"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4,
"num_key_value_heads": 2, "intermediate_size": 64, "vocab_size": 64, "rms_norm_eps": 1e-5,
"max_position_embeddings": 16, "initializer_range": 0.02}`

func ids() (*engine.Tensor, error) {
	v := make([]int64, 4*8)
	for i := range v {
		v[i] = int64(i*7) % 64
	}
	return engine.FromSlice(v, 4, 8)
}

// losses trains a Llama for three steps, with a layout.
func losses(c *nxd.Context, layout nxd.ParallelOptions) ([]float64, error) {
	if err := c.InitModelParallel(&layout); err != nil {
		return nil, err
	}
	m, err := engine.NewModel(c, llama, engine.ModelOptions{})
	if err != nil {
		return nil, err
	}
	defer m.Close()
	x, err := ids()
	if err != nil {
		return nil, err
	}
	defer x.Close()
	step := func() (float64, error) {
		loss, err := m.Forward(x, x)
		if err != nil {
			return 0, err
		}
		defer loss.Close()
		value, err := loss.Item()
		return value, first(err, loss.Backward())
	}
	root := m
	if layout.PipelineParallelSize > 1 {
		p, err := engine.NewPipeline(m, []*engine.Tensor{x, x}, engine.PipelineOptions{Microbatches: 2,
			BroadcastAndAverageLoss: true, LossPath: "loss", Outputs: 2})
		if err != nil {
			return nil, err
		}
		defer p.Close()
		cuts, err := p.Cuts()
		if err := first(err, check("cuts", len(cuts), 1)); err != nil {
			return nil, err
		}
		paths, err := p.OutputPaths()
		if err := first(err, check("outputs", fmt.Sprint(paths), "[loss logits]")); err != nil {
			return nil, err
		}
		paths, err = m.OutputPaths()
		if err := first(err, check("outputs", fmt.Sprint(paths), "[loss logits]")); err != nil {
			return nil, err
		}
		wrong := engine.PipelineOptions{LossPath: "losss"}
		if _, err := engine.NewPipeline(m, []*engine.Tensor{x, x}, wrong); !errors.Is(err, nxd.InvalidArgument) {
			return nil, fmt.Errorf("a loss that is not there: %v", err)
		}
		if root, err = p.LocalModule(); err != nil {
			return nil, err
		}
		step = func() (float64, error) {
			return p.RunTrainNamed(engine.NamedInput{Name: "labels", Tensor: x},
				engine.NamedInput{Name: "input_ids", Tensor: x})
		}
	}
	adamw, err := engine.NewAdamW(root, nxd.AdamWOptions{LearningRate: 1e-2})
	if err != nil {
		return nil, err
	}
	defer adamw.Close()
	var out []float64
	for i := 0; i < 3; i++ {
		loss, err := step()
		if err != nil {
			return nil, err
		}
		out = append(out, loss)
		if _, err := adamw.Step(nxd.FinishOptions{MaxNorm: 1}); err != nil {
			return nil, err
		}
		if err := root.ZeroGrad(); err != nil {
			return nil, err
		}
	}
	return out, c.Finalize()
}

// A model's losses fall, and are nearly the same on one rank, two tensor-parallel ranks and two stages.
func TestModel(t *testing.T) {
	var mutex sync.Mutex
	of := map[string][]float64{}
	for name, layout := range map[string]nxd.ParallelOptions{"one": {}, "tp": {TensorParallelSize: 2},
		"pp": {PipelineParallelSize: 2}} {
		n := 2
		if name == "one" {
			n = 1
		}
		ranks.Run(t, n, func(c *nxd.Context) error {
			got, err := losses(c, layout)
			mutex.Lock()
			defer mutex.Unlock()
			if len(of[name]) > 0 && !reflect.DeepEqual(got, of[name]) {
				t.Errorf("%s: ranks differ: %v and %v", name, got, of[name])
			}
			of[name] = got
			return err
		})
	}
	one := of["one"]
	if len(one) != 3 || one[2] >= one[0] {
		t.Fatalf("losses: %v", one)
	}
	for _, name := range []string{"tp", "pp"} {
		for i, loss := range of[name] {
			if d := loss - one[i]; d > 1e-4 || d < -1e-4 {
				t.Errorf("%s: step %d: %v, on one rank %v", name, i, loss, one[i])
			}
		}
	}
}

// affine is y = x w + b with parameters of its own, its forward in Go.
func affine(c *nxd.Context, fail *error) (*engine.Module, error) {
	m, err := engine.NewModule(c, "Affine", func(self *engine.Module, in []*engine.Tensor) ([]*engine.Tensor, error) {
		if fail != nil && *fail != nil {
			return nil, *fail
		}
		var values []*engine.Tensor
		for _, name := range []string{"w", "b"} {
			p, err := self.Parameter(name)
			if err != nil {
				return nil, err
			}
			v, err := p.Tensor()
			if err != nil {
				return nil, err
			}
			values = append(values, v)
		}
		product, err := engine.Call("mul.Tensor", in[0], values[0])
		if err != nil {
			return nil, err
		}
		defer product.Close()
		y, err := engine.Call("add.Tensor", product, values[1])
		return []*engine.Tensor{y}, err
	})
	if err != nil {
		return nil, err
	}
	one := engine.ParameterOptions{Init: engine.InitConstant, InitA: 2}
	if _, err := m.AddParameter("w", one, 3); err != nil {
		return nil, err
	}
	_, err = m.AddParameter("b", engine.ParameterOptions{}, 3)
	return m, err
}

func TestModule(t *testing.T) {
	file := filepath.Join(t.TempDir(), "affine.safetensors")
	ranks.Run(t, 1, func(c *nxd.Context) error {
		if err := c.InitModelParallel(nil); err != nil {
			return err
		}
		var fail error
		m, err := affine(c, &fail)
		if err != nil {
			return err
		}
		defer m.Close()
		if err := m.Initialize(1); err != nil {
			return err
		}
		x := tensor(t, []float32{1, 2, 3}, 3)
		hooked := 0
		p, err := m.Parameter("w")
		if err != nil {
			return err
		}
		if err := p.SetGradHook(func(*engine.Parameter) error { hooked++; return nil }); err != nil {
			return err
		}
		out, tape, err := m.ForwardTape(1, x)
		if err != nil {
			return err
		}
		defer tape.Close()
		if err := check("y", data(t, out[0]), []float32{2, 4, 6}); err != nil {
			return err
		}
		grads, err := tape.Backward(tensor(t, []float32{1, 1, 1}, 3))
		if err := first(err, check("dx", data(t, grads[0]), []float32{2, 2, 2}), check("hook", hooked, 1)); err != nil {
			return err
		}
		whole, err := p.GatherFullGrad()
		if err := first(err, check("dw", data(t, whole), []float32{1, 2, 3}), m.SaveSafetensors(file)); err != nil {
			return err
		}
		if err := first(p.SetFull(x), second(m.LoadSafetensors(file, true))); err != nil {
			return err
		}
		v, err := p.GatherFull()
		if err := first(err, check("loaded", data(t, v), []float32{2, 2, 2})); err != nil {
			return err
		}
		fail = errors.New("no forward today")
		if _, err := m.Forward(x); !errors.Is(err, fail) || !errors.Is(err, nxd.User) {
			t.Errorf("got %v", err)
		}
		report, err := loadInto(c, m, file)
		if !errors.Is(err, nxd.InvalidArgument) || !reflect.DeepEqual(report.Unexpected, []string{"b", "w"}) {
			t.Errorf("a load that does not match: %v, %v", report, err)
		}
		return c.Finalize()
	})
}

// loadInto loads a file into a module that is not like it.
func loadInto(c *nxd.Context, m *engine.Module, file string) (engine.LoadReport, error) {
	root, err := engine.NewModule(c, "Root", nil)
	if err != nil {
		return engine.LoadReport{}, err
	}
	defer root.Close()
	if err := root.AddChild("child", m); err != nil {
		return engine.LoadReport{}, err
	}
	return root.LoadSafetensors(file, true)
}

// forwardOnce makes a layer and runs it.
func forwardOnce(m *engine.Module, err error, inputs ...*engine.Tensor) ([]int64, error) {
	if err != nil {
		return nil, err
	}
	defer m.Close()
	y, err := m.Forward(inputs...)
	if err != nil {
		return nil, err
	}
	defer y.Close()
	return y.Shape()
}

func TestLayers(t *testing.T) {
	ranks.Run(t, 2, func(c *nxd.Context) error {
		if err := c.InitModelParallel(&nxd.ParallelOptions{TensorParallelSize: 2}); err != nil {
			return err
		}
		x := tensor(t, make([]float32, 2*3*8), 2, 3, 8)
		tokens := must[*engine.Tensor](t)(engine.FromSlice([]int64{1, 2, 3, 4, 5, 6}, 2, 3))
		heads := tensor(t, make([]float32, 2*3*2*4), 2, 3, 2, 4)
		for _, layer := range []struct {
			name string
			make func() ([]int64, error)
		}{
			{"embedding", func() ([]int64, error) {
				m, err := engine.NewEmbedding(c, "e", 16, 8, engine.EmbeddingOptions{})
				return forwardOnce(m, err, tokens)
			}},
			{"column", func() ([]int64, error) {
				m, err := engine.NewColumnLinear(c, "c", 8, 8, engine.LinearOptions{})
				return forwardOnce(m, err, x)
			}},
			{"row", func() ([]int64, error) {
				m, err := engine.NewRowLinear(c, "r", 8, 8, engine.LinearOptions{})
				return forwardOnce(m, err, x)
			}},
			{"layer norm", func() ([]int64, error) {
				m, err := engine.NewLayerNorm(c, "n", 8, engine.NormOptions{})
				return forwardOnce(m, err, x)
			}},
			{"rms norm", func() ([]int64, error) {
				m, err := engine.NewRMSNorm(c, "n", 8, engine.NormOptions{Eps: 1e-6})
				return forwardOnce(m, err, x)
			}},
			{"attention", func() ([]int64, error) {
				m, err := engine.NewAttention(c, "a", 8, 2, engine.AttentionOptions{}, &engine.RoPEOptions{Theta: 1000})
				return forwardOnce(m, err, x)
			}},
			{"mlp", func() ([]int64, error) {
				m, err := engine.NewGatedMLP(c, "m", 8, 16, engine.MLPOptions{Activation: engine.GELU})
				return forwardOnce(m, err, x)
			}},
			{"dropout", func() ([]int64, error) {
				m, err := engine.NewDropout(c, "d", 0.5, -1)
				return forwardOnce(m, err, x)
			}},
		} {
			shape, err := layer.make()
			if err := first(err, check(layer.name, shape, []int64{2, 3, 8})); err != nil {
				return err
			}
		}
		qkv, err := engine.NewQKVLinear(c, "q", 8, 4, engine.QKVOptions{NumKVHeads: 2, HeadDim: 4, Fusion: engine.QKVByHead})
		if err != nil {
			return err
		}
		parts, err := qkv.ForwardN(3, x)
		if err != nil {
			return err
		}
		for i, want := range [][]int64{{2, 3, 2, 4}, {2, 3, 1, 4}, {2, 3, 1, 4}} {
			shape, err := parts[i].Shape()
			if err := first(err, check("qkv", shape, want)); err != nil {
				return err
			}
		}
		if err := qkv.Cast(nxd.F64); err != nil {
			return err
		}
		if _, err := qkv.Forward(x); err == nil {
			return errors.New("a layer of f64 took f32")
		}
		m, err := engine.NewRotaryEmbedding(c, 4, engine.RoPEOptions{})
		shape, err := forwardOnce(m, err, heads)
		if err := first(err, check("rotary", shape, []int64{2, 3, 2, 4})); err != nil {
			return err
		}
		if err := mappings(c, x, tokens); err != nil {
			return err
		}
		_, err = engine.NewColumnLinear(c, "c", 8, 7, engine.LinearOptions{})
		if !errors.Is(err, nxd.InvalidArgument) {
			t.Errorf("7 features over 2 ranks: got %v", err)
		}
		return c.Finalize()
	})
}

func mappings(c *nxd.Context, x, tokens *engine.Tensor) error {
	part, err := engine.ScatterToTensorRegion(c, x)
	if err != nil {
		return err
	}
	whole, err := engine.GatherFromTensorRegion(c, part)
	if err != nil {
		return err
	}
	shape, err := whole.Shape()
	if err := first(err, check("gathered", shape, []int64{2, 3, 8})); err != nil {
		return err
	}
	loss, err := engine.ParallelCrossEntropy(c, part, tokens, engine.CrossEntropyOptions{})
	if err != nil {
		return err
	}
	value, err := loss.Item() // of equal logits over 8 classes
	return first(err, check("loss", value > 2.07 && value < 2.08, true))
}

// A peer that is lost in the middle of a forward in Go is an ordinary error of the forward.
func TestPeerLeavesInForward(t *testing.T) {
	ends := ranks.Errors(t, context.Background(), 2, func(c *nxd.Context) error {
		if err := c.InitModelParallel(&nxd.ParallelOptions{TensorParallelSize: 2}); err != nil {
			return err
		}
		r, err := c.Rank()
		if err != nil {
			return err
		}
		m, err := engine.NewModule(c, "Sum", func(_ *engine.Module, in []*engine.Tensor) ([]*engine.Tensor, error) {
			y, err := engine.ReduceFromTensorRegion(c, in[0])
			return []*engine.Tensor{y}, err
		})
		if err != nil {
			return err
		}
		defer m.Close()
		if r == 1 {
			return nil
		}
		_, err = m.Forward(tensor(t, []float32{1}, 1))
		return err
	})
	var e *nxd.Error
	if !errors.As(ends[0], &e) || e.Status != nxd.PeerLost {
		t.Errorf("got %v", ends[0])
	}
}

func TestBuffers(t *testing.T) {
	ranks.Run(t, 1, func(c *nxd.Context) error {
		root := must[*engine.Module](t)(engine.NewModule(c, "Root", nil))
		mean := must[*engine.Tensor](t)(engine.FromSlice([]float32{0, 1, 2}, 3))
		if err := root.AddBuffer("mean", mean, true); err != nil {
			return err
		}
		if err := root.AddBuffer("mean", mean, false); !errors.Is(err, nxd.InvalidArgument) {
			t.Errorf("a name twice: %v", err)
		}
		names := must[[]string](t)(root.BufferNames())
		shared := must[*engine.Tensor](t)(root.Buffer("mean"))
		if !reflect.DeepEqual(names, []string{"mean"}) || !reflect.DeepEqual(must[[]int64](t)(shared.Shape()), []int64{3}) {
			t.Errorf("other buffers: %v", names)
		}
		if _, err := engine.LoadTorchScript(c, "/nowhere/module.pt"); !errors.Is(err, nxd.IO) {
			t.Errorf("a file that is not there: %v", err)
		}
		if err := root.SaveTorchScript("/nowhere/module.pt"); !errors.Is(err, nxd.InvalidArgument) {
			t.Errorf("a module of no file: %v", err)
		}
		return nil
	})
}

// Initial values by place, of modules that were made without any.
func TestInitialValues(t *testing.T) {
	ranks.Run(t, 1, func(c *nxd.Context) error {
		if err := c.InitModelParallel(nil); err != nil {
			return err
		}
		var net *engine.Module
		err := engine.DeferInit(func() error {
			one, err := engine.NewLinear(c, "", 4, 3, engine.LinearOptions{})
			if err != nil {
				return err
			}
			defer one.Close()
			norm, err := engine.NewLayerNorm(c, "", 3, engine.NormOptions{})
			if err != nil {
				return err
			}
			defer norm.Close()
			net, err = engine.NewSequential(c, one, norm)
			return err
		})
		if err != nil {
			return err
		}
		defer net.Close()
		x := tensor(t, make([]float32, 8), 2, 4)
		if _, err := net.Forward(x); !errors.Is(err, nxd.InvalidState) {
			return fmt.Errorf("expected an invalid state, got %v", err)
		}
		byPlace := func(name string, shape []int64, first int64, values []float64) error {
			for i := range values {
				values[i] = float64(first) + float64(i)
			}
			return nil
		}
		bias, err := net.Parameter("1.bias")
		if err := first(err, net.SetInitializer(byPlace), bias.SetInitializer(nil), net.MoveTo(nxd.CPU)); err != nil {
			return err
		}
		weight, err := net.Parameter("0.bias")
		if err != nil {
			return err
		}
		whole, err := weight.GatherFull()
		if err := first(err, check("values", data(t, whole), []float32{0, 1, 2})); err != nil {
			return err
		}
		broken := errors.New("no values today")
		fail := func(string, []int64, int64, []float64) error { return broken }
		if err := weight.SetInitializer(fail); err != nil {
			return err
		}
		if err := net.Initialize(3); !errors.Is(err, broken) {
			return fmt.Errorf("expected the initializer's error, got %v", err)
		}
		return c.Finalize()
	})
}

func TestPad(t *testing.T) {
	if extra, err := engine.ExtraHeads(25, 8); err != nil || extra != 7 {
		t.Fatalf("expected 7 heads more, got %d, %v", extra, err)
	}
	if _, err := engine.ExtraHeads(0, 8); !errors.Is(err, nxd.InvalidArgument) {
		t.Fatalf("expected an invalid argument, got %v", err)
	}
	ranks.Run(t, 2, func(c *nxd.Context) error {
		if err := c.InitModelParallel(&nxd.ParallelOptions{TensorParallelSize: 2}); err != nil {
			return err
		}
		split := engine.LinearOptions{GatherOutput: engine.Off, InputIsParallel: 1, Pad: 1}
		column, err := engine.NewColumnLinear(c, "", 4, 9, split)
		if err != nil {
			return err
		}
		defer column.Close()
		row, err := engine.NewRowLinear(c, "", 9, 4, split)
		if err != nil {
			return err
		}
		defer row.Close()
		net, err := engine.NewSequential(c, column, row)
		if err != nil {
			return err
		}
		defer net.Close()
		if err := net.Pad(2, 3, nil, "Nothing"); !errors.Is(err, nxd.InvalidArgument) {
			return fmt.Errorf("expected an invalid argument, got %v", err)
		}
		broken := errors.New("no heads today")
		fail := func(*engine.Module, int64, int64) error { return broken }
		if err := net.Pad(2, 3, fail); !errors.Is(err, broken) {
			return fmt.Errorf("expected the hook's error, got %v", err)
		}
		var seen []string
		err = net.Pad(2, 3, func(m *engine.Module, heads, padded int64) error {
			name, err := m.ClassName()
			seen = append(seen, fmt.Sprint(name, heads, padded))
			return err
		})
		if err != nil || len(seen) != 3 || seen[2] != "Sequential3 4" {
			return fmt.Errorf("expected three modules, got %v, %v", seen, err)
		}
		if err := net.Pad(2, 3, nil); err != nil {
			return err
		}
		return c.Finalize()
	})
}

func TestSerialization(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.safetensors")
	ranks.Run(t, 1, func(c *nxd.Context) error {
		tensors := map[string]*engine.Tensor{
			"b": tensor(t, []float32{4}, 1), "a": tensor(t, []float32{1, 2, 3}, 3)}
		options := engine.SaveOptions{Texts: map[string]string{"epoch": "3"}}
		if err := engine.Save(c, path, tensors, options); err != nil {
			return err
		}
		atOnce, err := os.ReadFile(path)
		if err := first(err, engine.SerializationSave(c, path, tensors, options)); err != nil {
			return err
		}
		if streamed, err := os.ReadFile(path); err != nil || string(streamed) != string(atOnce) {
			return fmt.Errorf("expected the same file, %v", err)
		}
		file, err := engine.SerializationLoad(path)
		if err != nil {
			return err
		}
		defer file.Close()
		names, err := file.Names()
		if err != nil || fmt.Sprint(names) != "[a b]" {
			return fmt.Errorf("expected the names a and b, got %v, %v", names, err)
		}
		texts, err := file.Texts()
		if err != nil || texts["epoch"] != "3" || len(texts) != 1 {
			return fmt.Errorf("expected the epoch, got %v, %v", texts, err)
		}
		a, err := file.Read("a", nxd.CPU)
		if err := first(err, check("values", data(t, a), []float32{1, 2, 3})); err != nil {
			return err
		}
		if _, err := file.Read("c", nxd.CPU); !errors.Is(err, nxd.InvalidArgument) {
			return fmt.Errorf("expected an invalid argument, got %v", err)
		}
		if _, err := engine.SerializationLoad("/nowhere/a"); !errors.Is(err, nxd.IO) {
			return fmt.Errorf("expected IO, got %v", err)
		}
		return c.Finalize()
	})
}
