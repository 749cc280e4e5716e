"""Batches that are drawn by an event's seed."""
import numpy

VOCABULARY, IGNORED = 11, -100
# A gradient that is 0 by the model, as a bias' in front of a norm, is the rounding of its terms. By the usual epsilon
# AdamW makes visible steps of that.
ADAMW_EPS = 1e-5


def batch(plan, event, rank, first_label=0):
    """ids and labels of a data-parallel rank. The first label that counts is never ignored in a mean of microbatches."""
    g = numpy.random.default_rng([event["seed"], rank])
    rows, microbatches = event["rows"], plan["microbatches"]
    ids, labels = g.integers(0, VOCABULARY, (2, rows * microbatches, event["length"]))
    if event["ignored"] == "some":
        labels[g.random(labels.shape) < 0.4] = IGNORED
    if plan["loss"] == "MICROBATCHES":  # the mean over no token is none
        labels[:, first_label] = numpy.where(labels[:, first_label] < 0, 3, labels[:, first_label])
    elif event["ignored"] in ("microbatch", "all"):
        first = g.integers(0, microbatches) * rows
        labels[slice(first, first + rows) if event["ignored"] == "microbatch" else slice(None)] = IGNORED
    return ids, labels
