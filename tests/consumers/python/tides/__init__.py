"""Fits the tides of a harbour to what its gauge has measured."""
