"""The reference decoder: on a CUDA device, on a CPU, as a torch prefill, and the float64 oracle of them all."""
