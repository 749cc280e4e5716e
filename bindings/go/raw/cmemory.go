package raw

// #include <stdlib.h>
import "C"

import (
	"strings"
	"unsafe"
)

// CString is text with a terminating 0, in Go memory: for the duration of a call. name is the
// argument's, for the error when text contains a 0.
func CString(name, text string) (*byte, error) {
	if strings.IndexByte(text, 0) >= 0 {
		return nil, Invalid("%s: expected text without a 0 byte, got %q", name, text)
	}
	b := make([]byte, len(text)+1)
	copy(b, text)
	return &b[0], nil
}

// FirstError is the first of some errors that is one. A collective call is made with NULL in the place of a bad
// text: it fails on all ranks then, and on this one with the text's own error.
func FirstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Scratch is C memory for the structs, lists and strings of one call.
type Scratch struct{ blocks []unsafe.Pointer }

// Alloc gives size zeroed bytes, until Free.
func (s *Scratch) Alloc(size uintptr) unsafe.Pointer {
	p := C.calloc(1, C.size_t(size+1))
	s.blocks = append(s.blocks, p)
	return p
}

// String copies text; "" is NULL, which options take for their default.
func (s *Scratch) String(name, text string) (*byte, error) {
	if text == "" {
		return nil, nil
	}
	b, err := CString(name, text)
	if err != nil {
		return nil, err
	}
	p := s.Alloc(uintptr(len(text) + 1))
	copy(unsafe.Slice((*byte)(p), len(text)+1), unsafe.Slice(b, len(text)+1))
	return (*byte)(p), nil
}

// Strings copies a list with a terminating NULL; an empty list is NULL. Beside an error the list has NULL in
// the place of the first bad text.
func (s *Scratch) Strings(name string, texts []string) (**byte, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	list := unsafe.Slice((**byte)(s.Alloc(uintptr(len(texts)+1)*unsafe.Sizeof(uintptr(0)))), len(texts)+1)
	for i, text := range texts {
		b, err := CString(name, text)
		if err != nil {
			return &list[0], err
		}
		p := (*byte)(s.Alloc(uintptr(len(text) + 1)))
		copy(unsafe.Slice(p, len(text)+1), unsafe.Slice(b, len(text)+1))
		list[i] = p
	}
	return &list[0], nil
}

// Free ends the memory's use.
func (s *Scratch) Free() {
	for _, p := range s.blocks {
		C.free(p)
	}
	s.blocks = nil
}

// Copied puts values into C memory; nil when there are none.
func Copied[T any](s *Scratch, values []T) *T {
	if len(values) == 0 {
		return nil
	}
	var one T
	list := unsafe.Slice((*T)(s.Alloc(uintptr(len(values))*unsafe.Sizeof(one))), len(values))
	copy(list, values)
	return &list[0]
}
