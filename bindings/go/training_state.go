package nxd

import (
	"runtime"
	"time"

	"libnxd.org/nxd/internal/own"
	"libnxd.org/nxd/raw"
)

// TrainingState is all that a training run goes on from: models, optimizers, positions of data loaders, the
// context's random state, and texts. It keeps its parts alive.
type TrainingState struct {
	own.Handle[raw.TrainingState]
	needs *[]any // of the parts, as long as the handle
}

// NewTrainingState is a state without parts.
func (c *Context) NewTrainingState() (*TrainingState, error) {
	p, err := own.Get(c.Handle, raw.TrainingStateCreate)
	if err != nil {
		return nil, err
	}
	needs := new([]any)
	return &TrainingState{own.New(p, raw.TrainingStateDestroy, c, needs), needs}, nil
}

// Keep has Go values that a part needs live as long as the state.
func (s *TrainingState) Keep(needs ...any) { *s.needs = append(*s.needs, needs...) }

// AddOptimizer adds an optimizer, as the file name.safetensors.
func (s *TrainingState) AddOptimizer(name string, optimizer *Optimizer) error {
	defer runtime.KeepAlive(optimizer)
	s.Keep(optimizer.Needs()...)
	return own.Do(s.Handle, func(p *raw.TrainingState) error {
		return raw.TrainingStateAddOptimizer(p, name, optimizer.Raw())
	})
}

// AddDataLoader adds the position of a data loader, as a text of that name.
func (s *TrainingState) AddDataLoader(name string, loader *DataLoader) error {
	defer runtime.KeepAlive(loader)
	return own.Do(s.Handle, func(p *raw.TrainingState) error {
		return raw.TrainingStateAddDataLoader(p, name, loader.Raw())
	})
}

// SetValue keeps a text, which is the same on all ranks.
func (s *TrainingState) SetValue(key, value string) error {
	return own.Do(s.Handle, func(p *raw.TrainingState) error { return raw.TrainingStateSetValue(p, key, value) })
}

// Value is a text that was set, or that the checkpoint had which was loaded since; ok is false where there
// is none.
func (s *TrainingState) Value(key string) (value string, ok bool, err error) {
	return readText(s.Handle, func(p *raw.TrainingState, buf *byte, cap int) (int, error) {
		return raw.TrainingStateGetValue(p, key, buf, cap)
	})
}

// Save saves all parts as the checkpoint of a step, and keeps the last so many; 0: all.
// [collective: world]
func (s *TrainingState) Save(directory string, step int64, keepLast int) error {
	return own.Do(s.Handle, func(p *raw.TrainingState) error {
		return raw.TrainingStateSave(p, directory, step, raw.Int32(keepLast))
	})
}

// SaveAsync does the same in the background, while the program goes on. [collective: world]
func (s *TrainingState) SaveAsync(directory string, step int64, keepLast int) error {
	return own.Do(s.Handle, func(p *raw.TrainingState) error {
		return raw.TrainingStateSaveAsync(p, directory, step, raw.Int32(keepLast))
	})
}

// Wait waits until the last SaveAsync has ended, and fails as it did. A negative timeout has no end; after
// Timeout it goes on.
func (s *TrainingState) Wait(timeout time.Duration) error {
	return own.Do(s.Handle, func(p *raw.TrainingState) error {
		return raw.TrainingStateWait(p, milliseconds(timeout))
	})
}

// LoadNewest loads all parts from the newest complete checkpoint, and gives its step; -1, and nothing
// changed, where there is none. [collective: world]
func (s *TrainingState) LoadNewest(directory string, verify bool) (step int64, err error) {
	return own.Get(s.Handle, func(p *raw.TrainingState) (int64, error) {
		return raw.TrainingStateLoadNewest(p, directory, flag(verify))
	})
}

// Snapshot puts all parts into a checkpoint that is being written. [collective: world]
func (s *TrainingState) Snapshot(checkpoint *Checkpoint) error {
	defer runtime.KeepAlive(checkpoint)
	return own.Do(s.Handle, func(p *raw.TrainingState) error {
		return raw.TrainingStateSnapshot(p, checkpoint.Raw())
	})
}

// Restore loads all parts from a checkpoint that was opened. [collective: world]
func (s *TrainingState) Restore(checkpoint *Checkpoint) error {
	defer runtime.KeepAlive(checkpoint)
	return own.Do(s.Handle, func(p *raw.TrainingState) error {
		return raw.TrainingStateRestore(p, checkpoint.Raw())
	})
}
