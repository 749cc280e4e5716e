package raw

import "math"

// Int32 is a number as C takes it. One that does not fit is not cut to another but the least there is, which
// no argument of the library may be.
func Int32(n int) int32 {
	if n != int(int32(n)) {
		return math.MinInt32
	}
	return int32(n)
}
