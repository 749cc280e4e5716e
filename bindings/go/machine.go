package nxd

import (
	"libnxd.org/nxd/raw"
)

// MemoryStats are figures of the pool that tensors are drawn from, and of the contexts' arenas.
type MemoryStats = raw.MemoryStats

// ReadMemoryStats reads the pool's figures.
func ReadMemoryStats() (MemoryStats, error) {
	s := MemoryStats{}.Sized()
	err := raw.MemoryGetStats(&s)
	return s, err
}

// SetMemoryCap bounds what the pool hands out; 0: no cap.
func SetMemoryCap(bytes uint64) error { return raw.MemorySetCap(bytes) }

// TrimMemory gives the pool's unused memory back to the system.
func TrimMemory() error { return raw.MemoryTrim() }

// MeasureGEMMPeak is the machine's floating-point operations per second in square matrix products of
// size n; 0: 2048.
func MeasureGEMMPeak(dtype DType, n int) (float64, error) {
	return raw.MeasureGemmPeak(dtype, raw.Int32(n))
}

// ReleaseThreads ends the threads that kernels keep for the calling thread.
func ReleaseThreads() error { return raw.ReleaseThreads() }

// PhaseStats are what training has spent on one phase.
type PhaseStats struct {
	Name           string
	Seconds        float64 // of all threads that called kernels, added up
	Operations     float64 // floating-point operations
	Calls          uint64
	WaitingSeconds float64 // the part of Seconds in which peers had not yet come
}

// StartProfile clears the phases and counts from now on.
func StartProfile() error { return raw.ProfileStart() }

// StopProfile ends counting.
func StopProfile() error { return raw.ProfileStop() }

// ReadProfile reads all phases, while counting or later.
func ReadProfile() ([]PhaseStats, error) {
	var phases []PhaseStats
	for p := raw.PhaseGemmForward; p <= raw.PhaseCommunication; p++ {
		s := raw.PhaseStats{}.Sized()
		if err := raw.ProfileGetPhase(p, &s); err != nil {
			return nil, err
		}
		phases = append(phases, PhaseStats{goString(s.Name), s.Seconds, s.Operations, s.Calls, s.WaitingSeconds})
	}
	return phases, nil
}
