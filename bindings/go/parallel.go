package nxd

import (
	"libnxd.org/nxd/internal/own"
	"libnxd.org/nxd/raw"
)

// ParallelOptions are a layout of ranks. Zero sizes are 1; StructSize is set by the calls.
type ParallelOptions = raw.ParallelOptions

func sized(o *ParallelOptions) *ParallelOptions {
	if o == nil {
		o = &ParallelOptions{}
	}
	c := o.Sized()
	return &c
}

// list reads a list by the header's rule: a capacity that is too small gives the size alone.
func list[T any](read func(first *T, capacity int) (int, error)) ([]T, error) {
	n, err := read(nil, 0)
	if err != nil || n == 0 {
		return nil, err
	}
	items := make([]T, n)
	_, err = read(&items[0], n)
	return items, err
}

func ints(values []int32, err error) ([]int, error) {
	out := make([]int, len(values))
	for i, v := range values {
		out[i] = int(v)
	}
	return out, err
}

// LayoutGroups is the groups along an axis of a layout, each with its ranks; no ranks need to exist.
func LayoutGroups(o *ParallelOptions, worldSize int, axis Axis) ([][]int, error) {
	c := sized(o)
	n, err := raw.LayoutGetGroupCount(c, raw.Int32(worldSize), axis)
	if err != nil {
		return nil, err
	}
	groups := make([][]int, n)
	for i := range groups {
		groups[i], err = ints(list(func(ranks *int32, capacity int) (int, error) {
			return raw.LayoutGetGroup(c, raw.Int32(worldSize), axis, int32(i), ranks, capacity)
		}))
		if err != nil {
			return nil, err
		}
	}
	return groups, nil
}

// LayoutFind is the group of a rank in a layout, and the rank's place in it.
func LayoutFind(o *ParallelOptions, worldSize int, axis Axis, rank int) (group, place int, err error) {
	g, r, err := raw.LayoutFindRank(sized(o), raw.Int32(worldSize), axis, raw.Int32(rank))
	return int(g), int(r), err
}

// InitModelParallel lays out the world and makes its groups; nil: all ranks are data parallel.
// [collective: world]
func (c *Context) InitModelParallel(o *ParallelOptions) error {
	return own.Do(c.Handle, func(p *raw.Context) error { return raw.InitModelParallel(p, sized(o)) })
}

// DestroyModelParallel forgets the layout. Modules made under it keep their groups.
func (c *Context) DestroyModelParallel() error { return own.Do(c.Handle, raw.DestroyModelParallel) }

// ModelParallelInitialized tells whether there is a layout.
func (c *Context) ModelParallelInitialized() bool {
	is, _ := own.Get(c.Handle, func(p *raw.Context) (int32, error) {
		return raw.ModelParallelIsInitialized(p), nil
	})
	return is != 0
}

func (c *Context) onAxis(axis Axis, f func(*raw.Context, Axis) (int32, error)) (int, error) {
	return own.Int(c.Handle, func(p *raw.Context) (int32, error) { return f(p, axis) })
}

// ParallelSize is the number of ranks in this rank's group along an axis.
func (c *Context) ParallelSize(axis Axis) (int, error) { return c.onAxis(axis, raw.ParallelGetSize) }

// ParallelRank is this rank's place in its group along an axis.
func (c *Context) ParallelRank(axis Axis) (int, error) { return c.onAxis(axis, raw.ParallelGetRank) }

// ParallelSourceRank is the world rank of the first member of this rank's group along an axis.
func (c *Context) ParallelSourceRank(axis Axis) (int, error) {
	return c.onAxis(axis, raw.ParallelGetSourceRank)
}

// ParallelGroup is this rank's group along an axis, until the layout is destroyed.
func (c *Context) ParallelGroup(axis Axis) (*Group, error) {
	p, err := own.Get(c.Handle, func(p *raw.Context) (*raw.Group, error) {
		return raw.ParallelGetGroup(p, axis)
	})
	if err != nil {
		return nil, err
	}
	return &Group{own.Borrow(p, c)}, nil
}

// ParallelGroups is all groups along an axis, each with its world ranks.
func (c *Context) ParallelGroups(axis Axis) ([][]int, error) {
	var groups [][]int
	for i, n := 0, 1; i < n; i++ {
		ranks, err := ints(list(func(ranks *int32, capacity int) (int, error) {
			return own.Get(c.Handle, func(p *raw.Context) (int, error) {
				size, count, err := raw.ParallelGetGroupList(p, axis, int32(i), ranks, capacity)
				n = int(count)
				return size, err
			})
		}))
		if err != nil {
			return nil, err
		}
		groups = append(groups, ranks)
	}
	return groups, nil
}

// NextPipelineRank is the world rank of the next stage; the last stage's next is the first.
func (c *Context) NextPipelineRank() (int, error) {
	return own.Int(c.Handle, raw.ParallelGetPipelineNextRank)
}

// PreviousPipelineRank is the world rank of the stage before.
func (c *Context) PreviousPipelineRank() (int, error) {
	return own.Int(c.Handle, raw.ParallelGetPipelinePreviousRank)
}
