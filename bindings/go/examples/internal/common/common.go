// Package common has the parts that train_lm, finetune_hf, pretrain_bert and lazy_ddp share: ranks, corpora,
// draws, a pass.
package common

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"

	"libnxd.org/nxd"
	"libnxd.org/nxd/engine"
)

// Main is a program of so many ranks: it starts them, unless this process is one, by a launcher too, or
// the only one, which runs.
func Main(name string, ranks int, run func(ctx context.Context) error) {
	runtime.LockOSThread() // kernels keep a team of threads for each thread that calls
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	started := false
	if ranks > 1 {
		started, err = spawn(ctx, ranks)
	}
	if !started {
		err = run(ctx)
	}
	if errors.Is(err, context.Canceled) {
		fmt.Fprintf(os.Stderr, "%s: interrupted\n", name)
		os.Exit(130)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// spawn starts so many ranks and waits for them; false where this process is one already.
func spawn(ctx context.Context, n int) (bool, error) {
	job, err := nxd.Spawn(&nxd.SpawnOptions{Processes: n})
	if errors.Is(err, nxd.InvalidState) {
		return false, nil
	}
	if err != nil {
		return true, err
	}
	defer job.Close()
	return true, job.Wait(ctx)
}

// MakeDirectory has rank 0 make a directory and its parents. Before a training: no result of one is lost to a
// bad path.
func MakeDirectory(c *nxd.Context, path string) error {
	rank, err := c.Rank()
	if err != nil || rank != 0 {
		return err
	}
	return os.MkdirAll(path, 0o777)
}

// Shown is whether a step's loss is printed: about 20 of them, the first and the last too.
func Shown(step, steps int) bool {
	return step == 0 || step+1 == steps || steps < 40 || (step+1)%(steps/20) == 0
}

// CheckRate rejects a rate that is not above 0: the library takes 0 for its own default.
func CheckRate(rate float64) error {
	if rate > 0 {
		return nil
	}
	return fmt.Errorf("-lr: expected a rate above 0, got %v", rate)
}

// CheckIdle rejects an option of names that is given beside one of others, where it has no effect.
func CheckIdle(names []string, others ...string) error {
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for _, name := range names {
		for _, other := range others {
			if given[name] && given[other] {
				return fmt.Errorf("-%s has no effect beside -%s", name, other)
			}
		}
	}
	return nil
}

// ReadIDs is the 16-bit ids of a file, the least byte first.
func ReadIDs(path string) ([]int64, error) {
	data, err := os.ReadFile(path)
	ids := make([]int64, len(data)/2)
	for i := range ids {
		ids[i] = int64(binary.LittleEndian.Uint16(data[2*i:]))
	}
	return ids, err
}

// ReadText is the bytes of a file as ids, or of the licence texts that Debian installs, in order of their
// names.
func ReadText(path string) ([]int64, error) {
	const licences = "/usr/share/common-licenses"
	if path != "" {
		return appendBytes(nil, path)
	}
	entries, err := os.ReadDir(licences)
	var ids []int64
	for _, e := range entries {
		// Links are other names of files that are there under their own.
		if e.Type().IsRegular() && err == nil {
			ids, err = appendBytes(ids, filepath.Join(licences, e.Name()))
		}
	}
	return ids, err
}

func appendBytes(ids []int64, path string) ([]int64, error) {
	data, err := os.ReadFile(path)
	for _, b := range data {
		ids = append(ids, int64(b))
	}
	return ids, err
}

// RandomBits is the draw-th value of a stream: the finaliser of SplitMix64 (Steele et al. 2014).
func RandomBits(seed, draw uint64) uint64 {
	z := (seed+1)*0xD1B54A32D192ED03 + (draw+1)*0x9E3779B97F4A7C15
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// Copies is the copies of a model, a group, and this rank's place among them.
type Copies struct {
	*nxd.Group
	Size, Rank int
}

// DataParallel is the copies of the model in a context that is laid out.
func DataParallel(c *nxd.Context) (copies Copies, err error) {
	if copies.Group, err = c.ParallelGroup(nxd.AxisData); err != nil {
		return copies, err
	}
	if copies.Size, err = copies.Group.Size(); err != nil {
		return copies, err
	}
	copies.Rank, err = copies.Group.Rank()
	return copies, err
}

// RandomWindows is a batch of ids; copies take different ones.
func (c Copies) RandomWindows(ids []int64, seed uint64, step, batch, length int) []int64 {
	windows := make([]int64, 0, batch*length)
	first := (step*c.Size + c.Rank) * batch
	for row := 0; row < batch; row++ {
		at := int(RandomBits(seed, uint64(first+row)) % uint64(len(ids)-length))
		windows = append(windows, ids[at:at+length]...)
	}
	return windows
}

// ForwardBackward adds to the gradients; the loss is the mean over all copies. autocast: products of
// matrices in BF16.
func (c Copies) ForwardBackward(model *engine.Module, autocast bool, inputs ...*engine.Tensor) (float64, error) {
	var loss *engine.Tensor
	err := Autocast(autocast, func() (err error) {
		loss, err = model.Forward(inputs...)
		return err
	})
	if err != nil {
		return 0, err
	}
	defer loss.Close()
	if err := loss.Backward(); err != nil {
		return 0, err
	}
	value, err := loss.Item()
	if err != nil {
		return 0, err
	}
	mean := []float64{value}
	err = nxd.AllReduce(c.Group, mean, mean, nxd.Avg)
	return mean[0], err
}

// Autocast calls f, with automatic casts to BF16 if they are on.
func Autocast(on bool, f func() error) error {
	if on {
		return engine.Autocast(nxd.BF16, f)
	}
	return f()
}
