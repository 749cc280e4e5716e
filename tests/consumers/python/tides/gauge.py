"""Measurements, and what they are to be explained by."""

import numpy as np

# Periods in hours: the moon's and the sun's half days, and their whole days.
PERIODS = np.array([12.42, 12.0, 24.07, 25.82])


def features(hours):
    """Level, and a cosine and a sine of each period."""
    angle = 2 * np.pi * hours[:, None] / PERIODS
    return np.concatenate([np.ones((len(hours), 1)), np.cos(angle), np.sin(angle)], 1)


def measurements(n=24 * 40):
    """Hours and heights in metres, with noise of a few centimetres."""
    noise = np.random.default_rng(7)
    hours = np.arange(n, dtype="f8")
    strength = np.array([1.9, 1.2, 0.4, 0.1, 0.05, -0.7, 0.2, 0.1, 0.02])
    return hours, features(hours) @ strength + noise.normal(0, 0.03, n)
