// Pre-trains a BERT on masked words and next sentences (Devlin et al. 2019), tensor- and data-parallel,
// with the optimizer's state split over the copies (-zero1). It is examples/c/pretrain_bert.c in Go, with
// the same rows and losses.
//
//	./pretrain_bert -tp 2 -dp 2 -zero1 -text my.txt -out bert
//	./pretrain_bert -data corpus.u16 -vocab 30522 -config config.json -cls 101 -sep 102 -mask 103
//
// The words are the bytes of a text, or with -data 16-bit ids of a tokenizer, the least byte first. The
// three special ids follow the words where they are not given. A batch of -batch rows is shared by all
// copies. -out gets what Hugging Face's BertForPreTraining loads: config.json and model.safetensors.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"libnxd.org/nxd"
	"libnxd.org/nxd/engine"
	"libnxd.org/nxd/examples/internal/common"
)

type arguments struct {
	tp, dp, steps, warmup, batch, sequence, hidden, layers, heads, intermediate, vocabulary int
	cls, sep, mask                                                                          int
	zero1, sequenceParallel                                                                 bool
	learningRate                                                                            float64
	seed                                                                                    uint64
	dtype, text, data, config, out                                                          string
}

func readArguments() (*arguments, error) {
	a := &arguments{}
	flag.IntVar(&a.tp, "tp", 1, "tensor-parallel ranks")
	flag.IntVar(&a.dp, "dp", 1, "data-parallel copies")
	flag.BoolVar(&a.zero1, "zero1", false, "share the optimizer's state out over the copies")
	flag.BoolVar(&a.sequenceParallel, "sequence-parallel", false, "norms on slices of the sequence")
	flag.StringVar(&a.dtype, "dtype", "f32", "bf16 or autocast")
	flag.StringVar(&a.config, "config", "", "file with a Hugging Face configuration")
	flag.IntVar(&a.hidden, "hidden", 128, "features")
	flag.IntVar(&a.layers, "layers", 2, "encoder layers")
	flag.IntVar(&a.heads, "heads", 4, "attention heads")
	flag.IntVar(&a.intermediate, "intermediate", 512, "features of the MLP")
	flag.IntVar(&a.steps, "steps", 300, "training steps")
	flag.IntVar(&a.warmup, "warmup", -1, "steps before the full rate; a 20th if not given")
	flag.IntVar(&a.batch, "batch", 16, "rows of a step, of all copies together")
	flag.IntVar(&a.sequence, "seq", 64, "words of a row")
	flag.Float64Var(&a.learningRate, "lr", 1e-3, "learning rate")
	flag.Uint64Var(&a.seed, "seed", 1, "of weights and rows")
	flag.StringVar(&a.text, "text", "", "file to train on; Debian's licence texts if not given")
	flag.StringVar(&a.data, "data", "", "file of 16-bit ids to train on")
	flag.IntVar(&a.vocabulary, "vocab", -1, "words that there are; 256 bytes without -data")
	flag.IntVar(&a.cls, "cls", -1, "id of [CLS]")
	flag.IntVar(&a.sep, "sep", -1, "id of [SEP]")
	flag.IntVar(&a.mask, "mask", -1, "id of [MASK]")
	flag.StringVar(&a.out, "out", "", "directory for the model")
	flag.Parse()
	known := a.dtype == "f32" || a.dtype == "bf16" || a.dtype == "autocast"
	if !known || flag.NArg() > 0 || (a.text != "" && a.data != "") {
		return nil, fmt.Errorf("expected -text or -data and a -dtype, got %q %q %q %q", a.text, a.data, a.dtype,
			flag.Args())
	}
	if a.data != "" && a.vocabulary < 0 { // ids of words would serve as [CLS] and others
		return nil, errors.New("expected -vocab with -data")
	}
	if a.vocabulary < 0 {
		a.vocabulary = 256
	}
	for i, id := range []*int{&a.cls, &a.sep, &a.mask} {
		if *id < 0 {
			*id = a.vocabulary + i
		}
	}
	if a.warmup < 0 {
		a.warmup = a.steps/20 + 1
	}
	return a, common.CheckRate(a.learningRate)
}

// makeConfig is a Hugging Face configuration: a file's, or one made of the sizes given.
func (a *arguments) makeConfig() (string, error) {
	if a.config != "" {
		text, err := os.ReadFile(a.config)
		return string(text), err
	}
	return fmt.Sprintf(`{"model_type": "bert", "architectures": ["BertForPreTraining"], "hidden_size": %d,
"num_hidden_layers": %d, "num_attention_heads": %d, "intermediate_size": %d, "vocab_size": %d,
"max_position_embeddings": %d, "type_vocab_size": 2, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
"attention_probs_dropout_prob": 0.1, "initializer_range": 0.02, "layer_norm_eps": 1e-12,
"pad_token_id": null}
`, a.hidden, a.layers, a.heads, a.intermediate, a.vocabulary+specials, a.sequence), nil
}

func (a *arguments) readWords() (words []int64, err error) {
	if a.data != "" {
		words, err = common.ReadIDs(a.data)
	} else {
		words, err = common.ReadText(a.text)
	}
	if err == nil && len(words) < 2*a.sequence {
		err = fmt.Errorf("expected at least %d words, got %d", 2*a.sequence, len(words))
	}
	return words, err
}

func (a *arguments) makeModel(c *nxd.Context, config string) (*engine.Module, error) {
	options := engine.ModelOptions{}
	if a.dtype == "bf16" {
		options.DType = nxd.BF16
	}
	if a.sequenceParallel {
		options.SequenceParallel = 1
	}
	return engine.NewModel(c, config, options)
}

func (a *arguments) makeOptimizer(model *engine.Module) (optimizer *nxd.Optimizer, err error) {
	adamw := nxd.AdamWOptions{LearningRate: a.learningRate, WeightDecay: 0.01}
	if a.zero1 {
		var ddp *nxd.DDP
		if ddp, err = engine.NewDDP(model, nxd.DDPOptions{ZeroStage: 1, Reduce: nxd.Avg}); err != nil {
			return nil, err
		}
		optimizer, err = nxd.NewAdamW(ddp, adamw)
	} else {
		optimizer, err = engine.NewAdamW(model, adamw)
	}
	if err != nil {
		return nil, err
	}
	return optimizer, optimizer.SetLRSchedule(nxd.LRScheduleOptions{Kind: nxd.LRScheduleLinear,
		WarmupSteps: int64(a.warmup), TotalSteps: int64(a.warmup + a.steps)})
}

func (a *arguments) train(c *nxd.Context, model *engine.Module, words []int64) error {
	copies, err := common.DataParallel(c)
	if err != nil {
		return err
	}
	if a.batch%copies.Size != 0 {
		return fmt.Errorf("-batch: expected a multiple of the %d copies, got %d", copies.Size, a.batch)
	}
	optimizer, err := a.makeOptimizer(model)
	if err != nil {
		return err
	}
	defer optimizer.Close()
	for step := 0; step < a.steps; step++ {
		loss, err := a.trainStep(model, optimizer, copies, words, step)
		if err != nil {
			return fmt.Errorf("step %d: %w", step+1, err)
		}
		if common.Shown(step, a.steps) {
			if err := c.Print(fmt.Sprintf("step %d/%d  loss %.6f", step+1, a.steps, loss)); err != nil {
				return err
			}
		}
	}
	return a.printState(c, optimizer, copies)
}

// printState tells what a rank keeps: with -zero1 its share alone.
func (a *arguments) printState(c *nxd.Context, optimizer *nxd.Optimizer, copies common.Copies) error {
	bytes, err := optimizer.StateBytes()
	if err != nil {
		return err
	}
	text := fmt.Sprintf("rank 0 keeps %d bytes of the optimizer's state", bytes)
	if a.zero1 {
		text += fmt.Sprintf(" (ZeRO-1 over %d copies)", copies.Size)
	}
	return c.Print(text)
}

func (a *arguments) trainStep(model *engine.Module, optimizer *nxd.Optimizer, copies common.Copies, words []int64,
	step int) (float64, error) {
	if err := model.ZeroGrad(); err != nil {
		return 0, err
	}
	inputs, err := a.makeBatch(words, step, copies)
	defer engine.CloseAll(inputs)
	if err != nil {
		return 0, err
	}
	loss, err := copies.ForwardBackward(model, a.dtype == "autocast", inputs...)
	if err != nil {
		return 0, err
	}
	_, err = optimizer.Step(nxd.FinishOptions{MaxNorm: 1, DataParallelReduce: nxd.Avg})
	return loss, err
}

func (a *arguments) writeDirectory(c *nxd.Context, model *engine.Module, config string) error {
	rank, err := c.Rank()
	if err != nil {
		return err
	}
	if rank == 0 {
		if err := os.WriteFile(filepath.Join(a.out, "config.json"), []byte(config), 0o666); err != nil {
			return err
		}
	}
	// Written by rank 0, whole.
	if err := model.SaveSafetensors(filepath.Join(a.out, "model.safetensors")); err != nil {
		return err
	}
	return c.Print("wrote " + a.out)
}

func (a *arguments) run(ctx context.Context) error {
	words, err := a.readWords()
	if err != nil {
		return err
	}
	config, err := a.makeConfig()
	if err != nil {
		return err
	}
	c, err := nxd.NewContext(ctx, &nxd.ContextOptions{Seed: a.seed})
	if err != nil {
		return err
	}
	defer c.Close()
	if a.out != "" {
		if err := common.MakeDirectory(c, a.out); err != nil {
			return err
		}
	}
	if err := c.InitModelParallel(&nxd.ParallelOptions{TensorParallelSize: int32(a.tp)}); err != nil {
		return err
	}
	model, err := a.makeModel(c, config)
	if err != nil {
		return err
	}
	defer model.Close()
	if err := a.train(c, model, words); err != nil {
		return err
	}
	if a.out != "" {
		if err := a.writeDirectory(c, model, config); err != nil {
			return err
		}
	}
	return c.Finalize()
}

func main() {
	a, err := readArguments()
	if err != nil {
		fmt.Fprintln(os.Stderr, "pretrain_bert:", err)
		os.Exit(2)
	}
	common.Main("pretrain_bert", a.tp*a.dp, a.run)
}
