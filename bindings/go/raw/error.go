package raw

/*
#include "cause.h"
#include "nxdgo.h"

static inline uintptr_t nxdgo_cause_function(void) { return (uintptr_t)nxdgo_cause_of_thread; }
*/
import "C"

import (
	"errors"
	"fmt"
	"runtime/cgo"
	"runtime/debug"
	"strings"
	"unsafe"
)

// Error is a failed call: its status, the library's message and what the call was doing.
type Error struct {
	Status     Status
	Message    string
	RootRank   int    // world rank that was lost or disagreed; -1 when none is to blame
	Group      string // "" when no group was involved
	Operation  string // such as "all_reduce"; "" when no collective was involved
	Sequence   uint64 // number of the collective in its group
	Step       int64  // of the training step whose end failed; -1 when none did
	Parameters ParameterState
	Cause      error // what a callback of the program's returned or panicked with; nil when none did
}

// Error is the status and the library's message.
func (e *Error) Error() string {
	text := fmt.Sprintf("%s: %s", e.Status, e.Message)
	// The library repeats as much of a callback's error as it has room for.
	if e.Cause != nil && !strings.Contains(e.Message, words(e.Cause)) {
		return fmt.Sprintf("%s: %v", text, e.Cause)
	}
	if p, ok := e.Cause.(*PanicError); ok {
		return fmt.Sprintf("%s\n%s", text, p.Stack)
	}
	return text
}

// The text that the library is told of a callback's error.
func words(err error) string {
	switch e := err.(type) {
	case *Error:
		return e.Message
	case *PanicError:
		return fmt.Sprintf("panic: %v", e.Value)
	}
	return err.Error()
}

// Unwrap gives the error of the callback that made the call fail.
func (e *Error) Unwrap() error { return e.Cause }

// Is makes errors.Is(err, status) true for the error's own status.
func (e *Error) Is(target error) bool {
	status, ok := target.(Status)
	return ok && status == e.Status
}

// String is the status's name, such as "INVALID_ARGUMENT".
func (s Status) String() string { return StatusString(s) }

// Error makes a status usable with errors.Is.
func (s Status) Error() string { return s.String() }

// TakeError makes an error of what a shim returned, and frees that; nil for a call that went well.
func TakeError(record unsafe.Pointer) error {
	if record == nil {
		return nil
	}
	c := (*C.nxdgo_error_t)(record)
	defer C.free(record)
	var cause error
	if c.cause != 0 {
		h := cgo.Handle(c.cause)
		cause = h.Value().(error)
		h.Delete()
	}
	if c.status == 0 {
		return nil
	}
	return &Error{
		Status:     Status(c.status),
		Message:    C.GoString(c.message),
		RootRank:   int(c.root_rank),
		Group:      C.GoString(c.group),
		Operation:  C.GoString(c.operation),
		Sequence:   uint64(c.sequence),
		Step:       int64(c.step),
		Parameters: ParameterState(c.parameters),
		Cause:      cause,
	}
}

// Invalid is the error of an argument that Go refuses before the library sees it.
func Invalid(format string, arguments ...any) *Error {
	return &Error{Status: ErrorInvalidArgument, Message: fmt.Sprintf(format, arguments...), RootRank: -1,
		Step: -1}
}

// Fail is for callbacks, on the thread they are called on: it leaves err for the call that they are
// made from, and gives the status to return, which is err's own when it comes from the library.
func Fail(err error) Status {
	if rest := C.nxdgo_set_cause(C.uintptr_t(cgo.NewHandle(err))); rest != 0 {
		cgo.Handle(rest).Delete()
	}
	return tell(err)
}

// tell gives the library the words of a callback's error, and gives its status.
func tell(err error) Status {
	status := ErrorUser
	var e *Error
	var s Status
	switch {
	case errors.As(err, &e):
		status = e.Status
	case errors.As(err, &s):
		status = s
	}
	if status >= OK { // of an error that a program made: the library would take it for none
		status = ErrorUser
	}
	message := C.CString(strings.ReplaceAll(words(err), "\x00", ""))
	defer C.free(unsafe.Pointer(message))
	C.nxd_set_last_error(C.nxd_status_t(status), message)
	return status
}

// CauseFunction is where other packages' shims find the error that Fail left.
func CauseFunction() uintptr { return uintptr(C.nxdgo_cause_function()) }

// PanicError is a panic of a callback, which ends the call that it was made from with an error.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.Value, e.Stack) }

// Guard runs a callback of the program's: its error, or its panic, is left for the call it is made from.
func Guard(f func() error) Status { return guard(f, Fail) }

// GuardApart is Guard on a thread of the library's, which no call of the program's waits on: the error would
// be taken for that of a later callback's call there.
func GuardApart(f func() error) Status { return guard(f, tell) }

func guard(f func() error, fail func(error) Status) (status Status) {
	defer func() {
		if p := recover(); p != nil {
			status = fail(&PanicError{Value: p, Stack: debug.Stack()})
		}
	}()
	if err := f(); err != nil {
		return fail(err)
	}
	return OK
}
