package engine

// #include "callbacks.h"
import "C"

import (
	"runtime"
	"runtime/cgo"
	"unsafe"

	"libnxd.org/nxd"
	"libnxd.org/nxd/internal/own"
	"libnxd.org/nxd/raw"
	"libnxd.org/nxd/rawengine"
)

// Ways to cut a model, and what the losses of microbatches add up to.
const (
	PartitionDefault = raw.PPPartitionDefault
	PartitionEven    = raw.PPPartitionEven
	PartitionCost    = raw.PPPartitionCost

	LossDefault      = raw.PPLossDefault
	LossMicrobatches = raw.PPLossMicrobatches
	LossTokens       = raw.PPLossTokens
)

// PipelineOptions are the same on all ranks. Zero values are defaults.
type PipelineOptions struct {
	Microbatches            int // divides the batch, dimension 0 of every input
	Chunks                  int // of each rank
	Schedule                nxd.ScheduleKind
	CustomSchedule          *nxd.Schedule // instead of Schedule
	Partition               raw.PPPartition
	TransformerLayerClass   string
	PipelineCuts            []string // paths of modules, each the last of its stage
	LeafModules             []string // by class name or path
	InputNames              []string
	Outputs                 int // of the model's forward
	LossOutput              int // which of them is the loss
	Loss                    raw.PPLoss
	HasLabelsInput          bool
	LabelsInput             int
	HasIgnoreIndex          bool
	IgnoreIndex             int64
	LabelsShifted           bool
	BroadcastAndAverageLoss bool
	MicrobatchLosses        bool // for Losses
	KeepOutputs             bool
	TraceFile               string
	// ParamInit fills this rank's shard of a parameter on the meta device.
	ParamInit func(p *Parameter, shard *Tensor) error
	// LeafRule tells whether tracing calls a module as a whole; it comes with what the lists say.
	LeafRule func(m *Module, path string, isLeaf bool) (bool, error)
	// LossPath is where the loss lies in nested outputs, such as "losses.lm", in place of LossOutput.
	LossPath string
}

// Pipeline is a model's stages on this rank. Run is for stages of the program's own; here it is RunTrain
// and RunEval.
type Pipeline struct {
	nxd.Pipeline
	ddp *nxd.DDP // which reduces its gradients
}

func (o *PipelineOptions) raw(s *raw.Scratch, h cgo.Handle) (c raw.PPOptions, err error) {
	c = raw.PPOptions{
		NumMicrobatches: raw.Int32(o.Microbatches), VirtualSize: raw.Int32(o.Chunks), Schedule: o.Schedule,
		Partition: o.Partition, NumCuts: uint64(len(o.PipelineCuts)), NumLeafModules: uint64(len(o.LeafModules)),
		NumInputNames: uint64(len(o.InputNames)), NumOutputs: raw.Int32(o.Outputs), LossOutput: raw.Int32(o.LossOutput),
		Loss: o.Loss, HasLabelsInput: flag(o.HasLabelsInput), LabelsInput: raw.Int32(o.LabelsInput),
		HasIgnoreIndex: flag(o.HasIgnoreIndex), IgnoreIndex: o.IgnoreIndex,
		LabelsShifted: flag(o.LabelsShifted), BroadcastAndAverageLoss: flag(o.BroadcastAndAverageLoss),
		ReturnMbLoss: flag(o.MicrobatchLosses), KeepOutputs: flag(o.KeepOutputs),
	}.Sized()
	if c.TransformerLayerClass, err = s.String("TransformerLayerClass", o.TransformerLayerClass); err != nil {
		return c, err
	}
	if c.TraceFilePath, err = s.String("TraceFile", o.TraceFile); err != nil {
		return c, err
	}
	if c.LossPath, err = s.String("LossPath", o.LossPath); err != nil {
		return c, err
	}
	if c.PipelineCuts, err = s.Strings("PipelineCuts", o.PipelineCuts); err != nil {
		return c, err
	}
	if c.LeafModules, err = s.Strings("LeafModules", o.LeafModules); err != nil {
		return c, err
	}
	if c.InputNames, err = s.Strings("InputNames", o.InputNames); err != nil {
		return c, err
	}
	if o.CustomSchedule != nil {
		if c.CustomSchedule, err = o.CustomSchedule.Given("CustomSchedule"); err != nil {
			return c, err
		}
	}
	if o.ParamInit != nil {
		c.ParamInit, c.ParamInitData = uintptr(unsafe.Pointer(C.nxdgo_param_init)), uintptr(h)
	}
	if o.LeafRule != nil {
		c.LeafRule, c.LeafRuleData = uintptr(unsafe.Pointer(C.nxdgo_leaf)), uintptr(h)
	}
	return c, nil
}

// A rank that finds an argument bad itself makes the call without an array of inputs: it fails on all ranks
// then, and none waits.

// NewPipeline traces a model, cuts it and keeps this rank's stages. inputs are examples, whose shapes and
// dtypes count. [collective: the pipeline-parallel group, and the tensor-parallel one if costs are counted]
func NewPipeline(m *Module, inputs []*Tensor, o PipelineOptions) (*Pipeline, error) {
	var scratch raw.Scratch
	defer scratch.Free()
	h := cgo.NewHandle(&o)
	c, bad := o.raw(&scratch, h)
	list, badInputs := pointers(inputs)
	bad = raw.FirstError(bad, badInputs)
	p, err := own.Get(m.Handle, func(p *raw.Module) (*raw.PP, error) {
		if bad != nil {
			_, _ = rawengine.PPCreate(p, nil, 1, &c)
			return nil, bad
		}
		return rawengine.PPCreate(p, first(list), len(list), &c)
	})
	runtime.KeepAlive(inputs)
	runtime.KeepAlive(o.CustomSchedule)
	if err != nil {
		h.Delete()
		return nil, err
	}
	return &Pipeline{Pipeline: nxd.Pipeline{Handle: own.New(p, func(p *raw.PP) {
		raw.PPDestroy(p)
		h.Delete()
	}, m)}}, nil
}

// RunTrain makes the forwards and backwards of all microbatches of a batch. [collective: the
// pipeline-parallel group, and the data-parallel group with a loss over tokens or BroadcastAndAverageLoss]
func (p *Pipeline) RunTrain(inputs ...*Tensor) (loss float64, err error) {
	list, bad := pointers(inputs)
	loss, err = own.Get(p.Handle, func(q *raw.PP) (float64, error) {
		loss, err := rawengine.PPRunTrain(q, first(list), len(inputs))
		return loss, raw.FirstError(bad, err)
	})
	runtime.KeepAlive(inputs)
	return loss, err
}

// RunEval makes the forwards alone; on the rank with the last stage it gives n outputs of the model, nil
// elsewhere. [collective: as RunTrain]
func (p *Pipeline) RunEval(n int, inputs ...*Tensor) (loss float64, outputs []*Tensor, err error) {
	outputs, err = call(inputs, n, func(in **raw.Tensor, nIn int, out **raw.Tensor) (err error) {
		loss, err = own.Get(p.Handle, func(q *raw.PP) (float64, error) {
			return rawengine.PPRunEval(q, in, nIn, out, n)
		})
		return err
	})
	return loss, outputs, err
}

// NamedInput is an input of a run by its name.
type NamedInput struct {
	Name   string
	Tensor *Tensor
}

func splitNames(inputs []NamedInput) (names []string, tensors []*Tensor) {
	for _, input := range inputs {
		names, tensors = append(names, input.Name), append(tensors, input.Tensor)
	}
	return names, tensors
}

// RunTrainNamed is RunTrain with inputs by their names; those that are not named are left out.
func (p *Pipeline) RunTrainNamed(inputs ...NamedInput) (loss float64, err error) {
	names, tensors := splitNames(inputs)
	defer runtime.KeepAlive(tensors)
	list, bad := pointers(tensors)
	return own.Get(p.Handle, func(q *raw.PP) (float64, error) {
		loss, err := rawengine.PPRunTrainNamed(q, names, first(list), len(tensors))
		return loss, raw.FirstError(bad, err)
	})
}

// RunEvalNamed is RunEval with inputs by their names.
func (p *Pipeline) RunEvalNamed(n int, inputs ...NamedInput) (loss float64, outputs []*Tensor, err error) {
	names, tensors := splitNames(inputs)
	outputs, err = call(tensors, n, func(in **raw.Tensor, nIn int, out **raw.Tensor) (err error) {
		loss, err = own.Get(p.Handle, func(q *raw.PP) (float64, error) {
			return rawengine.PPRunEvalNamed(q, names, in, nIn, out, n)
		})
		return err
	})
	return loss, outputs, err
}

// Losses are those of the last run's microbatches, with MicrobatchLosses, on the rank with the last
// stage.
func (p *Pipeline) Losses() ([]float64, error) {
	var losses []float64
	err := own.Do(p.Handle, func(q *raw.PP) error {
		n, err := rawengine.PPGetLosses(q, nil, 0)
		if err != nil || n == 0 {
			return err
		}
		losses = make([]float64, n)
		_, err = rawengine.PPGetLosses(q, &losses[0], n)
		return err
	})
	return losses, err
}

// SetDDP reduces gradients while runs go on; nil: no more. The pipeline keeps it alive. Take it away before it
// is closed.
func (p *Pipeline) SetDDP(d *nxd.DDP) error {
	var given *raw.DDP
	var err error
	if d != nil {
		if given, err = d.Given("ddp"); err != nil {
			return err
		}
	}
	err = own.Do(p.Handle, func(q *raw.PP) error { return rawengine.PPSetDDP(q, given) })
	if err == nil {
		p.ddp = d
	}
	return err
}

// LocalModule is the part of the model that this rank has; it is the pipeline's.
func (p *Pipeline) LocalModule() (*Module, error) {
	m, err := own.Get(p.Handle, rawengine.PPGetLocalModule)
	if err != nil {
		return nil, err
	}
	return &Module{own.Borrow(m, p)}, nil
}

// LocalModules is the paths of the modules that this rank's stages call.
func (p *Pipeline) LocalModules() ([]string, error) {
	return names(p.Handle, rawengine.PPGetLocalModuleCount, rawengine.PPGetLocalModuleName)
}

// Cuts is the paths of the modules that the cuts come after.
func (p *Pipeline) Cuts() ([]string, error) {
	return names(p.Handle, rawengine.PPGetCutCount, rawengine.PPGetCut)
}

// OutputPaths is the paths of the outputs that RunEval gives, in its order.
func (p *Pipeline) OutputPaths() ([]string, error) {
	return names(p.Handle, rawengine.PPGetOutputCount, rawengine.PPGetOutputPath)
}

// Unsplit is the names of nodes whose weight gradients cannot be put off; known after a training run.
func (p *Pipeline) Unsplit() ([]string, error) {
	return names(p.Handle, rawengine.PPGetUnsplitCount, rawengine.PPGetUnsplitName)
}

// Graph is the traced graph as text.
func (p *Pipeline) Graph() (string, error) { return own.Get(p.Handle, rawengine.PPGetGraphText) }
