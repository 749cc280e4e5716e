package nxd_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"libnxd.org/nxd"
	"libnxd.org/nxd/internal/ranks"
)

func saveAndGoOn(c *nxd.Context, directory string) error {
	values, grads, err := arrays(12)
	if err != nil {
		return err
	}
	ddp, err := nxd.NewDDP(c, nil, []nxd.Parameter{{Name: "w", Values: values, Grads: grads, Shape: []int64{12}}},
		nxd.DDPOptions{})
	if err != nil {
		return err
	}
	defer ddp.Close()
	adamw, err := nxd.NewAdamW(ddp, nxd.AdamWOptions{})
	if err != nil {
		return err
	}
	defer adamw.Close()
	if found, err := c.OpenNewestCheckpoint(directory, true); found != nil || err != nil {
		return first(err, errors.New("an empty directory has a checkpoint"))
	}
	for step := int64(1); step <= 3; step++ {
		if _, err = adamw.Step(nxd.FinishOptions{}); err != nil {
			return err
		}
		if err = save(c, adamw, directory, step); err != nil {
			return err
		}
	}
	newest, err := c.OpenNewestCheckpoint(directory, true)
	if err != nil {
		return err
	}
	defer newest.Close()
	step, err := newest.Step()
	value, ok, err2 := newest.Value("position")
	_, absent, err3 := newest.Value("absent")
	path, err4 := newest.Path("state")
	if err = first(err, err2, err3, err4, newest.RestoreRandomState()); err != nil {
		return err
	}
	if step != 3 || !ok || value != "batch 3" || absent {
		return errors.New("another checkpoint than the last: " + value)
	}
	return adamw.Load(path)
}

func save(c *nxd.Context, adamw *nxd.Optimizer, directory string, step int64) error {
	checkpoint, err := c.NewCheckpoint(directory, step)
	if err != nil {
		return err
	}
	defer checkpoint.Close()
	if err = checkpoint.Wait(-1); !errors.Is(err, nxd.InvalidState) {
		return first(errors.New("waits for nothing"), err)
	}
	err = first(adamw.Snapshot(checkpoint, "state"),
		checkpoint.SetValue("position", "batch "+strconv.FormatInt(step, 10)),
		checkpoint.PublishAsync(2), checkpoint.Wait(ranks.Limit))
	if err != nil {
		return err
	}
	if done, err := checkpoint.Done(); !done || err != nil {
		return first(errors.New("not done after the wait"), err)
	}
	return nil
}

func wholeState(c *nxd.Context, directory, corpus string) error {
	values, grads, err := arrays(12)
	if err != nil {
		return err
	}
	ddp, err := nxd.NewDDP(c, nil, []nxd.Parameter{{Name: "w", Values: values, Grads: grads, Shape: []int64{12}}},
		nxd.DDPOptions{})
	if err != nil {
		return err
	}
	defer ddp.Close()
	adamw, err := nxd.NewAdamW(ddp, nxd.AdamWOptions{})
	if err != nil {
		return err
	}
	defer adamw.Close()
	loader, err := nxd.NewDataLoader(c, []string{corpus}, 1, 4, nxd.DataLoaderOptions{})
	if err != nil {
		return err
	}
	defer loader.Close()
	state, err := c.NewTrainingState()
	if err != nil {
		return err
	}
	defer state.Close()
	err = first(state.AddOptimizer("optimizer", adamw), state.AddDataLoader("data", loader))
	if found, failed := state.LoadNewest(directory, true); found != -1 || failed != nil || err != nil {
		return first(err, failed, errors.New("an empty directory has a checkpoint"))
	}
	for step := int64(1); step <= 2; step++ {
		_, failed := adamw.Step(nxd.FinishOptions{})
		err = first(failed, loader.Next(make([]int64, 4), nil),
			state.SetValue("note", "step "+strconv.FormatInt(step, 10)))
		if err != nil {
			return err
		}
		if step == 1 {
			err = state.Save(directory, step, 0)
		} else {
			err = first(state.SaveAsync(directory, step, 0), state.Wait(ranks.Limit))
		}
		if err != nil {
			return err
		}
	}
	older, err := c.OpenCheckpoint(directory, 1, true)
	if err != nil {
		return err
	}
	defer older.Close()
	err = state.Restore(older)
	note, ok, err2 := state.Value("note")
	position, err3 := loader.Position()
	if err = first(err, err2, err3); err != nil || !ok || note != "step 1" || position != 2 {
		return first(err, errors.New("another state than the first: "+note))
	}
	if found, err := state.LoadNewest(directory, true); found != 2 || err != nil {
		return first(err, errors.New("another state than the last"))
	}
	own, err := c.NewCheckpoint(directory, 3)
	if err != nil {
		return err
	}
	defer own.Close()
	return first(state.Snapshot(own), own.Publish(1))
}

func TestTrainingState(t *testing.T) {
	directory := t.TempDir()
	corpus := directory + "/text.txt"
	if err := os.WriteFile(corpus, []byte("one two three four five six"), 0o600); err != nil {
		t.Fatal(err)
	}
	ranks.Run(t, 2, func(c *nxd.Context) error { return wholeState(c, directory+"/run", corpus) })
}

// A directory that cannot be handed over on one rank fails the calls of both.
func TestTextsOfOneRank(t *testing.T) {
	directory := t.TempDir()
	ranks.Run(t, 2, func(c *nxd.Context) error {
		rank, err := c.Rank()
		if err != nil {
			return err
		}
		state, err := c.NewTrainingState()
		if err != nil {
			return err
		}
		defer state.Close()
		values, grads, err := arrays(12)
		if err != nil {
			return err
		}
		ddp, err := nxd.NewDDP(c, nil, []nxd.Parameter{{Name: "w", Values: values, Grads: grads}}, nxd.DDPOptions{})
		if err != nil {
			return err
		}
		defer ddp.Close()
		adamw, err := nxd.NewAdamW(ddp, nxd.AdamWOptions{})
		if err != nil {
			return err
		}
		defer adamw.Close()
		open, err := c.NewCheckpoint(directory+"/open", 1)
		if err != nil {
			return err
		}
		defer open.Close()
		calls := []func(path string) error{
			adamw.Save,
			func(path string) error { return adamw.Snapshot(open, filepath.Base(path)) },
			func(path string) error { _, err := c.NewCheckpoint(path, 1); return err },
			func(path string) error { _, err := c.OpenCheckpoint(path, 1, true); return err },
			func(path string) error { _, err := c.OpenNewestCheckpoint(path, true); return err },
			func(path string) error { return state.Save(path, 1, 0) },
			func(path string) error { return state.SaveAsync(path, 1, 0) },
			func(path string) error { _, err := state.LoadNewest(path, true); return err },
		}
		path := directory
		if rank == 1 {
			path += "/with\x00nul"
		}
		for i, call := range calls {
			err := call(path)
			if !errors.Is(err, nxd.InvalidArgument) {
				return first(err, errors.New("call "+strconv.Itoa(i)+" succeeds"))
			}
			if rank == 0 && !strings.Contains(err.Error(), "rank 1 rejected its arguments") {
				return err
			}
		}
		return nil
	})
}

func TestCheckpoints(t *testing.T) {
	directory := t.TempDir()
	ranks.Run(t, 2, func(c *nxd.Context) error { return saveAndGoOn(c, directory) })
	entries, err := os.ReadDir(directory)
	if err != nil {
		t.Fatal(err)
	}
	published := 0
	for _, entry := range entries {
		if entry.Name()[0] != '.' {
			published++
		}
	}
	if published != 2 {
		t.Errorf("%d checkpoints are kept, 2 were to be", published)
	}
}

// A context that nothing else refers to lives as long as a call on what was made from it.
func TestContextOfACall(t *testing.T) {
	store, err := nxd.NewLocalStore()
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	join := func(rank int) *nxd.Context {
		c, err := nxd.NewContext(context.Background(),
			&nxd.ContextOptions{Store: store, Rank: rank, Size: 2, Timeout: ranks.Timeout})
		if err != nil {
			t.Error(err)
		}
		return c
	}
	directory := t.TempDir()
	var collected atomic.Bool
	ended := make(chan error)
	go func() {
		c := join(0)
		runtime.SetFinalizer(c, func(*nxd.Context) { collected.Store(true) })
		state, err := c.NewTrainingState()
		if err == nil {
			err = state.Save(directory, 1, 0)
		}
		ended <- err
	}()
	c := join(1)
	for i := 0; i < 100; i++ { // by now the other rank waits for this one
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	defer c.Close()
	if collected.Load() {
		t.Error("the context of a call that waits was collected")
	}
	state, err := c.NewTrainingState()
	if err = first(err, state.Save(directory, 1, 0), <-ended); err != nil {
		t.Error(err)
	}
}
