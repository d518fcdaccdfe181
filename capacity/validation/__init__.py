"""Predictions beside measurements, and fits of calibrations."""
