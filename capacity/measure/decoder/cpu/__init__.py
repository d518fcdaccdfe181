"""The decode step on a CPU: numpy arrays, and a library of C++ kernels that is built at first use."""
