"""Single runs as records: conditions, timing, micro-benchmarks, memory probes, and the check against the oracle."""
