"""The microbatches that PyTorch and libnxd train on, and the optimizer's numbers."""
import numpy

STEPS, UNITS, RATE, MOMENTUM = 3, 4, 0.1, 0.9


def of(seed, step, unit, sizes):
    """Ids and labels."""
    r = numpy.random.default_rng([seed, step, unit])
    shape = (2, sizes["length"])
    return r.integers(0, sizes["vocabulary"], shape), r.integers(0, sizes["vocabulary"], shape)
