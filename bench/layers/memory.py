"""Arrays as DLTensors in drawn places: any order of dimensions, gaps, strides of either sign, broadcast, offsets.

Each array lies in a block of its own, or shares one with others of the call. Bytes around and between its elements are
known, so that a call that writes beside its outputs, or to its inputs, is seen."""
import numpy as np
from numpy.lib.stride_tricks import as_strided

from nxd.raw import ffi

NUMPY = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": np.uint16, "i32": np.int32, "i64": np.int64,
         "u8": np.uint8, "i8": np.int8, "i16": np.int16, "bool": np.uint8}
CODE = {"f32": (2, 32), "f64": (2, 64), "f16": (2, 16), "bf16": (4, 16), "i32": (0, 32), "i64": (0, 64), "u8": (1, 8),
        "i8": (0, 8), "i16": (0, 16), "bool": (6, 8)}
FLOATS = ("f32", "f64", "bf16", "f16")
GUARD = 64


def round_to(values, dtype):
    """float64 values as the dtype rounds them, in float64; integers as they are."""
    if dtype not in FLOATS:
        return values
    return decode(encode(values, dtype), dtype)


def encode(values, dtype):
    if dtype != "bf16":
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(values).astype(NUMPY[dtype])
    with np.errstate(over="ignore", invalid="ignore"):
        bits = np.atleast_1d(np.asarray(values, np.float64).astype(np.float32)).view(np.uint32)
    nan = (bits & 0x7fffffff) > 0x7f800000
    rounded = (bits + (0x7fff + ((bits >> 16) & 1))) >> 16
    return np.where(nan, 0x7fc0, rounded).astype(np.uint16).reshape(np.shape(values))


def decode(stored, dtype):
    if dtype == "bf16":
        words = np.atleast_1d(stored).astype(np.uint32) << 16
        return words.view(np.float32).astype(np.float64).reshape(stored.shape)
    return stored.astype(np.float64) if dtype in FLOATS else stored.astype(np.int64)


def lay_together(r, one, other, written, other_written):
    """Gives two arrays the parts of one larger array, side by side or element by element; False where none has both."""
    dims = [d for d in range(len(one.shape)) if len(one.shape) == len(other.shape) and one.dtype == other.dtype and
            all(a == b for k, (a, b) in enumerate(zip(one.shape, other.shape)) if k != d)]
    if not dims or 0 in one.shape or 0 in other.shape:
        return False
    d = r.choice(dims)
    shape = list(one.shape)
    shape[d] += other.shape[d]
    whole = Array(shape, one.dtype)
    whole.lay(r, True)
    turns = one.shape == other.shape and r.random() < 0.5
    one.take(r, written, whole, d, 0, 2 if turns else 1)
    other.take(r, other_written, whole, d, 1 if turns else one.shape[d], 2 if turns else 1)
    return True


def beside(arrays):
    """Names of the arrays beside whose elements something was written: arrays are (name, array, may be written)."""
    wrong = []
    for name, array, _ in arrays:
        mine = np.zeros(array.block.shape, bool)
        for _, other, written in arrays:
            if written and other.block is array.block:
                other.mark(mine)
        if not np.array_equal(array.block.view(np.uint8).reshape(len(mine), -1)[~mine],
                              array.before.view(np.uint8).reshape(len(mine), -1)[~mine]):
            wrong.append(name)
    return wrong


class Array:
    """An array of a call: its values, or nothing but a shape and a dtype where it will be written."""

    def __init__(self, shape, dtype, values=None, constant=(), window=False):
        self.shape, self.dtype = tuple(shape), dtype
        self.values = None if values is None else np.asarray(values).reshape(self.shape)
        # Dimensions along which values are equal, and whether element (.., i, j) depends on i + j alone.
        self.constant, self.window = tuple(constant), window
        self.tensor = None

    def lay(self, r, written, plain=False):
        """Draws a place, and puts the values there. An array that is written has none, or some to be added to."""
        self.written = written
        element = np.dtype(NUMPY[self.dtype]).itemsize
        strides, self.explicit = self._strides(r, written, plain)
        low = sum((n - 1) * s for n, s in zip(self.shape, strides) if s < 0 and n > 1)
        high = sum((n - 1) * s for n, s in zip(self.shape, strides) if s > 0 and n > 1)
        if 0 in self.shape:
            low = high = 0
        skipped = 0 if plain else r.choice([0, 0, 1, 3])
        count = GUARD + skipped - low + high + 1 + GUARD
        self.first = GUARD + skipped - low
        self.strides = strides
        # Addresses of numpy's are aligned to 16 bytes.
        self.block = np.frombuffer(bytearray(r.randbytes(count * element)), NUMPY[self.dtype]).copy()
        self._fill()
        self._describe(r, element, plain)

    def take(self, r, written, whole, dim, start, step):
        """A part of another array's place."""
        self.written, self.block, self.explicit = written, whole.block, True
        self.strides = list(whole.strides)
        self.first = whole.first + start * whole.strides[dim]
        self.strides[dim] *= step
        self._fill()
        self._describe(r, self.block.itemsize, False)

    def _strides(self, r, written, plain):
        n = len(self.shape)
        order = list(range(n - 1, -1, -1))
        way = "dense" if plain else r.choice(["dense", "dense", "null", "permuted", "loose", "loose"])
        if way in ("permuted", "loose"):
            if r.random() < 0.5:
                r.shuffle(order)
        step = r.choice([1, 1, 1, 2, 3]) if way == "loose" else 1
        strides = [0] * n
        for d in order:
            strides[d] = step
            step *= max(self.shape[d], 1)
            if way == "loose":
                step += r.choice([0, 0, 0, 1, 5])
        if way in ("dense", "null"):
            return strides, way == "dense"
        overlaps = False
        if not written:
            for d in self.constant:
                if r.random() < 0.6:
                    strides[d] = 0
            if self.window and n >= 2 and r.random() < 0.7:
                overlaps = True
                strides[-1] = strides[-2] = 1
                step = self.shape[-1] + self.shape[-2]
                for d in range(n - 3, -1, -1):
                    strides[d] = step
                    step *= max(self.shape[d], 1)
        for d in range(n):
            if not overlaps and r.random() < 0.12:
                strides[d] = -strides[d]
            if self.shape[d] <= 1 and r.random() < 0.4:
                strides[d] = r.choice([0, -7, 1000003, 1])
        return strides, True

    def _elements(self, block):
        real = [s if n > 1 else 0 for n, s in zip(self.shape, self.strides)]
        if 0 in self.shape:
            return np.zeros(self.shape, block.dtype)
        return as_strided(block[self.first:], self.shape, [s * block.itemsize for s in real])

    def _fill(self):
        if self.values is not None and 0 not in self.shape:
            self._elements(self.block)[...] = encode(self.values, self.dtype)
        self.before = self.block.copy()

    def _describe(self, r, element, plain):
        t = self.tensor = ffi.new("DLTensor*")
        address = self.block.ctypes.data + self.first * element
        self.shape_c = ffi.new("int64_t[]", list(self.shape) or [0])
        self.strides_c = ffi.new("int64_t[]", list(self.strides) or [0])
        back = 0 if plain or self.first == 0 else r.choice([0, 0, self.first])
        t.data = ffi.cast("void*", address - back * element)
        t.byte_offset = back * element
        if 0 in self.shape and not plain and r.random() < 0.5:
            t.data, t.byte_offset = ffi.NULL, 0
        t.device.device_type, t.device.device_id = 1, 0
        t.ndim = len(self.shape)
        t.dtype.code, t.dtype.bits, t.dtype.lanes = *CODE[self.dtype], 1
        t.shape = self.shape_c if self.shape or r.random() < 0.5 else ffi.NULL
        t.strides = self.strides_c if self.explicit and self.shape else ffi.NULL

    def read(self):
        return decode(self._elements(self.block).copy(), self.dtype)

    def is_untouched(self):
        return self.block.tobytes() == self.before.tobytes()

    def mark(self, mine):
        """Sets what belongs to the elements."""
        if 0 not in self.shape:
            self._elements(mine)[...] = True

    def __str__(self):
        strides = list(self.strides) if self.tensor is not None and self.explicit else None
        return f"{self.dtype}{list(self.shape)}" + (f" strides {strides}" if strides else "")
