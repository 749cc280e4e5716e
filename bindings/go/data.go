package nxd

import (
	"strings"

	"libnxd.org/nxd/internal/own"
	"libnxd.org/nxd/raw"
)

// DataLoader gives batches from files of token ids or of text, read ahead by a thread: every sample once an
// epoch over all data-parallel ranks, in an order that no number of ranks changes.
type DataLoader struct{ own.Handle[raw.DataLoader] }

// DataLoaderOptions are the same on all ranks. StructSize is set by the calls, and HasSeed where Seed is not
// 0.
type DataLoaderOptions = raw.DataLoaderOptions

// TokenFormat is the elements of token files.
type TokenFormat = raw.TokenFormat

// The elements of token files; the zero value goes by the first path's ending.
const (
	TokensUint16 = raw.TokenFormatUint16
	TokensUint32 = raw.TokenFormatUint32
	TokensBytes  = raw.TokenFormatBytes
)

// NewDataLoader opens files, for batches of batchSize samples of sequenceLength tokens.
// [collective: world]
func NewDataLoader(c *Context, paths []string, batchSize, sequenceLength int, o DataLoaderOptions) (*DataLoader,
	error) {
	for _, path := range paths {
		if strings.ContainsRune(path, 0) {
			world, err := c.World()
			if err != nil {
				return nil, err
			}
			return nil, reject(c, world, raw.Invalid("paths: expected no NUL, got %q", path))
		}
	}
	o = o.Sized()
	p, err := own.Get(c.Handle, func(p *raw.Context) (*raw.DataLoader, error) {
		return raw.DataLoaderCreate(p, paths, len(paths), int64(batchSize), int64(sequenceLength), &o)
	})
	if err != nil {
		return nil, err
	}
	return &DataLoader{own.New(p, raw.DataLoaderDestroy)}, nil
}

// Next takes this rank's next batches, as many as fit exactly into ids; with NextLabels into labels too,
// which are as many, else they are nil.
func (l *DataLoader) Next(ids, labels []int64) error {
	if labels != nil && len(labels) != len(ids) {
		return raw.Invalid("labels: expected %d, got %d", len(ids), len(labels))
	}
	return own.Do(l.Handle, func(p *raw.DataLoader) error {
		return raw.DataLoaderNext(p, first(ids), first(labels), len(ids))
	})
}

// NumSamples is the samples of an epoch, over all ranks.
func (l *DataLoader) NumSamples() (int64, error) {
	return own.Get(l.Handle, raw.DataLoaderGetSampleCount)
}

// Position is the samples that all ranks together have taken: what a checkpoint needs to keep.
func (l *DataLoader) Position() (int64, error) { return own.Get(l.Handle, raw.DataLoaderGetPosition) }

// SetPosition goes on behind so many samples, whatever the ranks and batches were that took them.
func (l *DataLoader) SetPosition(position int64) error {
	return own.Do(l.Handle, func(p *raw.DataLoader) error { return raw.DataLoaderSetPosition(p, position) })
}
