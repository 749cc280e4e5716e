// Trains a small Llama on text, byte by byte, split over tensor-parallel ranks and pipeline stages. It
// starts one process per rank itself, or joins those of a launcher; more ranks than -tp times -pp train
// data-parallel copies. With the same arguments its losses are those of examples/c/train_lm.c, digit
// for digit; they are written to OUT/loss.csv.
//
//	NXD_CPU_MODE=1 ./llama -tp 2 -text my.txt -out results
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"libnxd.org/nxd"
	"libnxd.org/nxd/engine"
)

type arguments struct {
	tp, pp, microbatches, steps, layers, heads, kvHeads int
	hidden, intermediate, sequence, batch               int64
	learningRate                                        float64
	seed                                                uint64
	text, out                                           string
}

func readArguments() *arguments {
	a := &arguments{}
	flag.IntVar(&a.tp, "tp", 2, "tensor-parallel ranks")
	flag.IntVar(&a.pp, "pp", 1, "pipeline stages")
	flag.IntVar(&a.microbatches, "microbatches", 1, "of a pipeline")
	flag.IntVar(&a.steps, "steps", 240, "training steps")
	flag.IntVar(&a.layers, "layers", 4, "decoder layers")
	flag.IntVar(&a.heads, "heads", 8, "attention heads")
	flag.IntVar(&a.kvHeads, "kv-heads", 4, "key and value heads")
	flag.Int64Var(&a.hidden, "hidden", 256, "features")
	flag.Int64Var(&a.intermediate, "intermediate", 704, "features of the MLP")
	flag.Int64Var(&a.sequence, "seq", 256, "tokens of a sequence")
	flag.Int64Var(&a.batch, "batch", 8, "sequences of a step and copy")
	flag.Float64Var(&a.learningRate, "lr", 2e-3, "learning rate")
	flag.Uint64Var(&a.seed, "seed", 1, "of weights and batches")
	flag.StringVar(&a.text, "text", "", "file to train on; Debian's licence texts if not given")
	flag.StringVar(&a.out, "out", "out", "directory for loss.csv")
	flag.Parse()
	return a
}

func (a *arguments) config() string {
	return fmt.Sprintf(`{"model_type": "llama", "hidden_size": %d, "num_hidden_layers": %d,
"num_attention_heads": %d, "num_key_value_heads": %d, "intermediate_size": %d, "vocab_size": 256,
"rms_norm_eps": 1e-5, "max_position_embeddings": %d, "initializer_range": 0.02}`,
		a.hidden, a.layers, a.heads, a.kvHeads, a.intermediate, a.sequence)
}

// readText is a file, or the licence texts that Debian installs, in order of their names.
func readText(path string) ([]byte, error) {
	if path != "" {
		return os.ReadFile(path)
	}
	const licences = "/usr/share/common-licenses"
	entries, err := os.ReadDir(licences)
	if err != nil {
		return nil, err
	}
	var all []byte
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue // links are other names of files that are there under their own
		}
		data, err := os.ReadFile(filepath.Join(licences, e.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, data...)
	}
	return all, nil
}

func randomBits(seed, draw uint64) uint64 {
	z := (seed+1)*0xD1B54A32D192ED03 + (draw+1)*0x9E3779B97F4A7C15
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

type trainer struct {
	*arguments
	c            *nxd.Context
	data         *nxd.Group
	model        *engine.Module
	trained      *engine.Module // the model, or what this rank has of it
	pipeline     *engine.Pipeline
	optimizer    *nxd.Optimizer
	text         []byte
	rank         int
	copies, copy int
}

func (t *trainer) open(ctx context.Context) (err error) {
	t.c, err = nxd.NewContext(ctx, &nxd.ContextOptions{Seed: t.seed, Timeout: 2 * time.Minute})
	if err != nil {
		return err
	}
	if t.rank, err = t.c.Rank(); err != nil {
		return err
	}
	layout := nxd.ParallelOptions{TensorParallelSize: int32(t.tp), PipelineParallelSize: int32(t.pp)}
	if err = t.c.InitModelParallel(&layout); err != nil {
		return err
	}
	if t.data, err = t.c.ParallelGroup(nxd.AxisData); err != nil {
		return err
	}
	if t.copies, err = t.data.Size(); err != nil {
		return err
	}
	if t.copy, err = t.data.Rank(); err != nil {
		return err
	}
	if err = t.makeModel(); err != nil {
		return err
	}
	t.optimizer, err = engine.NewAdamW(t.trained, nxd.AdamWOptions{LearningRate: t.learningRate, Beta2: 0.95,
		WeightDecay: 0.1})
	if err != nil {
		return err
	}
	return t.optimizer.SetLRSchedule(nxd.LRScheduleOptions{Kind: nxd.LRScheduleCosine,
		WarmupSteps: int64(t.steps/20 + 1), TotalSteps: int64(t.steps + 1), FinalFactor: 0.1})
}

func (t *trainer) makeModel() (err error) {
	cut := t.pp > 1 || t.microbatches > 1
	device := nxd.CPU
	if cut {
		device = nxd.Meta // each rank makes the weights of its own stage
	}
	t.model, err = engine.NewModel(t.c, t.config(), engine.ModelOptions{Device: device})
	if err != nil || !cut {
		t.trained = t.model
		return err
	}
	example, err := engine.Zeros(nxd.I64, nxd.Meta, t.batch, t.sequence)
	if err != nil {
		return err
	}
	defer example.Close()
	t.pipeline, err = engine.NewPipeline(t.model, []*engine.Tensor{example, example}, engine.PipelineOptions{
		Microbatches: t.microbatches, Partition: engine.PartitionCost, BroadcastAndAverageLoss: true})
	if err != nil {
		return err
	}
	t.trained, err = t.pipeline.LocalModule()
	return err
}

// makeBatch is ids of random windows; copies of the model take different ones.
func (t *trainer) makeBatch(step int) (*engine.Tensor, error) {
	ids := make([]int64, 0, t.batch*t.sequence)
	for row := uint64(0); row < uint64(t.batch); row++ {
		draw := (uint64(step)*uint64(t.copies)+uint64(t.copy))*uint64(t.batch) + row
		at := randomBits(t.seed, draw) % (uint64(len(t.text)) - uint64(t.sequence))
		for _, b := range t.text[at : at+uint64(t.sequence)] {
			ids = append(ids, int64(b))
		}
	}
	return engine.FromSlice(ids, t.batch, t.sequence)
}

// runModel is a forward and a backward; the loss is the mean over all copies.
func (t *trainer) runModel(ids *engine.Tensor) (float64, error) {
	if t.pipeline != nil {
		return t.pipeline.RunTrain(ids, ids)
	}
	loss, err := t.model.Forward(ids, ids) // the model shifts its labels itself
	if err != nil {
		return 0, err
	}
	defer loss.Close()
	if err := loss.Backward(); err != nil {
		return 0, err
	}
	value, err := loss.Item()
	if err != nil {
		return 0, err
	}
	mean := []float64{value}
	err = nxd.AllReduce(t.data, mean, mean, nxd.Avg)
	return mean[0], err
}

func (t *trainer) step(step int) (float64, error) {
	ids, err := t.makeBatch(step)
	if err != nil {
		return 0, err
	}
	defer ids.Close()
	if err := t.trained.ZeroGrad(); err != nil {
		return 0, err
	}
	loss, err := t.runModel(ids)
	if err != nil {
		return 0, err
	}
	finish := nxd.FinishOptions{MaxNorm: 1, DataParallelReduce: nxd.Avg}
	if t.pipeline != nil {
		finish.DataParallelReduce = nxd.Sum // a pipeline has divided by the tokens of all copies
	}
	_, err = t.optimizer.Step(finish)
	return loss, err
}

func (t *trainer) train() (string, error) {
	var csv strings.Builder
	csv.WriteString("step,loss\n")
	every := t.steps / 20
	if every == 0 {
		every = 1
	}
	for step := 0; step < t.steps; step++ {
		loss, err := t.step(step)
		if err != nil {
			return "", fmt.Errorf("step %d: %w", step+1, err)
		}
		fmt.Fprintf(&csv, "%d,%.6f\n", step+1, float32(loss))
		if t.rank == 0 && ((step+1)%every == 0 || step == 0) {
			fmt.Printf("step %4d/%d  loss %6.3f\n", step+1, t.steps, loss)
		}
	}
	return csv.String(), nil
}

func (t *trainer) run(ctx context.Context) (err error) {
	if t.text, err = readText(t.arguments.text); err != nil {
		return err
	}
	if int64(len(t.text)) <= t.sequence {
		return fmt.Errorf("expected a text of more than %d bytes, got %d", t.sequence, len(t.text))
	}
	if err = t.open(ctx); err != nil {
		return err
	}
	losses, err := t.train()
	if err != nil {
		return err
	}
	if t.rank == 0 {
		if err = os.MkdirAll(t.out, 0o777); err != nil {
			return err
		}
		if err = os.WriteFile(filepath.Join(t.out, "loss.csv"), []byte(losses), 0o666); err != nil {
			return err
		}
	}
	return t.c.Finalize()
}

func main() {
	runtime.LockOSThread() // kernels keep a team of threads for each thread that calls
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	a := readArguments()
	var err error
	if os.Getenv("RANK") == "" && a.tp*a.pp > 1 {
		err = spawn(ctx, a.tp*a.pp)
	} else {
		err = (&trainer{arguments: a}).run(ctx)
	}
	if errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "llama: interrupted")
		os.Exit(130)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "llama:", err)
		os.Exit(1)
	}
}

func spawn(ctx context.Context, n int) error {
	job, err := nxd.Spawn(&nxd.SpawnOptions{Processes: n})
	if err != nil {
		return err
	}
	defer job.Close()
	return job.Wait(ctx)
}
