"""Capacity planning for autoregressive inference, in closed form."""
