package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"

	"libnxd.org/nxd"
)

// checkpoints save a run while it goes on: its state, and beside it the losses so far.
type checkpoints struct {
	t         *trainer
	directory string
	state     *nxd.TrainingState
	saving    *nxd.Checkpoint
}

const lossesFile = "losses.f32"

func openCheckpoints(t *trainer) (*checkpoints, error) {
	state, err := t.c.NewTrainingState()
	if err != nil {
		return nil, err
	}
	if err := t.trained.AddToState(state, "model"); err != nil {
		return nil, err
	}
	if err := state.AddOptimizer("optimizer", t.optimizer); err != nil {
		return nil, err
	}
	if t.loader != nil {
		if err := state.AddDataLoader("data", t.loader); err != nil {
			return nil, err
		}
	}
	return &checkpoints{t: t, directory: filepath.Join(t.out, "checkpoints"), state: state}, nil
}

func (c *checkpoints) save(losses []float32) (err error) {
	if err = c.wait(); err != nil {
		return err
	}
	c.saving, err = c.t.c.NewCheckpoint(c.directory, int64(len(losses)))
	if err != nil {
		return err
	}
	if err = c.state.Snapshot(c.saving); err != nil {
		return err
	}
	if c.t.rank == 0 {
		path, err := c.saving.Path(lossesFile)
		if err != nil {
			return err
		}
		var words bytes.Buffer
		if err := binary.Write(&words, binary.LittleEndian, losses); err != nil {
			return err
		}
		if err := os.WriteFile(path, words.Bytes(), 0o666); err != nil {
			return err
		}
	}
	return c.saving.PublishAsync(c.t.keep)
}

func (c *checkpoints) wait() error {
	if c.saving == nil {
		return nil
	}
	err := c.saving.Wait(-1)
	c.saving.Close()
	c.saving = nil
	return err
}

// resume goes on from the newest complete one, and gives the losses until then.
func (c *checkpoints) resume() ([]float32, error) {
	newest, err := c.t.c.OpenNewestCheckpoint(c.directory, true)
	if err != nil || newest == nil {
		return nil, err
	}
	defer newest.Close()
	step, err := newest.Step()
	if err != nil {
		return nil, err
	}
	if step > int64(c.t.steps) {
		return nil, fmt.Errorf("the checkpoint is of step %d, and the run is to have %d", step, c.t.steps)
	}
	if err := c.state.Restore(newest); err != nil {
		return nil, err
	}
	path, err := newest.Path(lossesFile)
	if err != nil {
		return nil, err
	}
	words, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	losses := make([]float32, step)
	return losses, binary.Read(bytes.NewReader(words), binary.LittleEndian, losses)
}
