package nxd

import (
	"libnxd.org/nxd/internal/own"
	"libnxd.org/nxd/raw"
)

// ScheduleKind is an order in which the ranks of a pipeline compute.
type ScheduleKind = raw.PPScheduleKind

// Orders.
const (
	ScheduleDefault     = raw.PPScheduleDefault
	Schedule1F1B        = raw.PPSchedule1F1B
	ScheduleInterleaved = raw.PPScheduleInterleaved
	ScheduleGPipe       = raw.PPScheduleGPipe
	ScheduleZeroBubble  = raw.PPScheduleZeroBubble
	ScheduleInference   = raw.PPScheduleInference
)

// Task is one computation of one rank.
type Task = raw.PPTask

// Kinds of tasks.
const (
	TaskForward    = raw.PPTaskForward
	TaskBackward   = raw.PPTaskBackward
	TaskInputGrad  = raw.PPTaskInputGrad
	TaskWeightGrad = raw.PPTaskWeightGrad
)

// ScheduleReport is what becomes of a schedule under given costs.
type ScheduleReport = raw.PPReport

// Costs are durations in any one unit, of each stage; nil is 1 for all, or as Forward.
type Costs struct {
	Forward, BackwardInput, BackwardWeight []float64
	Transfer                               float64
}

// Schedule is the tasks of all ranks of a pipeline, known to be complete and free of deadlock.
type Schedule struct {
	own.Handle[raw.PPSchedule]
	stages int
}

func newSchedule(p *raw.PPSchedule, err error, stages int) (*Schedule, error) {
	if err != nil {
		return nil, err
	}
	return &Schedule{own.New(p, raw.PPScheduleDestroy), stages}, nil
}

// NewSchedule makes one of the library's.
func NewSchedule(kind ScheduleKind, ranks, chunks, microbatches int) (*Schedule, error) {
	p, err := raw.PPScheduleCreate(kind, raw.Int32(ranks), raw.Int32(chunks), raw.Int32(microbatches))
	return newSchedule(p, err, ranks*chunks)
}

// NewTaskSchedule makes and proves a schedule of the program's own tasks, those of each rank in order.
func NewTaskSchedule(chunks, microbatches int, tasks [][]Task) (*Schedule, error) {
	var all []Task
	counts := make([]uint64, len(tasks))
	for i, of := range tasks {
		all, counts[i] = append(all, of...), uint64(len(of))
	}
	p, err := raw.PPScheduleCreateTasks(int32(len(tasks)), raw.Int32(chunks), raw.Int32(microbatches), first(all),
		first(counts))
	return newSchedule(p, err, len(tasks)*chunks)
}

// Tasks is the tasks of a rank, in order.
func (s *Schedule) Tasks(rank int) ([]Task, error) {
	return list(func(tasks *Task, capacity int) (int, error) {
		return own.Get(s.Handle, func(p *raw.PPSchedule) (int, error) {
			return raw.PPScheduleGetTasks(p, raw.Int32(rank), tasks, capacity)
		})
	})
}

// Name is such as "1F1B".
func (s *Schedule) Name() (string, error) { return own.Get(s.Handle, raw.PPScheduleGetName) }

// countStages is the ranks times their chunks, which the tasks tell of a pipeline's own schedule.
func (s *Schedule) countStages() (int, error) {
	if s.stages > 0 {
		return s.stages, nil
	}
	tasks, err := s.Tasks(0)
	if err != nil {
		return 0, err
	}
	chunks, ranks := 0, 1
	for _, t := range tasks {
		if int(t.Chunk) >= chunks {
			chunks = int(t.Chunk) + 1
		}
	}
	// One past the last rank is rejected.
	for ; err == nil; ranks++ {
		_, err = s.Tasks(ranks)
	}
	return (ranks - 1) * chunks, nil
}

// Report plays the schedule through; nil: all tasks cost 1, transfers nothing.
func (s *Schedule) Report(c *Costs) (ScheduleReport, error) {
	var scratch raw.Scratch
	defer scratch.Free()
	report := ScheduleReport{}.Sized()
	if c == nil {
		c = &Costs{}
	}
	for _, of := range [][]float64{c.Forward, c.BackwardInput, c.BackwardWeight} {
		if of == nil {
			continue
		}
		stages, err := s.countStages()
		if err != nil {
			return report, err
		}
		if len(of) != stages {
			return report, raw.Invalid("Costs: expected one for each of %d stages, got %d", stages, len(of))
		}
	}
	costs := raw.PPCosts{Forward: raw.Copied(&scratch, c.Forward),
		BackwardInput:  raw.Copied(&scratch, c.BackwardInput),
		BackwardWeight: raw.Copied(&scratch, c.BackwardWeight), Transfer: c.Transfer}.Sized()
	err := own.Do(s.Handle, func(p *raw.PPSchedule) error {
		return raw.PPScheduleGetReport(p, &costs, &report)
	})
	return report, err
}
