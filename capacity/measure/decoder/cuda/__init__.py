"""The decode step on a CUDA device or its emulation: kernel sources, compilers, launches, buffers and the step."""
