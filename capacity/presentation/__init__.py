"""Presentation: a sheet of typed cells for each result, its views, and plots; units are written here only."""
