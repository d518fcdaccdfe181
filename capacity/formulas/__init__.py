"""Closed forms of numbers and arrays: they read no spec, no file and no clock."""
