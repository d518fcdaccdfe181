"""A name or a path in, a spec out: parts, models, world models, cases, calibrations, measured runs."""
