// Fine-tunes a model of a Hugging Face directory and writes one that Hugging Face's libraries load:
// weights under their names, and config.json, tokenizer and other files as they were, but no directories
// and no names with a dot in front. It is examples/c/finetune_hf.c in Go, with the same losses.
//
//	./finetune_hf -model gpt2/ -ids corpus.u16 -out gpt2-tuned/ -tp 2
//
// The ids are those of the model's own tokenizer, as 16-bit numbers, the least byte first. With -text the
// bytes of a file are the ids. More ranks than -tp, as of a launcher, train data-parallel copies.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"libnxd.org/nxd"
	"libnxd.org/nxd/engine"
	"libnxd.org/nxd/examples/internal/common"
)

var (
	source = flag.String("model", "", "Hugging Face directory to start from")
	out    = flag.String("out", "", "directory for the new weights and the other files of -model, but no directories\n"+
		"and no names with a dot in front")
	idsPath  = flag.String("ids", "", "file of 16-bit ids to train on")
	textPath = flag.String("text", "", "file to train on byte by byte")
	tp       = flag.Int("tp", 1, "tensor-parallel ranks")
	dp       = flag.Int("dp", 1, "data-parallel copies")
	steps    = flag.Int("steps", 20, "training steps")
	batch    = flag.Int("batch", 4, "sequences of a step and copy")
	sequence = flag.Int("seq", 32, "tokens of a sequence")
	rate     = flag.Float64("lr", 1e-4, "learning rate")
)

func readCorpus() (ids []int64, err error) {
	if *idsPath != "" {
		ids, err = common.ReadIDs(*idsPath)
	} else {
		ids, err = common.ReadText(*textPath)
	}
	if err == nil && len(ids) <= *sequence {
		err = fmt.Errorf("expected more than %d ids, got %d", *sequence, len(ids))
	}
	return ids, err
}

func train(c *nxd.Context, model *engine.Module, corpus []int64) error {
	copies, err := common.DataParallel(c)
	if err != nil {
		return err
	}
	adamw, err := engine.NewAdamW(model, nxd.AdamWOptions{LearningRate: *rate})
	if err != nil {
		return err
	}
	defer adamw.Close()
	for step := 0; step < *steps; step++ {
		ids := copies.RandomWindows(corpus, 1, step, *batch, *sequence)
		loss, err := trainStep(model, adamw, copies, ids)
		if err != nil {
			return fmt.Errorf("step %d: %w", step+1, err)
		}
		if err := c.Print(fmt.Sprintf("step %d/%d  loss %.6f", step+1, *steps, loss)); err != nil {
			return err
		}
	}
	return nil
}

func trainStep(model *engine.Module, adamw *nxd.Optimizer, copies common.Copies, ids []int64) (float64, error) {
	x, err := engine.FromSlice(ids, int64(*batch), int64(*sequence))
	if err != nil {
		return 0, err
	}
	defer x.Close()
	loss, err := copies.ForwardBackward(model, false, x, x) // the model shifts its labels itself
	if err != nil {
		return 0, err
	}
	if _, err := adamw.Step(nxd.FinishOptions{MaxNorm: 1, DataParallelReduce: nxd.Avg}); err != nil {
		return 0, err
	}
	return loss, model.ZeroGrad()
}

// copyOtherFiles copies all of a directory's files but the weights, which are new.
func copyOtherFiles(from, to string) error {
	entries, err := os.ReadDir(from)
	for _, e := range entries {
		if err == nil && !e.IsDir() && !strings.HasPrefix(e.Name(), ".") && !isWeights(e.Name()) {
			var content []byte
			if content, err = os.ReadFile(filepath.Join(from, e.Name())); err == nil {
				err = os.WriteFile(filepath.Join(to, e.Name()), content, 0o666)
			}
		}
	}
	return err
}

// weights are endings of any program's, and of indices of them: in each format they would be the old ones.
var weights = []string{".safetensors", ".index.json", ".bin", ".ckpt", ".gguf", ".h5", ".msgpack", ".onnx",
	".onnx_data", ".ot", ".pt", ".pth", ".tflite"}

func isWeights(name string) bool {
	for _, end := range weights {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return false
}

func writeDirectory(c *nxd.Context, model *engine.Module) error {
	rank, err := c.Rank()
	if err != nil {
		return err
	}
	// Written by rank 0, whole.
	if err := model.SaveSafetensors(filepath.Join(*out, "model.safetensors")); err != nil {
		return err
	}
	if rank == 0 {
		if err := copyOtherFiles(*source, *out); err != nil {
			return err
		}
	}
	return c.Print("wrote " + *out)
}

func run(ctx context.Context) error {
	corpus, err := readCorpus()
	if err != nil {
		return err
	}
	c, err := nxd.NewContext(ctx, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := common.MakeDirectory(c, *out); err != nil {
		return err
	}
	if err := c.InitModelParallel(&nxd.ParallelOptions{TensorParallelSize: int32(*tp)}); err != nil {
		return err
	}
	model, err := engine.LoadModel(c, *source, engine.ModelOptions{})
	if err != nil {
		return err
	}
	defer model.Close()
	if err := train(c, model, corpus); err != nil {
		return err
	}
	if err := writeDirectory(c, model); err != nil {
		return err
	}
	return c.Finalize()
}

func main() {
	flag.Parse()
	if *source == "" || *out == "" || *idsPath+*textPath == "" || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "finetune_hf: expected -model, -out, and -ids or -text")
		flag.Usage()
		os.Exit(2)
	}
	err := common.CheckIdle([]string{"text"}, "ids")
	if err == nil {
		err = common.CheckRate(*rate)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "finetune_hf:", err)
		os.Exit(2)
	}
	common.Main("finetune_hf", *tp**dp, run)
}
