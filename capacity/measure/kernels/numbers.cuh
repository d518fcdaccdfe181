// Number formats, loads and warp sums. No header is included, so that NVRTC needs none; the host emulation
// (cpu_shim.h) comes before this file and defines what the compiler for the device knows by itself.
//
// Fixed at compile time, by macros:
//   WEIGHTS       format of the matrices of the layers: BF16, FP16 or INT8 (one fp32 scale per row)
//   WIDE          format of embedding, head, norms and 16-bit activations: BF16 or FP16
//   BATCH         sequences of the matrix kernels, 1 to 4
//   HEAD_SIZE, GROUP, BLOCK_TOKENS   elements of a head, query heads per attention block, tokens per cache block
//   <MATRIX>_PAIRS, <MATRIX>_SPLIT   pairs of rows per warp, and warps that share the columns of a row
//   <MATRIX>_STAGED                  whether the input vector is first copied to shared memory
//   MATRIX_THREADS                   threads of a block of the matrix kernels

#define BF16 0
#define FP16 1
#define INT8 2
#define FULL_WARP 0xffffffffu
#define NEVER -1e30f  // below every score, and finite, so that NEVER - NEVER is no NaN

typedef unsigned int word;
typedef unsigned short narrow;  // the bits of a bf16 or fp16 number

#ifndef DYNAMIC_SHARED
#define DYNAMIC_SHARED(name) extern __shared__ __align__(16) float name[]
#endif

// What every kernel knows of the decoder; passed by value.
struct Shape {
  int hidden, query_heads, kv_heads, inner, vocabulary, max_context, window, splits;
  float norm_eps;
};

struct Matrix {
  const void* weights;
  const float* scales;  // one per row, INT8 only
};

// ---- loads ----

// 16 bytes of weights: read once per step, so they take no place in L1.
__device__ __forceinline__ uint4 load_weights(const void* address) {
#ifdef __CUDA_ARCH__
  uint4 v;
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
      : "l"(address));
  return v;
#else
  return counted_load(address, emu::weight_bytes);
#endif
}

// Asks for a line of weights while the block still waits for its input.
__device__ __forceinline__ void prefetch(const void* address) {
#ifdef __CUDA_ARCH__
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
#endif
}

// What another block of the same launch wrote: L1 may hold an older copy, L2 may not.
__device__ __forceinline__ float load_fresh(const float* address) {
#ifdef __CUDA_ARCH__
  float v;
  asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(v) : "l"(address) : "memory");
  return v;
#else
  return *address;
#endif
}

// ---- formats ----

template <int FORMAT>
__device__ __forceinline__ float widen(narrow bits) {
  if (FORMAT == BF16) return __uint_as_float((word)bits << 16);
#ifdef __CUDA_ARCH__
  float v;
  asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(bits));
  return v;
#else
  return half_to_float(bits);
#endif
}

// To nearest, ties to even.
template <int FORMAT>
__device__ __forceinline__ narrow round_to(float v) {
  if (FORMAT == BF16) {
    word bits = __float_as_uint(v);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (narrow)((bits >> 16) | 0x40u);  // NaN stays NaN
    return (narrow)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
  }
#ifdef __CUDA_ARCH__
  narrow bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(v));
  return bits;
#else
  return float_to_half(v);
#endif
}

// Elements in 16 bytes, and how many float4 they fill.
template <int FORMAT>
struct Load {
  static const int ELEMENTS = FORMAT == INT8 ? 16 : 8;
  static const int PLANES = ELEMENTS / 4;
};

// The four elements of plane `p` of a 16-byte load.
template <int FORMAT>
__device__ __forceinline__ float4 unpack(uint4 load, int p) {
  const word words[4] = {load.x, load.y, load.z, load.w};
  if (FORMAT == INT8) {
    // A byte q + 128 placed in the mantissa of 2^23 is the float 2^23 + 128 + q: no slow conversion.
    const word biased = words[p] ^ 0x80808080u;
    const float zero = 8388736.0f;
    return make_float4(__uint_as_float(__byte_perm(biased, 0x4b000000u, 0x7440)) - zero,
                       __uint_as_float(__byte_perm(biased, 0x4b000000u, 0x7441)) - zero,
                       __uint_as_float(__byte_perm(biased, 0x4b000000u, 0x7442)) - zero,
                       __uint_as_float(__byte_perm(biased, 0x4b000000u, 0x7443)) - zero);
  }
  const word low = words[2 * p], high = words[2 * p + 1];
  if (FORMAT == BF16)
    return make_float4(__uint_as_float(low << 16), __uint_as_float(low & 0xffff0000u),
                       __uint_as_float(high << 16), __uint_as_float(high & 0xffff0000u));
  return make_float4(widen<FP16>((narrow)low), widen<FP16>((narrow)(low >> 16)),
                     widen<FP16>((narrow)high), widen<FP16>((narrow)(high >> 16)));
}

__device__ __forceinline__ float dot(float4 a, float4 b, float sum) {
  return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

__device__ __forceinline__ float silu(float v) { return v / (1.0f + expf(-v)); }

// ---- warps ----

// Sum over groups of WIDTH neighbouring lanes; every lane gets it.
template <int WIDTH>
__device__ __forceinline__ float lanes_sum(float v) {
#pragma unroll
  for (int offset = WIDTH / 2; offset; offset /= 2) v += __shfl_xor_sync(FULL_WARP, v, offset);
  return v;
}

__device__ __forceinline__ float warp_max(float v) {
#pragma unroll
  for (int offset = 16; offset; offset /= 2) v = fmaxf(v, __shfl_xor_sync(FULL_WARP, v, offset));
  return v;
}
