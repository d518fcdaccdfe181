"""Demand, engine and supply meet here: memory of a device, and the time of each phase."""
