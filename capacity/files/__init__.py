"""Bounded readers of JSON, YAML and text, package data, and the one writer of whole files."""
