package engine

import (
	"libnxd.org/nxd"
	"libnxd.org/nxd/internal/own"
	"libnxd.org/nxd/raw"
	"libnxd.org/nxd/rawengine"
)

// ModelOptions are a model's. StructSize is set by the calls.
type ModelOptions = raw.ModelOptions

// NewModel builds a model from a Hugging Face configuration.
func NewModel(c *nxd.Context, configJSON string, o ModelOptions) (*Module, error) {
	o = o.Sized()
	return newModule(c, func(p *raw.Context) (*raw.Module, error) {
		return rawengine.ModelCreate(p, configJSON, &o)
	})
}

// LoadModel builds a model from a directory's config.json and loads its safetensors.
func LoadModel(c *nxd.Context, directory string, o ModelOptions) (*Module, error) {
	o = o.Sized()
	return newModule(c, func(p *raw.Context) (*raw.Module, error) {
		return rawengine.ModelFromPretrained(p, directory, &o)
	})
}

// LoadTorchScript loads a module of a file of torch.jit.save, which is to be trusted: its forward is a
// program.
func LoadTorchScript(c *nxd.Context, path string) (*Module, error) {
	return newModule(c, func(p *raw.Context) (*raw.Module, error) {
		return rawengine.ModelFromTorchscript(p, path)
	})
}

// SaveTorchScript writes a module of such a file back, with its values as they are now.
func (m *Module) SaveTorchScript(path string) error {
	return own.Do(m.Handle, func(p *raw.Module) error { return rawengine.ModelSaveTorchscript(p, path) })
}

// StepFLOPs is the floating-point operations of one training step of a built-in model, all ranks
// together.
func (m *Module) StepFLOPs(batch, sequence int64) (float64, error) {
	return own.Get(m.Handle, func(p *raw.Module) (float64, error) {
		return rawengine.ModelGetStepFlops(p, batch, sequence)
	})
}
