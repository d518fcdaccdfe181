"""The reference decoder and its measured runs: what the estimates are checked against."""
