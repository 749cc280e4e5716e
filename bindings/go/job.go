package nxd

import (
	"context"
	"errors"
	"syscall"
	"unsafe"

	"libnxd.org/nxd/internal/own"
	"libnxd.org/nxd/raw"
)

// Job is processes started together on this host. They are ended when this process ends.
type Job struct{ own.Handle[raw.Job] }

// SpawnOptions say what to start. Zero values are defaults.
type SpawnOptions struct {
	Processes     int      // NEURON_NUM_DEVICES, NEURONCORE_NUM_DEVICES, or 1
	OMPNumThreads int      // of each: as inherited, or 1 with more than one process
	Args          []string // program and arguments; nil: this program with its own arguments
}

// Spawn starts processes with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT set, so that
// NewContext(ctx, nil) joins them. A process so started must not spawn again.
func Spawn(o *SpawnOptions) (*Job, error) {
	if o == nil {
		o = &SpawnOptions{}
	}
	var scratch raw.Scratch
	defer scratch.Free()
	c := raw.SpawnOptions{NumProcesses: raw.Int32(o.Processes), OMPNumThreads: raw.Int32(o.OMPNumThreads)}.Sized()
	var err error
	if c.Argv, err = scratch.Strings("Args", o.Args); err != nil {
		return nil, err
	}
	p, err := raw.Spawn(&c)
	if err != nil {
		return nil, err
	}
	return &Job{own.New(p, raw.JobDestroy)}, nil
}

// Wait waits until all processes have ended with 0, or one has failed, which is PeerLost: the others
// are then given some time and ended. When ctx is done before, Wait returns its error, and another
// Wait goes on.
func (j *Job) Wait(ctx context.Context) error {
	if ctx == nil || ctx.Done() == nil {
		return own.Do(j.Handle, func(p *raw.Job) error { return raw.JobWait(p, -1) })
	}
	for {
		err := own.Do(j.Handle, func(p *raw.Job) error { return raw.JobWait(p, milliseconds(slice)) })
		if !errors.Is(err, Timeout) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// Kill sends a signal to every process still running.
func (j *Job) Kill(signal syscall.Signal) error {
	return own.Do(j.Handle, func(p *raw.Job) error { return raw.JobKill(p, raw.Int32(int(signal))) })
}

// Size is the number of processes.
func (j *Job) Size() (int, error) { return own.Int(j.Handle, raw.JobGetSize) }

// ExitCode is how a process ended: its exit status, or 128 + signal number.
func (j *Job) ExitCode(rank int) (code int, running bool, err error) {
	err = own.Do(j.Handle, func(p *raw.Job) error {
		r, c, err := raw.JobGetExitCode(p, raw.Int32(rank))
		code, running = int(c), r != 0
		return err
	})
	return code, running, err
}

// PID is the process id of a rank.
func (j *Job) PID(rank int) (int, error) {
	pid, err := own.Get(j.Handle, func(p *raw.Job) (int64, error) { return raw.JobGetPID(p, raw.Int32(rank)) })
	return int(pid), err
}

// SampleEpoch is the samples of a data set that a data-parallel rank takes in an epoch.
func SampleEpoch(samples int64, ranks, rank int, epoch int64, seed uint64, shuffle, dropLast bool) ([]int64,
	error) {
	return list(func(indices *int64, capacity int) (int, error) {
		return raw.SampleEpoch(samples, raw.Int32(ranks), raw.Int32(rank), epoch, seed, flag(shuffle), flag(dropLast),
			indices, capacity)
	})
}

func goString(p *byte) string {
	if p == nil {
		return ""
	}
	return text(unsafe.Pointer(p))
}
