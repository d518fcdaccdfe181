// Runs the header-free kernels on the host: one fiber per CUDA thread, several blocks side by side, all on one
// thread of the operating system. Shared memory is filled with NaN before a block starts, so a read before the
// write shows; barriers and shuffles wait for their partners, and when nothing can go on the launch fails.
//
// Schedules: 0 runs threads and blocks in order, one block at a time; 1 in reverse, two blocks at a time; 2 at
// random, up to eight blocks at a time, with warps that stall for a while. A correct kernel gives the same bits
// under all of them. What this cannot see: races that need a weaker memory order than the host's, bank conflicts,
// time.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define DYNAMIC_SHARED(name) float* const name = (float*)emu::now->block->shared

struct dim3 {
  unsigned x, y, z;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

namespace emu {

const unsigned LANES = 32;
const size_t STACK_BYTES = 128 * 1024;

struct Block;

struct Warp {
  uint64_t slot[2][LANES];  // what each lane hands over, for even and odd exchanges
  unsigned arrived[2], members, epoch, stall;
};

struct Fiber {
#if defined(__x86_64__)
  void* sp;
#else
  ucontext_t context;
#endif
  char* stack = nullptr;
  unsigned thread;
  dim3 index;
  bool done;
  Block* block;
};

struct Block {
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  char* shared = nullptr;
  dim3 index;
  unsigned live = 0, arrived = 0, epoch = 0;
};

inline Fiber* now;          // the fiber that runs
inline dim3 block_dim, grid_dim;
inline int schedule = 0;
inline const char* error;
inline uint64_t weight_bytes, cache_bytes;  // read since the library was opened
inline uint64_t progress;   // grows whenever some thread gets further
inline void (*body)(void**);
inline void** arguments;

// ---- switching ----

#if defined(__x86_64__)
inline void* scheduler_sp;
extern "C" void emu_switch(void** from, void* to);
__asm__(R"(
.text
.hidden emu_switch
.globl emu_switch
.type emu_switch,@function
emu_switch:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
.size emu_switch,.-emu_switch
)");
inline void to_fiber(Fiber& f) { emu_switch(&scheduler_sp, f.sp); }
inline void to_scheduler() { emu_switch(&now->sp, scheduler_sp); }
#else
inline ucontext_t scheduler_context;
inline void to_fiber(Fiber& f) { swapcontext(&scheduler_context, &f.context); }
inline void to_scheduler() { swapcontext(&now->context, &scheduler_context); }
#endif

inline void fiber_main() {
  body(arguments);
  now->done = true;
  now->block->live--;
  progress++;
  for (;;) to_scheduler();
}

inline void prepare(Fiber& f) {
  if (!f.stack) f.stack = (char*)aligned_alloc(64, STACK_BYTES);
  f.done = false;
#if defined(__x86_64__)
  void** sp = (void**)(f.stack + STACK_BYTES - 64);
  *--sp = nullptr;
  *--sp = (void*)fiber_main;
  for (int i = 0; i < 6; i++) *--sp = nullptr;
  f.sp = sp;
#else
  getcontext(&f.context);
  f.context.uc_stack.ss_sp = f.stack;
  f.context.uc_stack.ss_size = STACK_BYTES;
  makecontext(&f.context, fiber_main, 0);
#endif
}

// ---- what threads do together ----

inline void barrier() {
  Block& b = *now->block;
  const unsigned epoch = b.epoch;
  b.arrived++;
  progress++;
  while (b.epoch == epoch) {
    if (b.arrived == b.live) {  // exited threads do not count
      b.arrived = 0;
      b.epoch++;
      progress++;
      return;
    }
    to_scheduler();
  }
}

template <class T>
inline T exchange(unsigned mask, T value, unsigned source) {
  static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
  const unsigned lane = now->thread % LANES;
  Warp& w = now->block->warps[now->thread / LANES];
  const unsigned epoch = w.epoch, half = epoch & 1, wanted = mask & w.members;
  if (!(mask >> lane & 1)) error = "a lane is missing from its own shuffle mask";
  memcpy(&w.slot[half][lane], &value, sizeof(T));
  w.arrived[half] |= 1u << lane;
  progress++;
  while (w.epoch == epoch) {
    if ((w.arrived[half] & wanted) == wanted) {
      w.epoch++;
      w.arrived[w.epoch & 1] = 0;
      progress++;
      break;
    }
    to_scheduler();
  }
  T result;
  memcpy(&result, &w.slot[half][source % LANES], sizeof(T));
  return result;
}

// ---- the scheduler ----

inline void start(Block& b, unsigned number, unsigned threads, size_t shared_bytes) {
  b.index = {number % grid_dim.x, number / grid_dim.x % grid_dim.y, number / (grid_dim.x * grid_dim.y)};
  b.fibers.resize(threads);
  b.warps.assign((threads + LANES - 1) / LANES, Warp{});
  free(b.shared);  // exactly as large as asked for, so that the address sanitizer sees what lies beyond
  b.shared = (char*)aligned_alloc(16, (shared_bytes + 15) / 16 * 16 + 16);
  memset(b.shared, 0xff, shared_bytes);
  b.live = threads;
  b.arrived = b.epoch = 0;
  for (unsigned t = 0; t < threads; t++) {
    Fiber& f = b.fibers[t];
    f.thread = t;
    f.index = {t % block_dim.x, t / block_dim.x % block_dim.y, t / (block_dim.x * block_dim.y)};
    f.block = &b;
    prepare(f);
    b.warps[t / LANES].members |= 1u << t % LANES;
  }
}

inline uint64_t random_state;
inline unsigned random_below(unsigned n) {
  random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
  return (unsigned)(random_state >> 33) % n;
}

// One round: each thread of the block runs until it waits. Returns whether a warp was left asleep.
inline bool run_round(Block& b) {
  const unsigned warps = (unsigned)b.warps.size(), threads = (unsigned)b.fibers.size();
  const unsigned twist = schedule == 2 ? random_below(LANES) : 0, first = schedule == 2 ? random_below(warps) : 0;
  bool asleep = false;
  for (unsigned i = 0; i < warps && !error; i++) {
    const unsigned w = schedule == 1 ? warps - 1 - i : (i + first) % warps;
    if (schedule == 2) {
      if (!b.warps[w].stall && random_below(32) == 0) b.warps[w].stall = random_below(random_below(4) ? 50 : 5000);
      if (b.warps[w].stall) {
        b.warps[w].stall--;
        asleep = true;
        continue;
      }
    }
    for (unsigned j = 0; j < LANES; j++) {
      const unsigned t = w * LANES + (schedule == 1 ? LANES - 1 - j : j ^ twist);
      if (t >= threads || b.fibers[t].done) continue;
      now = &b.fibers[t];
      to_fiber(b.fibers[t]);
    }
  }
  return asleep;
}

inline const char* launch(dim3 grid, dim3 block, size_t shared_bytes, void (*kernel)(void**), void** parameters) {
  static std::vector<Block> resident(8);  // keeps its stacks from launch to launch
  static uint64_t launches = 0;           // so that no two launches stall alike
  const unsigned total = grid.x * grid.y * grid.z, threads = block.x * block.y * block.z;
  const unsigned seats = schedule == 0 ? 1 : schedule == 1 ? 2 : 8;
  unsigned started = 0;
  grid_dim = grid;
  block_dim = block;
  body = kernel;
  arguments = parameters;
  error = nullptr;
  random_state = 0x9e3779b97f4a7c15ull * ++launches;
  for (;;) {
    bool alive = false, asleep = false;
    const uint64_t before = progress;
    for (unsigned s = 0; s < seats && !error; s++) {
      Block& b = resident[s];
      if (!b.live && started < total) {
        start(b, schedule == 1 ? total - 1 - started : started, threads, shared_bytes);
        started++;
      }
      if (!b.live) continue;
      alive = true;
      asleep |= run_round(b);
    }
    if (!alive) break;
    if (!error && progress == before && !asleep) error = "deadlock: threads wait at different barriers or shuffles";
    if (error) break;
  }
  for (Block& b : resident) b.live = 0;
  return error;
}

struct ThreadIndex {
  struct {
    operator unsigned() const { return now->index.x; }
  } x;
};
struct BlockIndex {
  struct {
    operator unsigned() const { return now->block->index.x; }
  } x;
  struct {
    operator unsigned() const { return now->block->index.y; }
  } y;
  struct {
    operator unsigned() const { return now->block->index.z; }
  } z;
};
inline ThreadIndex thread_index;
inline BlockIndex block_index;

}  // namespace emu

#define threadIdx emu::thread_index
#define blockIdx emu::block_index
#define blockDim emu::block_dim
#define gridDim emu::grid_dim

// ---- what the device compiler knows by itself ----

inline void __syncthreads() { emu::barrier(); }
inline void __threadfence() {}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T v, int lanes) {
  return emu::exchange(mask, v, emu::now->thread % 32 ^ (unsigned)lanes);
}
template <class T>
inline T __shfl_sync(unsigned mask, T v, int lane) {
  return emu::exchange(mask, v, (unsigned)lane);
}
inline unsigned atomicAdd(unsigned* p, unsigned v) {
  const unsigned old = *p;
  *p = old + v;
  return old;
}
inline unsigned atomicXor(unsigned* p, unsigned v) {
  const unsigned old = *p;
  *p = old ^ v;
  return old;
}
inline float __uint_as_float(unsigned u) {
  float f;
  memcpy(&f, &u, 4);
  return f;
}
inline unsigned __float_as_uint(float f) {
  unsigned u;
  memcpy(&u, &f, 4);
  return u;
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const uint64_t bytes = (uint64_t)b << 32 | a;
  unsigned result = 0;
  for (int i = 0; i < 4; i++) result |= (unsigned)(bytes >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
  return result;
}
inline uint4 counted_load(const void* address, uint64_t& bytes) {
  bytes += sizeof(uint4);
  return *(const uint4*)address;
}
inline float half_to_float(unsigned short bits) {
  _Float16 h;
  memcpy(&h, &bits, 2);
  return (float)h;
}
inline unsigned short float_to_half(float v) {
  const _Float16 h = (_Float16)v;
  unsigned short bits;
  memcpy(&bits, &h, 2);
  return bits;
}
inline float rsqrtf(float v) { return 1.0f / sqrtf(v); }
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
