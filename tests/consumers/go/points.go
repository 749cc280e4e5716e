package main

import "math"

const (
	points   = 128
	features = 4
)

// readPoints gives a rank's share of the curve y = sin(3x), with powers of x as features.
func readPoints(rank, size int) (x, y []float32) {
	for i := rank; i < points; i += size {
		at := 2*float64(i)/points - 1
		for power := 1; power <= features; power++ {
			x = append(x, float32(math.Pow(at, float64(power))))
		}
		y = append(y, float32(math.Sin(3*at)))
	}
	return x, y
}
