package engine

import (
	"runtime"
	"strings"

	"libnxd.org/nxd"
	"libnxd.org/nxd/internal/own"
	"libnxd.org/nxd/raw"
	"libnxd.org/nxd/rawengine"
)

// split takes an operator's name apart: "add.Tensor" is the overload Tensor of add.
func split(operator string) (name, overload string) {
	name, overload, _ = strings.Cut(operator, ".")
	return name, overload
}

// Call runs an operator of libtorch, such as "relu" or "add.Tensor", whose required arguments are all
// tensors, and gives its first result; nil if the operator leaves it out.
func Call(operator string, inputs ...*Tensor) (*Tensor, error) {
	name, overload := split(operator)
	return one(inputs, func(in **raw.Tensor, n int, out **raw.Tensor) error {
		return rawengine.OpCall(name, overload, in, n, out, 1)
	})
}

// Op is one call of an operator: arguments are set by name, then it runs.
type Op struct{ own.Handle[raw.Op] }

// NewOp looks up an operator, such as "sum.dim_IntList"; without an overload it is the one that has no
// name, or the only one.
func NewOp(operator string) (*Op, error) {
	name, overload := split(operator)
	p, err := rawengine.OpCreate(name, overload)
	if err != nil {
		return nil, err
	}
	return &Op{own.New(p, rawengine.OpDestroy)}, nil
}

// Schema is such as "aten::relu(Tensor self) -> Tensor".
func (o *Op) Schema() (string, error) { return own.Get(o.Handle, rawengine.OpGetSchema) }

// Set sets an argument: a *Tensor (nil: None), []*Tensor, int, int64, float64, bool, string, DType,
// []int64 or []float64.
func (o *Op) Set(name string, value any) error {
	return own.Do(o.Handle, func(p *raw.Op) error {
		defer runtime.KeepAlive(value)
		switch v := value.(type) {
		case nil:
			return rawengine.OpSetTensor(p, name, nil)
		case *Tensor:
			if v == nil {
				return rawengine.OpSetTensor(p, name, nil)
			}
			given, err := v.Given(name)
			if err != nil {
				return err
			}
			return rawengine.OpSetTensor(p, name, given)
		case []*Tensor:
			list, err := pointers(v)
			if err != nil {
				return err
			}
			return rawengine.OpSetTensors(p, name, first(list), len(list))
		case int:
			return rawengine.OpSetInt(p, name, int64(v))
		case int64:
			return rawengine.OpSetInt(p, name, v)
		case float64:
			return rawengine.OpSetDouble(p, name, v)
		case bool:
			return rawengine.OpSetBool(p, name, flag(v))
		case string:
			return rawengine.OpSetString(p, name, v)
		case nxd.DType:
			return rawengine.OpSetDType(p, name, v)
		case []int64:
			return rawengine.OpSetInts(p, name, first(v), len(v))
		case []float64:
			return rawengine.OpSetDoubles(p, name, first(v), len(v))
		default:
			return raw.Invalid("%s: expected a tensor, a number, a text or a list, got %T", name, value)
		}
	})
}

// Run runs the operator; arguments not set take the schema's defaults. It may be called again.
func (o *Op) Run() error { return own.Do(o.Handle, rawengine.OpRun) }

// Results is the number of results of the last run.
func (o *Op) Results() (int, error) { return own.Get(o.Handle, rawengine.OpGetResultCount) }

// Tensor is a result of the last run; nil if the operator leaves it out, as an output_mask may ask.
func (o *Op) Tensor(index int) (*Tensor, error) {
	return newTensor(own.Get(o.Handle, func(p *raw.Op) (*raw.Tensor, error) {
		return rawengine.OpShareTensor(p, index)
	}))
}

// Float is a number or boolean result of the last run.
func (o *Op) Float(index int) (float64, error) {
	return own.Get(o.Handle, func(p *raw.Op) (float64, error) { return rawengine.OpGetDouble(p, index) })
}
