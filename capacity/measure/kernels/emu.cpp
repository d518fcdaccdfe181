// The kernels as a shared library of the host: a table of names, and a launch with the argument convention of
// cuLaunchKernel (an array of pointers to the arguments), so that the packing of arguments is tested as well.
// EMU_UNIT is the kernel file, EMU_KERNELS(f) lists its kernels.
#include "cpu_shim.h"

#include "numbers.cuh"

#include EMU_UNIT

#include <utility>

template <auto kernel>
struct Entry;

template <class... A, void (*kernel)(A...)>
struct Entry<kernel> {
  template <size_t... I>
  static void call(void** parameters, std::index_sequence<I...>) {
    kernel(*(A*)parameters[I]...);
  }
  static void run(void** parameters) { call(parameters, std::index_sequence_for<A...>{}); }
};

#define EXPORT extern "C" __attribute__((visibility("default")))

// Returns null, or what went wrong.
EXPORT const char* emu_launch(const char* name, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                              unsigned bz, unsigned shared_bytes, void** parameters) {
  const dim3 grid = {gx, gy, gz}, block = {bx, by, bz};
#define TRY(kernel) \
  if (!strcmp(name, #kernel)) return emu::launch(grid, block, shared_bytes, Entry<kernel>::run, parameters);
  EMU_KERNELS(TRY)
  return "no kernel of that name";
}

EXPORT void emu_schedule(int schedule) { emu::schedule = schedule; }

// Bytes that loads of weights, and of keys and values, have read since the library was opened.
EXPORT uint64_t emu_weight_bytes() { return emu::weight_bytes; }
EXPORT uint64_t emu_cache_bytes() { return emu::cache_bytes; }
