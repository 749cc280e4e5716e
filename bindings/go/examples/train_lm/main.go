// Trains a language model on token ids, or on text byte by byte, with each layer split over
// tensor-parallel ranks, its layers over the stages of a pipeline, and the batch over data-parallel
// copies: examples/c/train_lm.c in Go, with its options and its losses to the last digit. It starts one
// process per rank itself, or joins those of a launcher; more ranks than -tp times -pp are copies.
//
//	NXD_CPU_MODE=1 ./train_lm -tp 2 -text my.txt -out results
//	./train_lm -tp 1 -pp 2 -dp 2 -microbatches 4 -zero1
//	./train_lm -data corpus.u16 -config config.json -save-every 100 -keep 3 -resume
//
// The model is a small Llama of the sizes given, that of a configuration (-config), or one of a Hugging
// Face directory, with its weights (-weights).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"libnxd.org/nxd"
	"libnxd.org/nxd/engine"
	"libnxd.org/nxd/examples/internal/common"
)

// precision is what parameters are kept in, how those of BF16 are updated, and whether casts are
// automatic.
type precision struct {
	dtype    nxd.DType
	update   nxd.BF16Update
	autocast bool
}

var precisions = map[string]precision{
	"f32":             {nxd.F32, nxd.BF16Master, false},
	"bf16":            {nxd.BF16, nxd.BF16Master, false},
	"bf16-stochastic": {nxd.BF16, nxd.BF16Stochastic, false},
	"bf16-nearest":    {nxd.BF16, nxd.BF16Nearest, false},
	"autocast":        {nxd.F32, nxd.BF16Master, true},
}

type arguments struct {
	tp, pp, dp, chunks, microbatches, layers, heads, kvHeads, hidden, intermediate int
	sequence, batch, steps, stopAt, sample, saveEvery, keep                        int
	zero1, sequenceParallel, resume                                                bool
	learningRate                                                                   float64
	seed                                                                           uint64
	dtype, config, weights, text, data, out, save                                  string
	precision
}

func readArguments() (*arguments, error) {
	a := &arguments{}
	flag.IntVar(&a.tp, "tp", 2, "tensor-parallel ranks")
	flag.IntVar(&a.pp, "pp", 1, "pipeline stages")
	flag.IntVar(&a.dp, "dp", 1, "data-parallel copies")
	flag.IntVar(&a.chunks, "virtual", 1, "parts of the model on each stage")
	flag.IntVar(&a.microbatches, "microbatches", 1, "of a pipeline")
	flag.BoolVar(&a.zero1, "zero1", false, "share the optimizer's state out over the copies")
	flag.BoolVar(&a.sequenceParallel, "sequence-parallel", false, "norms on slices of the sequence")
	flag.StringVar(&a.dtype, "dtype", "f32", "bf16, bf16-stochastic, bf16-nearest or autocast")
	flag.StringVar(&a.config, "config", "", "file with a Hugging Face configuration")
	flag.StringVar(&a.weights, "weights", "", "Hugging Face directory to start from")
	flag.IntVar(&a.layers, "layers", 4, "decoder layers")
	flag.IntVar(&a.heads, "heads", 8, "attention heads")
	flag.IntVar(&a.kvHeads, "kv-heads", 4, "key and value heads")
	flag.IntVar(&a.hidden, "hidden", 256, "features")
	flag.IntVar(&a.intermediate, "intermediate", 704, "features of the MLP")
	flag.IntVar(&a.sequence, "seq", 256, "tokens of a sequence")
	flag.IntVar(&a.batch, "batch", 8, "sequences of a step and copy")
	flag.IntVar(&a.steps, "steps", 240, "training steps")
	flag.IntVar(&a.stopAt, "stop-at", 0, "the last step of this run, if there are more")
	flag.Float64Var(&a.learningRate, "lr", 2e-3, "learning rate")
	flag.Uint64Var(&a.seed, "seed", 1, "of weights and batches")
	flag.StringVar(&a.text, "text", "", "file to train on; Debian's licence texts if not given")
	flag.StringVar(&a.data, "data", "", "file of token ids to train on")
	flag.StringVar(&a.out, "out", "out", "directory for loss.csv and checkpoints")
	flag.StringVar(&a.save, "save", "", "file for the weights")
	flag.IntVar(&a.sample, "sample", 400, "bytes that the model writes in the end")
	flag.IntVar(&a.saveEvery, "save-every", 0, "steps between checkpoints; 0: none")
	flag.IntVar(&a.keep, "keep", 3, "checkpoints to keep; 0: all")
	flag.BoolVar(&a.resume, "resume", false, "go on from the newest checkpoint")
	flag.Parse()
	var ok bool
	if a.precision, ok = precisions[a.dtype]; !ok || flag.NArg() > 0 {
		return nil, fmt.Errorf("cannot understand %q %q", a.dtype, flag.Args())
	}
	if a.stopAt <= 0 || a.stopAt > a.steps {
		a.stopAt = a.steps
	}
	return a, a.check()
}

// check rejects options that have no effect beside others, and a rate of 0.
func (a *arguments) check() error {
	sizes := []string{"hidden", "layers", "heads", "kv-heads", "intermediate"}
	if err := common.CheckIdle([]string{"text"}, "data"); err != nil {
		return err
	}
	if err := common.CheckIdle(sizes, "config", "weights"); err != nil {
		return err
	}
	if a.chunks > 1 && a.pp == 1 && a.microbatches == 1 {
		return errors.New("-virtual has no effect without -pp or -microbatches")
	}
	return common.CheckRate(a.learningRate)
}

// makeConfig is a Hugging Face configuration: a file's, or one made of the sizes given.
func (a *arguments) makeConfig() (string, error) {
	path := a.config
	if path == "" && a.weights != "" {
		path = filepath.Join(a.weights, "config.json")
	}
	if path != "" {
		text, err := os.ReadFile(path)
		return string(text), err
	}
	return fmt.Sprintf(`{"model_type": "llama", "hidden_size": %d, "num_hidden_layers": %d,
"num_attention_heads": %d, "num_key_value_heads": %d, "intermediate_size": %d, "vocab_size": 256,
"rms_norm_eps": 1e-5, "max_position_embeddings": %d, "initializer_range": 0.02}`,
		a.hidden, a.layers, a.heads, a.kvHeads, a.intermediate, a.sequence), nil
}

// trainer is everything of one rank.
type trainer struct {
	*arguments
	c         *nxd.Context
	rank      int
	copies    common.Copies
	model     *engine.Module
	trained   *engine.Module   // the model, or what this rank has of it
	pipeline  *engine.Pipeline // nil without -pp and -microbatches
	reduce    nxd.Reduce       // of gradients over the copies
	optimizer *nxd.Optimizer
	text      []int64
	loader    *nxd.DataLoader // with -data
}

func (t *trainer) open(ctx context.Context) (err error) {
	t.c, err = nxd.NewContext(ctx, &nxd.ContextOptions{Seed: t.seed, Timeout: 2 * time.Minute})
	if err != nil {
		return err
	}
	if err := common.MakeDirectory(t.c, t.out); err != nil {
		return err
	}
	if t.save != "" {
		if err := common.MakeDirectory(t.c, filepath.Dir(t.save)); err != nil {
			return err
		}
	}
	if t.rank, err = t.c.Rank(); err != nil {
		return err
	}
	layout := nxd.ParallelOptions{TensorParallelSize: int32(t.tp), PipelineParallelSize: int32(t.pp)}
	if err = t.c.InitModelParallel(&layout); err != nil {
		return err
	}
	if t.copies, err = common.DataParallel(t.c); err != nil {
		return err
	}
	if err = t.openData(); err != nil {
		return err
	}
	if err = t.makeModel(); err != nil {
		return err
	}
	return t.makeOptimizer()
}

func (t *trainer) openData() (err error) {
	if t.data != "" {
		t.loader, err = nxd.NewDataLoader(t.c, []string{t.data}, t.batch, t.sequence, nxd.DataLoaderOptions{})
		return err
	}
	if t.text, err = common.ReadText(t.arguments.text); err == nil && len(t.text) <= t.sequence {
		err = fmt.Errorf("expected a text of more than %d bytes, got %d", t.sequence, len(t.text))
	}
	return err
}

func (t *trainer) makeModel() error {
	config, err := t.makeConfig()
	if err != nil {
		return err
	}
	options := engine.ModelOptions{DType: t.precision.dtype}
	if t.sequenceParallel {
		options.SequenceParallel = 1
	}
	cut := t.pp > 1 || t.microbatches > 1
	if cut {
		options.Device = nxd.Meta // each rank makes the weights of its own stages
	}
	if t.model, err = engine.NewModel(t.c, config, options); err != nil {
		return err
	}
	t.trained, t.reduce = t.model, nxd.Avg
	if cut {
		t.reduce = nxd.Sum // a pipeline has divided by the tokens of all copies
		if err = t.cut(); err != nil {
			return err
		}
	}
	if t.weights != "" {
		_, err = t.trained.LoadSafetensors(t.weights, true)
	}
	return err
}

// cut keeps this rank's stages of the model.
func (t *trainer) cut() error {
	example, err := engine.Zeros(nxd.I64, nxd.Meta, int64(t.batch), int64(t.sequence))
	if err != nil {
		return err
	}
	defer example.Close()
	t.pipeline, err = engine.NewPipeline(t.model, []*engine.Tensor{example, example}, engine.PipelineOptions{
		Microbatches: t.microbatches, Chunks: t.chunks, Partition: engine.PartitionCost,
		BroadcastAndAverageLoss: true})
	if err != nil {
		return err
	}
	t.trained, err = t.pipeline.LocalModule()
	return err
}

func (t *trainer) makeOptimizer() (err error) {
	adamw := nxd.AdamWOptions{LearningRate: t.learningRate, Beta2: 0.95, WeightDecay: 0.1, BF16Update: t.update}
	if t.zero1 {
		ddp, err := engine.NewDDP(t.trained, nxd.DDPOptions{ZeroStage: 1, Reduce: t.reduce})
		if err != nil {
			return err
		}
		if t.pipeline != nil {
			if err := t.pipeline.SetDDP(ddp); err != nil {
				return err
			}
		}
		if t.optimizer, err = nxd.NewAdamW(ddp, adamw); err != nil {
			return err
		}
	} else if t.optimizer, err = engine.NewAdamW(t.trained, adamw); err != nil {
		return err
	}
	return t.setRates()
}

// setRates sets those of the options, which count: a checkpoint that the run goes on from has those of the
// run that saved it.
func (t *trainer) setRates() error {
	err := t.optimizer.SetLRSchedule(nxd.LRScheduleOptions{Kind: nxd.LRScheduleCosine,
		WarmupSteps: int64(t.steps/20 + 1), TotalSteps: int64(t.steps + 1), FinalFactor: 0.1})
	if err != nil {
		return err
	}
	return t.optimizer.SetLearningRate(t.learningRate)
}

// makeBatch is ids of a file of tokens, or of random windows of a text.
func (t *trainer) makeBatch(step int) (*engine.Tensor, error) {
	var ids []int64
	if t.loader == nil {
		ids = t.copies.RandomWindows(t.text, t.seed, step, t.batch, t.sequence)
	} else {
		ids = make([]int64, t.batch*t.sequence)
		if err := t.loader.Next(ids, nil); err != nil {
			return nil, err
		}
	}
	return engine.FromSlice(ids, int64(t.batch), int64(t.sequence))
}

// runModel is a forward and a backward; the loss is the mean over all copies. The model shifts its labels
// itself.
func (t *trainer) runModel(ids *engine.Tensor) (loss float64, err error) {
	if t.pipeline == nil {
		return t.copies.ForwardBackward(t.model, t.autocast, ids, ids)
	}
	err = common.Autocast(t.autocast, func() (err error) {
		loss, err = t.pipeline.RunTrain(ids, ids)
		return err
	})
	return loss, err
}

func (t *trainer) step(step int) (float32, error) {
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
	_, err = t.optimizer.Step(nxd.FinishOptions{MaxNorm: 1, DataParallelReduce: t.reduce})
	return float32(loss), err
}

// train gives the losses of all steps.
func (t *trainer) train() ([]float32, error) {
	checkpoints, err := openCheckpoints(t)
	if err != nil {
		return nil, err
	}
	var losses []float32
	if t.resume {
		if losses, err = checkpoints.resume(); err != nil {
			return nil, err
		}
		if err := t.setRates(); err != nil {
			return nil, err
		}
		if err := t.c.Print(fmt.Sprintf("going on after step %d", len(losses))); err != nil {
			return nil, err
		}
	}
	first, start := len(losses), time.Now()
	for step := first; step < t.stopAt; step++ {
		loss, err := t.step(step)
		if err != nil {
			return nil, fmt.Errorf("step %d: %w", step+1, err)
		}
		losses = append(losses, loss)
		if t.saveEvery > 0 && (step+1)%t.saveEvery == 0 {
			if err := checkpoints.save(losses); err != nil {
				return nil, err
			}
		}
		if t.rank == 0 && common.Shown(step, t.steps) {
			tokens := float64((step + 1 - first) * t.batch * t.sequence * t.copies.Size)
			fmt.Printf("step %4d/%d  loss %6.3f  %7.0f tokens/s\n", step+1, t.steps, loss,
				tokens/time.Since(start).Seconds())
		}
	}
	return losses, checkpoints.wait()
}

// finish writes the losses and the weights, and has the model write.
func (t *trainer) finish(losses []float32) error {
	if t.rank == 0 {
		var csv strings.Builder
		csv.WriteString("step,loss\n")
		for i, loss := range losses {
			fmt.Fprintf(&csv, "%d,%.6f\n", i+1, loss)
		}
		if err := os.WriteFile(filepath.Join(t.out, "loss.csv"), []byte(csv.String()), 0o666); err != nil {
			return err
		}
	}
	if t.save != "" {
		if err := t.trained.SaveSafetensors(t.save); err != nil {
			return err
		}
	}
	// Generation needs the whole model, and one that knows bytes.
	if t.sample == 0 || t.pp > 1 || t.weights != "" || t.data != "" {
		return nil
	}
	if err := t.model.SetTraining(false); err != nil { // without dropout
		return err
	}
	text, err := t.write("This License")
	if err != nil {
		return err
	}
	if err := t.model.SetTraining(true); err != nil {
		return err
	}
	return t.c.Print("the model writes:\n" + text)
}

func main() {
	a, err := readArguments()
	if err != nil {
		fmt.Fprintln(os.Stderr, "train_lm:", err)
		os.Exit(2)
	}
	common.Main("train_lm", a.tp*a.pp*a.dp, func(ctx context.Context) error {
		t := &trainer{arguments: a}
		if err := t.open(ctx); err != nil {
			return err
		}
		losses, err := t.train()
		if err != nil {
			return err
		}
		if err := t.finish(losses); err != nil {
			return err
		}
		return t.c.Finalize()
	})
}
