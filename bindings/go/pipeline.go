package nxd

// #include "callbacks.h"
import "C"

import (
	"runtime/cgo"
	"unsafe"

	"libnxd.org/nxd/internal/own"
	"libnxd.org/nxd/raw"
)

// Value is what goes from one stage to the next, of the same shape in every microbatch.
type Value struct {
	Name      string
	Shape     []int64
	DType     DType
	NeedsGrad bool // its gradient comes back
}

// StageCall is where a stage is called for.
type StageCall struct {
	Stage, Chunk, Microbatch int
	Last                     bool    // no later task of this run adds to this chunk's gradients
	LossWeight               float64 // the loss of this microbatch is multiplied by it: scale its gradient so
}

func newStageCall(c *raw.PPCall) StageCall {
	return StageCall{int(c.Stage), int(c.Chunk), int(c.Microbatch), c.Last != 0, c.LossWeight}
}

// Stage is a rank's stages, computed by the program. Buffers are borrowed until the method returns, but
// for inputs, which stay as they are until the microbatch's last backward.
type Stage interface {
	// Forward fills outputs; in the last stage it gives the loss, in others 0.
	Forward(call StageCall, inputs, outputs []Buffer) (loss float64, err error)
	// Backward fills gradInputs and adds to the parameters' gradients. Buffers are nil where a value
	// needs no gradient. In the last stage there are no outputs: the loss is differentiated.
	Backward(call StageCall, inputs, gradOutputs, gradInputs []Buffer) error
}

// SplitStage can do the two parts of Backward apart, for zero-bubble schedules.
type SplitStage interface {
	Stage
	BackwardInput(call StageCall, inputs, gradOutputs, gradInputs []Buffer) error
	BackwardWeight(call StageCall, inputs, gradOutputs []Buffer) error
}

// PipelineOptions are the same on all ranks of the pipeline.
type PipelineOptions struct {
	Microbatches            int // 0: 1
	Chunks                  int // of each rank; 0: 1
	Schedule                ScheduleKind
	CustomSchedule          *Schedule // instead of Schedule
	BroadcastAndAverageLoss bool      // every rank gets the mean loss; else the last stage's its own
}

// Pipeline is stages on this rank, and the schedule they run by.
type Pipeline struct {
	own.Handle[raw.PP]
	schedule *Schedule
}

// stages is what a pipeline's callbacks reach.
type stages struct {
	stage           Stage
	inputs, outputs [][]Value // of each chunk
}

func (s *stages) buffers(list unsafe.Pointer, values [][]Value, chunk int) []Buffer {
	if list == nil {
		return nil
	}
	of := values[chunk]
	out := make([]Buffer, len(of))
	for i, t := range unsafe.Slice((**raw.DLTensor)(list), len(of)) {
		if t != nil {
			out[i] = Buffer{unsafe.Add(t.Data, t.ByteOffset), dtypeOf(t.DType), of[i].Shape}
		}
	}
	return out
}

// keptValues is a copy that the program's changes of its lists do not reach: callbacks get as many arrays, of
// these shapes, as the library was told of.
func keptValues(chunks [][]Value) [][]Value {
	out := copied(chunks)
	for i := range out {
		out[i] = copied(out[i])
		for j := range out[i] {
			out[i][j].Shape = copied(out[i][j].Shape)
		}
	}
	return out
}

func rawValues(s *raw.Scratch, chunks [][]Value) (*raw.PPValue, *uint64, error) {
	var values []raw.PPValue
	var counts []uint64
	for _, chunk := range chunks {
		counts = append(counts, uint64(len(chunk)))
		for _, v := range chunk {
			name, err := s.String("Name", v.Name)
			if err != nil {
				return nil, nil, err
			}
			values = append(values, raw.PPValue{Name: name, Shape: raw.Copied(s, v.Shape),
				Ndim: int32(len(v.Shape)), DType: v.DType, NeedsGrad: flag(v.NeedsGrad)})
		}
	}
	return raw.Copied(s, values), raw.Copied(s, counts), nil
}

// NewPipeline makes a pipeline of the program's own stages. inputs and outputs are the values of each of
// this rank's chunks; stage 0 has no inputs, the last stage no outputs.
// [collective: the pipeline-parallel group]
func NewPipeline(c *Context, stage Stage, inputs, outputs [][]Value, o PipelineOptions) (*Pipeline, error) {
	if o.Chunks == 0 {
		o.Chunks = 1
	}
	if o.Microbatches == 0 {
		o.Microbatches = 1
	}
	if stage == nil || len(inputs) != o.Chunks || len(outputs) != o.Chunks {
		return nil, rejectPipeline(c, raw.Invalid("pipeline: expected a stage, and inputs and outputs of %d chunks, "+
			"got %d and %d", o.Chunks, len(inputs), len(outputs)))
	}
	var scratch raw.Scratch
	defer scratch.Free()
	in, nIn, err := rawValues(&scratch, inputs)
	if err != nil {
		return nil, rejectPipeline(c, err)
	}
	out, nOut, err := rawValues(&scratch, outputs)
	if err != nil {
		return nil, rejectPipeline(c, err)
	}
	options := raw.PPCallbacksOptions{NumMicrobatches: raw.Int32(o.Microbatches), VirtualSize: raw.Int32(o.Chunks),
		Schedule: o.Schedule, BroadcastAndAverageLoss: flag(o.BroadcastAndAverageLoss)}.Sized()
	if o.CustomSchedule != nil {
		if options.CustomSchedule, err = o.CustomSchedule.Given("CustomSchedule"); err != nil {
			return nil, rejectPipeline(c, err)
		}
	}
	h := cgo.NewHandle(&stages{stage, keptValues(inputs), keptValues(outputs)})
	callbacks := stageCallbacks(stage, h)
	p, err := own.Get(c.Handle, func(p *raw.Context) (*raw.PP, error) {
		return raw.PPCreateCallbacks(p, &options, in, nIn, out, nOut, &callbacks)
	})
	if err != nil {
		h.Delete()
		return nil, err
	}
	return &Pipeline{own.New(p, raw.PPDestroy, c), o.CustomSchedule}, nil
}

// rejectPipeline tells the other stages that this rank cannot make a pipeline, and gives the reason back.
func rejectPipeline(c *Context, why error) error {
	group, err := c.ParallelGroup(AxisPipeline)
	if err != nil {
		return err
	}
	return group.Reject("", why)
}

func stageCallbacks(stage Stage, h cgo.Handle) raw.PPStageCallbacks {
	c := raw.PPStageCallbacks{
		UserData: uintptr(h),
		Destroy:  uintptr(unsafe.Pointer(C.nxdgo_destroy)),
		Forward:  uintptr(unsafe.Pointer(C.nxdgo_stage_forward)),
		Backward: uintptr(unsafe.Pointer(C.nxdgo_stage_backward)),
	}
	if _, ok := stage.(SplitStage); ok {
		c.BackwardInput = uintptr(unsafe.Pointer(C.nxdgo_stage_backward_input))
		c.BackwardWeight = uintptr(unsafe.Pointer(C.nxdgo_stage_backward_weight))
	}
	return c.Sized()
}

// Run makes one step: forwards and backwards of all microbatches, or forwards alone.
// [collective: the pipeline-parallel group; with BroadcastAndAverageLoss also the data-parallel group]
func (p *Pipeline) Run(training bool) (loss float64, err error) {
	return own.Get(p.Handle, func(r *raw.PP) (float64, error) { return raw.PPRun(r, flag(training)) })
}

// HasLoss tells whether this rank has the last stage.
func (p *Pipeline) HasLoss() (bool, error) {
	has, err := own.Get(p.Handle, raw.PPHasLoss)
	return has != 0, err
}

// Schedule is that of training runs, as long as the pipeline lives.
func (p *Pipeline) Schedule() (*Schedule, error) {
	s, err := own.Get(p.Handle, raw.PPGetSchedule)
	if err != nil {
		return nil, err
	}
	return &Schedule{Handle: own.Borrow(s, p)}, nil
}

// BufferBytes is the bytes that the pipeline receives into on this rank.
func (p *Pipeline) BufferBytes() (uint64, error) { return own.Get(p.Handle, raw.PPGetBufferBytes) }

// SetTimeline records when tasks, messages and waits begin and end, in all runs from now on.
func (p *Pipeline) SetTimeline(on bool) error {
	return own.Do(p.Handle, func(r *raw.PP) error { return raw.PPSetTimeline(r, flag(on)) })
}

// WriteTimeline writes what all ranks recorded, on rank 0: a trace (.json).
// [collective: world]
func (p *Pipeline) WriteTimeline(path string) error {
	return own.Do(p.Handle, func(r *raw.PP) error { return raw.PPWriteTimeline(r, path) })
}
