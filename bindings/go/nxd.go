// Package nxd is libnxd_core in Go: process groups and collectives over slices, data parallelism and
// ZeRO-1 over arrays of the program's own, pipelines of its own stages. Package engine adds tensors,
// layers, models and their training; programs without it do not load libtorch.
//
// Objects have Close; those that are forgotten are closed by the garbage collector, which does not know
// how much memory they hold. Objects keep alive what they use, so the order of Close is free. Only
// Context.Finalize leaves the world in agreement with the other ranks: no finalizer ever does.
//
// One object is used by one goroutine at a time. A goroutine that computes, in training above all, calls
// runtime.LockOSThread first: kernels keep a team of threads for each thread that calls.
//
// Errors are *Error; errors.Is(err, nxd.PeerLost) asks for a status, and errors.As gives the rank, the
// group and the operation. Callbacks return errors, which come out of the call they were made from; so
// do panics, with their stack.
package nxd

import "libnxd.org/nxd/raw"

type (
	// Error is a failed call: status, message, and what the call was doing.
	Error = raw.Error
	// PanicError is a callback's panic, wrapped by the error of the call it was made from.
	PanicError = raw.PanicError
	// Status is the outcome of a call; each is a target for errors.Is.
	Status = raw.Status
	// ParameterState is what a failed step has left of this rank's parameters.
	ParameterState = raw.ParameterState
	// DType is the type of elements.
	DType = raw.DType
	// Reduce is a reduction.
	Reduce = raw.Reduce
	// Transport is what carries the data of a group.
	Transport = raw.Transport
	// Axis is an axis of the rank layout.
	Axis = raw.Axis
	// Platform is hardware whose rank order to follow.
	Platform = raw.Platform
	// Device is a kind of device.
	Device = raw.Device
	// Phase is what the library spends time on.
	Phase = raw.Phase
)

// Statuses, for errors.Is.
const (
	InvalidArgument = raw.ErrorInvalidArgument
	InvalidState    = raw.ErrorInvalidState
	Unsupported     = raw.ErrorUnsupported
	OutOfMemory     = raw.ErrorOutOfMemory
	Timeout         = raw.ErrorTimeout
	PeerLost        = raw.ErrorPeerLost
	Aborted         = raw.ErrorAborted
	IO              = raw.ErrorIO
	Corrupt         = raw.ErrorCorrupt
	Internal        = raw.ErrorInternal
	ABIMismatch     = raw.ErrorABIMismatch
	User            = raw.ErrorUser
)

// States in which a step can leave parameters.
const (
	ParameterStateNone    = raw.ParameterStateNone
	ParameterStateOld     = raw.ParameterStateOld
	ParameterStateNew     = raw.ParameterStateNew
	ParameterStatePartial = raw.ParameterStatePartial
)

// Element types.
const (
	F32  = raw.DTypeF32
	F64  = raw.DTypeF64
	BF16 = raw.DTypeBF16
	F16  = raw.DTypeF16
	I32  = raw.DTypeI32
	I64  = raw.DTypeI64
	U8   = raw.DTypeU8
	I8   = raw.DTypeI8
	I16  = raw.DTypeI16
	Bool = raw.DTypeBool
)

// Reductions.
const (
	Sum  = raw.ReduceSum
	Avg  = raw.ReduceAvg
	Max  = raw.ReduceMax
	Min  = raw.ReduceMin
	Prod = raw.ReduceProd
)

// Transports.
const (
	TransportAuto         = raw.TransportAuto
	TransportGloo         = raw.TransportGloo
	TransportSharedMemory = raw.TransportSharedMemory
	TransportHierarchical = raw.TransportHierarchical
)

// Axes of the rank layout.
const (
	AxisWorld       = raw.AxisWorld
	AxisTensor      = raw.AxisTensor
	AxisPipeline    = raw.AxisPipeline
	AxisData        = raw.AxisData
	AxisContext     = raw.AxisContext
	AxisExpertModel = raw.AxisExpertModel
	AxisExpertData  = raw.AxisExpertData
)

// Rank orders.
const (
	PlatformNeutral = raw.PlatformNeutral
	PlatformTRN1    = raw.PlatformTRN1
	PlatformTRN2    = raw.PlatformTRN2
)

// Devices.
const (
	CPU    = raw.DeviceCPU
	Neuron = raw.DeviceNeuron
	Meta   = raw.DeviceMeta
	XLA    = raw.DeviceXla
)

// Version is the release of the loaded library, such as "0.1.0".
func Version() string { return raw.Version() }

// BuildInfo is the versions of the library and what it is made with, as JSON.
func BuildInfo() string { return raw.BuildInfo() }

// EnvironmentTable is every environment variable that the library reads, one a line.
func EnvironmentTable() string { return raw.EnvironmentTable() }

// GetDevice is the device this process trains on: the CPU with NXD_CPU_MODE=1.
func GetDevice() (Device, error) { return raw.GetDevice() }

func flag(on bool) int32 {
	if on {
		return 1
	}
	return 0
}
