"""The reference decoder, its kernels and its measured runs: what the estimates are checked against."""
