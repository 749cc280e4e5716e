"""How far a result of floats may be from the exact one: the unit roundoff of a dtype, and of the dtype it is summed in,
times the magnitudes that were added (Higham, Accuracy and Stability of Numerical Algorithms, chapters 3 and 4)."""
import numpy as np

from memory import round_to

ROUNDOFF = {"f64": 2.0 ** -53, "f32": 2.0 ** -24, "f16": 2.0 ** -11, "bf16": 2.0 ** -8}
# Below these a result may be 0.
SMALLEST = {"f64": 2.0 ** -1022, "f32": 2.0 ** -126, "f16": 2.0 ** -24, "bf16": 2.0 ** -126}


def wide(dtype):
    """The dtype that sums are formed in."""
    return "f64" if dtype == "f64" else "f32"


def roundoff(dtype):
    """The roundoff of sums."""
    return ROUNDOFF[wide(dtype)]


class Result:
    """An expected array: float64 values, and how far each may be off. Exact ones are rounded to the dtype once."""

    def __init__(self, values, error, dtype, exact=False):
        values = np.asarray(values, np.float64)
        if exact:
            self.values, self.bound = round_to(values, dtype), np.zeros(values.shape)
            return
        # The reference rounds in f64, too.
        times = 3 if dtype == "f64" else 1
        error = np.multiply(error, times)
        error = np.broadcast_to(np.asarray(error, np.float64), values.shape)
        with np.errstate(invalid="ignore"):
            self.bound = error + times * ROUNDOFF[dtype] * (np.abs(values) + error) + 4 * SMALLEST[dtype]
        self.values = values

    def differs(self, got):
        """Where got is too far off; None where it is not."""
        if got.shape != self.values.shape:
            return f"has the shape {got.shape} for {self.values.shape}"
        want = self.values
        with np.errstate(invalid="ignore"):
            good = np.where(np.isfinite(want), np.abs(got - want) <= self.bound,
                            (got == want) | (np.isnan(got) & np.isnan(want)))
        if good.all():
            return None
        at = tuple(int(k) for k in np.argwhere(~good)[0]) if want.ndim else ()
        return (f"differs: element {list(at)} is {got[at]:.9g} for {want[at]:.9g}, which may be off by "
                f"{self.bound[at]:.3g}; {int((~good).sum())} of {good.size} elements")


class Same:
    """An expected array of any dtype, bit for bit but for the sign of 0."""

    def __init__(self, values):
        self.values = np.asarray(values)

    def differs(self, got):
        if got.shape == self.values.shape and np.array_equal(got, self.values, equal_nan=got.dtype.kind == "f"):
            return None
        return f"is {got.flatten()[:8].tolist()} for {self.values.flatten()[:8].tolist()}"


def product(a, b, terms, dtype, exact=False):
    """The error of a sum of so many products of a and b, given as their product of magnitudes."""
    return np.zeros(a.shape[:-1] + b.shape[1:]) if exact else (terms + 4) * roundoff(dtype) * (np.abs(a) @ np.abs(b))
