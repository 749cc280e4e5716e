package nxd

import (
	"time"

	"libnxd.org/nxd/internal/own"
	"libnxd.org/nxd/raw"
)

// Checkpoint is a directory of files that appears at once or not at all: one that is being written, or
// was opened to be read. Closing one that was not published removes it; one that is being published is
// waited for.
type Checkpoint struct{ own.Handle[raw.Checkpoint] }

func newCheckpoint(ctx *Context, directory string, make func(ctx *raw.Context) (*raw.Checkpoint, error)) (*Checkpoint,
	error) {
	p, err := own.Get(ctx.Handle, make)
	if err != nil || p == nil {
		return nil, err
	}
	return &Checkpoint{own.New(p, raw.CheckpointDestroy, ctx)}, nil
}

// NewCheckpoint begins the checkpoint of a step. [collective: world]
func (c *Context) NewCheckpoint(directory string, step int64) (*Checkpoint, error) {
	return newCheckpoint(c, directory, func(p *raw.Context) (*raw.Checkpoint, error) {
		return raw.CheckpointCreate(p, directory, step)
	})
}

// OpenCheckpoint opens that of a step; with verify the checksums of all files are compared.
// [collective: world]
func (c *Context) OpenCheckpoint(directory string, step int64, verify bool) (*Checkpoint, error) {
	return newCheckpoint(c, directory, func(p *raw.Context) (*raw.Checkpoint, error) {
		return raw.CheckpointOpen(p, directory, step, flag(verify))
	})
}

// OpenNewestCheckpoint opens the newest complete one; nil where there is none. [collective: world]
func (c *Context) OpenNewestCheckpoint(directory string, verify bool) (*Checkpoint, error) {
	return newCheckpoint(c, directory, func(p *raw.Context) (*raw.Checkpoint, error) {
		return raw.CheckpointOpenNewest(p, directory, flag(verify))
	})
}

// Step is that which the checkpoint is of.
func (c *Checkpoint) Step() (int64, error) { return own.Get(c.Handle, raw.CheckpointGetStep) }

// readText reads one into as much room as the first call says; "" where that is none.
func readText[T any](h own.Handle[T], get func(p *T, buf *byte, cap int) (int, error)) (string, bool, error) {
	needed, err := own.Get(h, func(p *T) (int, error) { return get(p, nil, 0) })
	if err != nil || needed == 0 {
		return "", false, err
	}
	room := make([]byte, needed)
	_, err = own.Get(h, func(p *T) (int, error) { return get(p, &room[0], needed) })
	return string(room[:needed-1]), err == nil, err
}

// Path is where a file of the checkpoint is to be written, or lies.
func (c *Checkpoint) Path(name string) (string, error) {
	path, _, err := readText(c.Handle, func(p *raw.Checkpoint, buf *byte, cap int) (int, error) {
		return raw.CheckpointGetPath(p, name, buf, cap)
	})
	return path, err
}

// SetValue keeps a text with the checkpoint.
func (c *Checkpoint) SetValue(key, value string) error {
	return own.Do(c.Handle, func(p *raw.Checkpoint) error { return raw.CheckpointSetValue(p, key, value) })
}

// Value is a text that was kept with the checkpoint; ok is false where there is none.
func (c *Checkpoint) Value(key string) (value string, ok bool, err error) {
	return readText(c.Handle, func(p *raw.Checkpoint, buf *byte, cap int) (int, error) {
		return raw.CheckpointGetValue(p, key, buf, cap)
	})
}

// Publish completes the checkpoint, and keeps the last so many; 0: all. [collective: world]
func (c *Checkpoint) Publish(keepLast int) error {
	return own.Do(c.Handle, func(p *raw.Checkpoint) error { return raw.CheckpointPublish(p, raw.Int32(keepLast)) })
}

// PublishAsync does the same in the background, while the program goes on. [collective: world]
func (c *Checkpoint) PublishAsync(keepLast int) error {
	return own.Do(c.Handle, func(p *raw.Checkpoint) error { return raw.CheckpointPublishAsync(p, raw.Int32(keepLast)) })
}

// Wait waits until PublishAsync has ended, and fails as it did. A negative timeout has no end; after
// Timeout it goes on.
func (c *Checkpoint) Wait(timeout time.Duration) error {
	return own.Do(c.Handle, func(p *raw.Checkpoint) error {
		return raw.CheckpointWait(p, milliseconds(timeout))
	})
}

// Done is whether PublishAsync has ended, well or not.
func (c *Checkpoint) Done() (bool, error) {
	done, err := own.Get(c.Handle, raw.CheckpointTest)
	return done != 0, err
}

// RestoreRandomState has the context's random bits continue where those of the checkpoint's writer did.
func (c *Checkpoint) RestoreRandomState() error {
	return own.Do(c.Handle, raw.CheckpointRestoreRandomState)
}
