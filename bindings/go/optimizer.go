package nxd

// #include "callbacks.h"
import "C"

import (
	"runtime"
	"runtime/cgo"
	"unsafe"

	"libnxd.org/nxd/internal/own"
	"libnxd.org/nxd/raw"
)

// Optimizer updates parameters from their gradients.
type Optimizer struct{ own.Handle[raw.Optimizer] }

// AdamWOptions are AdamW's; zero values are defaults. StructSize is set by the calls.
type AdamWOptions = raw.AdamWOptions

// SGDOptions are SGD's; zero values are defaults. StructSize is set by the calls.
type SGDOptions = raw.SGDOptions

// ScheduleOptions are a schedule of learning rates. StructSize is set by the calls.
type LRScheduleOptions = raw.LRScheduleOptions

// StepReport is what a step did.
type StepReport = raw.StepReport

// Hyperparameter is what Optimizer.SetHyperparameter sets.
type Hyperparameter = raw.Hyperparameter

// BF16Update is how parameters of BF16 are updated.
type BF16Update = raw.BF16Update

// Schedules, hyperparameters, ways to update BF16, and AdamW's formulas.
const (
	LRScheduleConstant = raw.LRScheduleConstant
	LRScheduleLinear   = raw.LRScheduleLinear
	LRScheduleCosine   = raw.LRScheduleCosine

	LearningRate = raw.HyperparameterLearningRate
	WeightDecay  = raw.HyperparameterWeightDecay
	Beta1        = raw.HyperparameterBeta1
	Beta2        = raw.HyperparameterBeta2
	Eps          = raw.HyperparameterEps
	Momentum     = raw.HyperparameterMomentum
	Dampening    = raw.HyperparameterDampening

	BF16Master     = raw.BF16UpdateMaster
	BF16Stochastic = raw.BF16UpdateStochastic
	BF16Nearest    = raw.BF16UpdateNearest

	AdamWTorch = raw.AdamWFormulaTorch
	AdamWNxD   = raw.AdamWFormulaNxD
)

// Update is what a rule of the program's own works on: a run of elements of one parameter, which ZeRO
// may cut anywhere. Its memory is borrowed until the rule returns.
type Update struct {
	Parameter    string
	Begin        int64 // the first element's index within this rank's parameter
	Count        int
	Values, Grad Buffer
	GradScale    float64  // the gradient is to be multiplied by this first
	States       []Buffer // zeros at the first update
	LearningRate float64  // with the schedule's factor
	WeightDecay  float64
	Step         int64 // of this parameter, 1 for its first update
}

func newUpdate(u *raw.Update, states int) *Update {
	shape := []int64{u.Count}
	out := &Update{
		Parameter: goString(u.Parameter), Begin: u.Begin, Count: int(u.Count),
		Values: Buffer{u.Param, u.DType, shape}, Grad: Buffer{u.Grad, u.GradDType, shape},
		GradScale: u.GradScale, LearningRate: u.LearningRate, WeightDecay: u.WeightDecay, Step: u.Step,
	}
	if states > 0 {
		dtype := u.DType
		if dtype == BF16 {
			dtype = F32
		}
		for _, p := range unsafe.Slice(u.States, states) {
			out.States = append(out.States, Buffer{p, dtype, shape})
		}
	}
	return out
}

// CustomOptions are an update rule of the program's own.
type CustomOptions struct {
	Update       func(*Update) error // called inside Step and Update
	LearningRate float64             // 0: 1e-3
	WeightDecay  float64
	States       int // 0 to 8 arrays beside each parameter
	BF16Update   BF16Update
}

// NewAdamW is AdamW over the parameters of a ddp.
func NewAdamW(d *DDP, o AdamWOptions) (*Optimizer, error) {
	o = o.Sized()
	return newOptimizer(d, func(p *raw.DDP) (*raw.Optimizer, error) { return raw.OptimizerCreateAdamWDDP(p, &o) })
}

// NewSGD is SGD over the parameters of a ddp.
func NewSGD(d *DDP, o SGDOptions) (*Optimizer, error) {
	o = o.Sized()
	return newOptimizer(d, func(p *raw.DDP) (*raw.Optimizer, error) { return raw.OptimizerCreateSGDDDP(p, &o) })
}

func newOptimizer(d *DDP, create func(*raw.DDP) (*raw.Optimizer, error)) (*Optimizer, error) {
	p, err := own.Get(d.Handle, create)
	if err != nil {
		return nil, err
	}
	return &Optimizer{own.New(p, raw.OptimizerDestroy, d)}, nil
}

// NewCustom is the program's own update rule over the parameters of a ddp.
func NewCustom(d *DDP, o CustomOptions) (*Optimizer, error) {
	return newOptimizer(d, func(p *raw.DDP) (*raw.Optimizer, error) {
		return WithCustom(o, func(c *raw.CustomOptimizerOptions) (*raw.Optimizer, error) {
			return raw.OptimizerCreateCustomDDP(p, c)
		})
	})
}

// WithCustom gives a rule's options to create, for package engine.
func WithCustom(o CustomOptions, create func(*raw.CustomOptimizerOptions) (*raw.Optimizer, error)) (
	*raw.Optimizer, error) {
	if o.Update == nil {
		return nil, raw.Invalid("Update: expected a function, got nil")
	}
	h := cgo.NewHandle(&o)
	c := raw.CustomOptimizerOptions{
		Update: uintptr(unsafe.Pointer(C.nxdgo_update)), UserData: uintptr(h),
		Destroy:      uintptr(unsafe.Pointer(C.nxdgo_destroy)),
		LearningRate: o.LearningRate, WeightDecay: o.WeightDecay, NumStates: raw.Int32(o.States),
		BF16Update: o.BF16Update,
	}.Sized()
	p, err := create(&c)
	if err != nil {
		h.Delete()
	}
	return p, err
}

// AddGroup puts parameters, by names or patterns such as "*.bias", into a group with hyperparameters of
// its own.
func (o *Optimizer) AddGroup(patterns ...string) (group int, err error) {
	return own.Int(o.Handle, func(p *raw.Optimizer) (int32, error) {
		return raw.OptimizerAddGroup(p, patterns, len(patterns))
	})
}

// SetHyperparameter sets a hyperparameter of a group, or of all with -1, from the next step on.
func (o *Optimizer) SetHyperparameter(group int, which Hyperparameter, value float64) error {
	return own.Do(o.Handle, func(p *raw.Optimizer) error {
		return raw.OptimizerSetHyperparameter(p, raw.Int32(group), which, value)
	})
}

// Hyperparameter is a hyperparameter of a group.
func (o *Optimizer) Hyperparameter(group int, which Hyperparameter) (float64, error) {
	return own.Get(o.Handle, func(p *raw.Optimizer) (float64, error) {
		return raw.OptimizerGetHyperparameter(p, raw.Int32(group), which)
	})
}

// SetSchedule makes the learning rate follow a schedule over the optimizer's updates.
func (o *Optimizer) SetLRSchedule(s LRScheduleOptions) error {
	s = s.Sized()
	return own.Do(o.Handle, func(p *raw.Optimizer) error { return raw.OptimizerSetLRSchedule(p, &s) })
}

// ScheduleFactor is the factor on the learning rate at a step.
func LRScheduleFactor(s LRScheduleOptions, step int64) (float64, error) {
	s = s.Sized()
	return raw.LRScheduleGetFactor(&s, step)
}

// Step ends a training step: it completes the gradients, clips, and updates.
// [collective: tensor-, pipeline- and data-parallel groups]
func (o *Optimizer) Step(f FinishOptions) (StepReport, error) {
	f = f.Sized()
	report := StepReport{}.Sized()
	err := own.Do(o.Handle, func(p *raw.Optimizer) error { return raw.OptimizerStep(p, &f, &report) })
	return report, err
}

// StepWithoutReport is the same without a report: the recorded device is not asked for the norm, so that
// the update runs, and fails, in MarkStep.
func (o *Optimizer) StepWithoutReport(f FinishOptions) error {
	f = f.Sized()
	return own.Do(o.Handle, func(p *raw.Optimizer) error { return raw.OptimizerStep(p, &f, nil) })
}

// Update updates from gradients that are finished; not with ZeRO.
func (o *Optimizer) Update() error { return own.Do(o.Handle, raw.OptimizerUpdate) }

// ParameterState is what the last step left of this rank's parameters, and which step that was.
func (o *Optimizer) ParameterState() (state ParameterState, step int64, err error) {
	err = own.Do(o.Handle, func(p *raw.Optimizer) error {
		state, step, err = raw.OptimizerGetParameterState(p)
		return err
	})
	return state, step, err
}

// SetLearningRate sets the learning rate of all groups.
func (o *Optimizer) SetLearningRate(rate float64) error {
	return own.Do(o.Handle, func(p *raw.Optimizer) error { return raw.OptimizerSetLearningRate(p, rate) })
}

// LearningRate is that of group 0 at the next step, with the schedule's factor.
func (o *Optimizer) LearningRate() (float64, error) {
	return own.Get(o.Handle, raw.OptimizerGetLearningRate)
}

// StateBytes is the bytes of state that this rank holds.
func (o *Optimizer) StateBytes() (uint64, error) {
	return own.Get(o.Handle, raw.OptimizerGetStateBytes)
}

// Save writes the whole state as one safetensors file. [collective: tensor, data, pipeline groups]
func (o *Optimizer) Save(path string) error {
	return own.Do(o.Handle, func(p *raw.Optimizer) error { return raw.OptimizerSave(p, path) })
}

// Snapshot has the state as it is now become a file of a checkpoint. [collective: world]
func (o *Optimizer) Snapshot(checkpoint *Checkpoint, name string) error {
	defer runtime.KeepAlive(checkpoint)
	return own.Do(o.Handle, func(p *raw.Optimizer) error {
		return raw.OptimizerSnapshot(p, checkpoint.Raw(), name)
	})
}

// Load reads this rank's part of a state that any layout wrote.
func (o *Optimizer) Load(path string) error {
	return own.Do(o.Handle, func(p *raw.Optimizer) error { return raw.OptimizerLoad(p, path) })
}
