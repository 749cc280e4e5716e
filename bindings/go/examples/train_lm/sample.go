package main

import (
	"math"
	"strings"

	"libnxd.org/nxd"
	"libnxd.org/nxd/engine"
	"libnxd.org/nxd/examples/internal/common"
)

// write is text of the model's own: all ranks draw the same byte behind those that it sees.
func (t *trainer) write(prompt string) (string, error) {
	text := []byte(prompt)
	err := engine.NoGrad(func() error {
		for n := len(text); n < len(prompt)+t.sample; n++ {
			seen := text
			if n > t.sequence {
				seen = text[n-t.sequence:]
			}
			logits, err := t.lastLogits(seen)
			if err != nil {
				return err
			}
			u := float64(common.RandomBits(t.seed^0x5A17, uint64(n))>>11) * 0x1p-53
			text = append(text, drawByte(logits, 0.7, u))
		}
		return nil
	})
	shown := strings.Map(func(r rune) rune {
		if r != '\n' && (r < ' ' || r > '~') {
			return '.' // no text yet
		}
		return r
	}, string(runes(text)))
	return shown, err
}

func runes(text []byte) []rune {
	out := make([]rune, len(text))
	for i, b := range text {
		out[i] = rune(b)
	}
	return out
}

// lastLogits is those over the whole vocabulary behind the last of the bytes. Tokens after them are
// padding, which a causal model does not see.
func (t *trainer) lastLogits(seen []byte) (logits []float32, err error) {
	ids := make([]int64, t.sequence)
	for i, b := range seen {
		ids[i] = int64(b)
	}
	var open []*engine.Tensor
	defer func() { engine.CloseAll(open) }()
	kept := func(x *engine.Tensor, failed error) *engine.Tensor {
		if err == nil {
			err = failed
		}
		open = append(open, x)
		return x
	}
	all := kept(engine.FromSlice(ids, 1, int64(t.sequence)))
	last := kept(engine.FromSlice([]int64{int64(len(seen) - 1)}, 1))
	if err != nil {
		return nil, err
	}
	parts := kept(t.model.Forward(all))
	if err != nil {
		return nil, err
	}
	row := kept(call("index_select", map[string]any{"self": parts, "dim": 1, "index": last}))
	if err != nil {
		return nil, err
	}
	whole := kept(engine.GatherFromTensorRegion(t.c, row))
	if err != nil {
		return nil, err
	}
	wide := kept(call("to.dtype", map[string]any{"self": whole, "dtype": nxd.F32}))
	if err != nil {
		return nil, err
	}
	return engine.Data[float32](wide)
}

// call runs an operator with arguments by name.
func call(operator string, arguments map[string]any) (*engine.Tensor, error) {
	op, err := engine.NewOp(operator)
	if err != nil {
		return nil, err
	}
	defer op.Close()
	for name, value := range arguments {
		if err := op.Set(name, value); err != nil {
			return nil, err
		}
	}
	if err := op.Run(); err != nil {
		return nil, err
	}
	return op.Tensor(0)
}

func drawByte(logits []float32, temperature, u float64) byte {
	most := logits[0]
	for _, x := range logits {
		if x > most {
			most = x
		}
	}
	weights, sum := make([]float64, len(logits)), 0.0
	for i, x := range logits {
		weights[i] = math.Exp(float64(x-most) / temperature)
		sum += weights[i]
	}
	left := u * sum
	for i, weight := range weights {
		if left -= weight; left < 0 {
			return byte(i)
		}
	}
	return 255
}
