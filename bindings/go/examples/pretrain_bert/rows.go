package main

import (
	"libnxd.org/nxd/engine"
	"libnxd.org/nxd/examples/internal/common"
)

// A row is [CLS] first [SEP] second [SEP]. In half of the rows the second part goes on where the first one
// ends, in the others it is from anywhere; the model tells which. It also guesses 15 % of the words: of
// these 80 % are hidden by [MASK], 10 % are other words, 10 % stay as they are.
type row struct {
	ids, labels, types []int64
	next               int64 // 0 where the second part follows the first, 1 where it does not
}

// specials is how many special ids a row has: [CLS] and two [SEP].
const specials = 3

// draws are those of one row, which hang on the row's number in all of the training alone: any number of
// copies sees the same rows.
type draws struct{ seed, next uint64 }

func drawsOf(seed uint64, row int) *draws {
	return &draws{seed, uint64(row) << 32} // far more than a row needs
}

func (d *draws) below(bound int) int {
	bits := common.RandomBits(d.seed, d.next)
	d.next++
	return int(bits % uint64(bound))
}

// pair takes both parts of a row.
func (a *arguments) pair(words []int64, d *draws) row {
	room := a.sequence - specials
	first := 1 + d.below(room-1)
	second := room - first
	at := d.below(len(words) - room + 1)
	r := row{next: int64(d.below(2))}
	from := at + first
	if r.next == 1 {
		from = d.below(len(words) - second + 1)
	}
	r.ids = append(r.ids, int64(a.cls))
	r.ids = append(r.ids, words[at:at+first]...)
	r.ids = append(r.ids, int64(a.sep))
	r.ids = append(r.ids, words[from:from+second]...)
	r.ids = append(r.ids, int64(a.sep))
	r.types, r.labels = make([]int64, a.sequence), make([]int64, a.sequence)
	for i := range r.types {
		r.labels[i] = -100
		if i > 1+first {
			r.types[i] = 1
		}
	}
	return r
}

// hide hides words, whose labels they become. Each row has as many, so that the mean over copies of their
// mean losses is the mean over all hidden words.
func (a *arguments) hide(r *row, d *draws) {
	for left := (a.sequence*15 + 99) / 100; left > 0; {
		at := 1 + d.below(a.sequence-2)
		isSeparator := r.types[at] != r.types[at+1]
		if r.labels[at] != -100 || isSeparator {
			continue
		}
		r.labels[at] = r.ids[at]
		if kind := d.below(10); kind < 8 {
			r.ids[at] = int64(a.mask)
		} else if kind == 8 {
			r.ids[at] = int64(d.below(a.vocabulary))
		}
		left--
	}
}

// makeBatch is the model's inputs: ids, labels, no attention mask, as every row is full, types, next.
func (a *arguments) makeBatch(words []int64, step int, copies common.Copies) ([]*engine.Tensor, error) {
	rows, sequence := a.batch/copies.Size, int64(a.sequence)
	var batch row
	var next []int64
	for i := 0; i < rows; i++ {
		d := drawsOf(a.seed, step*a.batch+copies.Rank*rows+i)
		r := a.pair(words, d)
		a.hide(&r, d)
		batch.ids = append(batch.ids, r.ids...)
		batch.labels = append(batch.labels, r.labels...)
		batch.types = append(batch.types, r.types...)
		next = append(next, r.next)
	}
	inputs := make([]*engine.Tensor, 5)
	var err error
	for i, values := range [][]int64{batch.ids, batch.labels, nil, batch.types} {
		if values != nil && err == nil {
			inputs[i], err = engine.FromSlice(values, int64(rows), sequence)
		}
	}
	if err == nil {
		inputs[4], err = engine.FromSlice(next, int64(rows))
	}
	return inputs, err
}
