package engine

import (
	"runtime"
	"sort"

	"libnxd.org/nxd"
	"libnxd.org/nxd/internal/own"
	"libnxd.org/nxd/raw"
	"libnxd.org/nxd/rawengine"
)

// SaveOptions are texts that a file of tensors has beside them, and which ranks write it: by default the first
// of the world.
type SaveOptions struct {
	Texts    map[string]string
	EachRank bool // each at a path of its own
	EachHost bool // the first rank of each host
}

type save = func(*raw.Context, string, []string, **raw.Tensor, int, *raw.SaveOptions) error

func saveWith(f save, c *nxd.Context, path string, tensors map[string]*Tensor, o SaveOptions) error {
	defer runtime.KeepAlive(tensors)
	var scratch raw.Scratch
	defer scratch.Free()
	names, keys := sorted(tensors), sorted(o.Texts)
	list, values := make([]*Tensor, len(names)), make([]string, len(keys))
	for i, name := range names {
		list[i] = tensors[name]
	}
	for i, key := range keys {
		values[i] = o.Texts[key]
	}
	options := raw.SaveOptions{EachHost: flag(o.EachHost), NumValues: uint64(len(keys))}.Sized()
	if o.EachRank {
		options.MasterOnly = Off
	}
	var badKeys, badValues error
	options.Keys, badKeys = scratch.Strings("keys", keys)
	options.Values, badValues = scratch.Strings("values", values)
	given, badTensors := pointers(list)
	defer runtime.KeepAlive(list)
	// Also with bad arguments, so that the peers are told.
	failed := own.Do(c.Handle, func(p *raw.Context) error {
		return f(p, path, names, first(given), len(list), &options)
	})
	return raw.FirstError(badKeys, badValues, badTensors, failed)
}

func sorted[T any](m map[string]T) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}

// Save writes tensors and texts as one safetensors file, once they are all in the host's memory.
// [collective: world]
func Save(c *nxd.Context, path string, tensors map[string]*Tensor, o SaveOptions) error {
	return saveWith(rawengine.Save, c, path, tensors, o)
}

// SerializationSave writes the same file tensor by tensor: one of them is copied to the host's memory at a
// time. [collective: world]
func SerializationSave(c *nxd.Context, path string, tensors map[string]*Tensor, o SaveOptions) error {
	return saveWith(rawengine.SerializationSave, c, path, tensors, o)
}

// Serialization is an open file of tensors, which are read when they are asked for, and texts.
type Serialization struct{ own.Handle[raw.Serialization] }

// SerializationLoad opens a file of Save, SerializationSave, or any other safetensors.
func SerializationLoad(path string) (*Serialization, error) {
	p, err := rawengine.SerializationLoad(path)
	if err != nil {
		return nil, err
	}
	return &Serialization{own.New(p, rawengine.SerializationDestroy)}, nil
}

// Names are those of the tensors, in alphabetical order.
func (s *Serialization) Names() ([]string, error) {
	return names(s.Handle, rawengine.SerializationGetCount, rawengine.SerializationGetName)
}

// Read reads a tensor, to the CPU or the recorded device.
func (s *Serialization) Read(name string, device nxd.Device) (*Tensor, error) {
	return newTensor(own.Get(s.Handle, func(p *raw.Serialization) (*raw.Tensor, error) {
		return rawengine.SerializationCreateTensor(p, name, device)
	}))
}

// Texts are the file's texts by key.
func (s *Serialization) Texts() (map[string]string, error) {
	count, err := own.Get(s.Handle, rawengine.SerializationGetValueCount)
	texts := map[string]string{}
	for i := 0; i < count && err == nil; i++ {
		err = own.Do(s.Handle, func(p *raw.Serialization) error {
			key, value, err := rawengine.SerializationGetValue(p, i)
			texts[key] = value
			return err
		})
	}
	return texts, err
}
