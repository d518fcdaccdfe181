"""Predictions compared with measurements, and fits of calibrations."""
