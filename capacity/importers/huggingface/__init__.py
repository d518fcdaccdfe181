"""Hugging Face configuration files as model specs."""
