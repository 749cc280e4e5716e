"""Numbers on the command lines of measurements, for argparse."""
import argparse


def positive(text):
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text}")
    return int(text)
