package engine_test

import (
	"errors"
	"strings"
	"testing"

	"libnxd.org/nxd"
	"libnxd.org/nxd/engine"
	"libnxd.org/nxd/internal/ranks"
)

// textCalls are collective calls by a text, which a binding cannot hand over where it has a 0 byte.
func textCalls(t *testing.T, c *nxd.Context, m *engine.Module, checkpoint *nxd.Checkpoint) map[string]func(string) error {
	x := must[*engine.Tensor](t)(ids())
	save := func(text string, o engine.SaveOptions) error {
		return engine.SerializationSave(c, t.TempDir()+"/file", map[string]*engine.Tensor{text: x}, o)
	}
	pipeline := func(o engine.PipelineOptions) error {
		o.Microbatches, o.LossPath, o.Outputs = 2, "loss", 2
		p, err := engine.NewPipeline(m, []*engine.Tensor{x, x}, o)
		if err == nil {
			p.Close()
		}
		return err
	}
	return map[string]func(string) error{
		"path": func(text string) error {
			return engine.Save(c, t.TempDir()+"/"+text, map[string]*engine.Tensor{"x": x}, engine.SaveOptions{})
		},
		"name":     func(text string) error { return save(text, engine.SaveOptions{}) },
		"key":      func(text string) error { return save("x", engine.SaveOptions{Texts: map[string]string{text: "v"}}) },
		"value":    func(text string) error { return save("x", engine.SaveOptions{Texts: map[string]string{"k": text}}) },
		"weights":  func(text string) error { return m.SaveSafetensors(t.TempDir() + "/" + text) },
		"snapshot": func(text string) error { return m.Snapshot(checkpoint, text) },
		"class":    func(text string) error { return pipeline(engine.PipelineOptions{TransformerLayerClass: text}) },
		"cut":      func(text string) error { return pipeline(engine.PipelineOptions{PipelineCuts: []string{text}}) },
	}
}

// Where one rank has such a text both fail, at once.
func TestTextsOfOneRank(t *testing.T) {
	directory := t.TempDir()
	ranks.Run(t, 2, func(c *nxd.Context) error {
		rank, err := c.Rank()
		if err := first(err, c.InitModelParallel(&nxd.ParallelOptions{PipelineParallelSize: 2})); err != nil {
			return err
		}
		m, err := engine.NewModel(c, llama, engine.ModelOptions{})
		if err != nil {
			return err
		}
		defer m.Close()
		checkpoint, err := c.NewCheckpoint(directory, 1)
		if err != nil {
			return err
		}
		defer checkpoint.Close()
		calls := textCalls(t, c, m, checkpoint)
		for _, name := range []string{"path", "name", "key", "value", "weights", "snapshot", "class", "cut"} {
			text := "LlamaDecoderLayer"
			if name == "cut" {
				text = "model.layers.1"
			}
			if rank == 1 {
				text += "\x00"
			}
			err := calls[name](text)
			if !errors.Is(err, nxd.InvalidArgument) || rank == 0 && !strings.Contains(err.Error(), "rank 1") {
				t.Errorf("%s: rank %d: got %v", name, rank, err)
			}
		}
		return c.Finalize()
	})
}
