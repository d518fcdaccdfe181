// The kernels of few bytes: embed and argmax of every step; normalise, rotate, swiglu and dequantise, which stand
// between the calls of torch.mm above batch 4; and stream_read, which measures the bandwidth of reading.

// x[b] = embedding of the token of sequence b; one block each.
extern "C" __global__ void embed(Shape s, const int* token, const narrow* embedding, float* x) {
  const int b = blockIdx.x;
  const narrow* row = embedding + (size_t)token[b] * s.hidden;
  for (int i = threadIdx.x; i < s.hidden; i += blockDim.x) x[(size_t)b * s.hidden + i] = widen<WIDE>(row[i]);
}

struct Best {
  float value;
  int index;
};

__device__ __forceinline__ bool beats(Best a, Best b) {  // ties go to the lower index
  return a.value > b.value || (a.value == b.value && a.index < b.index);
}

__device__ __forceinline__ Best better(Best a, Best b) { return beats(a, b) ? a : b; }

__device__ __forceinline__ Best stored(float value, float index_bits) {
  return {value, (int)__float_as_uint(index_bits)};
}

// The best of a warp, in every lane.
__device__ __forceinline__ Best warp_best(Best best) {
#pragma unroll
  for (int offset = 16; offset; offset /= 2) {
    const Best other = {__shfl_xor_sync(FULL_WARP, best.value, offset),
                        __shfl_xor_sync(FULL_WARP, best.index, offset)};
    best = better(other, best);
  }
  return best;
}

#ifdef NARROW_LOGITS
typedef narrow logit_t;
#define LOGIT(v) widen<WIDE>(v)
#else
typedef float logit_t;
#define LOGIT(v) (v)
#endif

// Greedy choice, grid (slices, batch); the slice that arrives last writes the token and moves the position on, so
// that a captured graph can be replayed step after step. At max_context the position stays.
extern "C" __global__ void argmax(Shape s, const logit_t* logits, int advance, float* best_value, float* best_index,
                                  word* arrivals, int* token, int* position) {
  DYNAMIC_SHARED(shared);  // [warps] values, [warps] indices
  const int b = blockIdx.y, slices = gridDim.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int warps = blockDim.x / 32;
  const Best none = {-__uint_as_float(0x7f800000u), 0x7fffffff};
  Best best = none;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < s.vocabulary; i += slices * blockDim.x) {
    const Best here = {LOGIT(logits[(size_t)b * s.vocabulary + i]), i};
    best = better(here, best);
  }
  best = warp_best(best);
  if (lane == 0) {
    shared[warp] = best.value;
    shared[warps + warp] = __uint_as_float((word)best.index);
  }
  __syncthreads();  // the best of every warp is there
  if (warp) return;
  best = none;
  if (lane < warps) best = better(stored(shared[lane], shared[warps + lane]), best);
  best = warp_best(best);
  word arrived = 0;
  if (lane == 0) {
    best_value[b * slices + blockIdx.x] = best.value;
    best_index[b * slices + blockIdx.x] = __uint_as_float((word)best.index);
    __threadfence();
    arrived = atomicAdd(arrivals + b, 1u);
  }
  if (__shfl_sync(FULL_WARP, arrived, 0) != (word)slices - 1) return;
  __threadfence();
  best = none;
  for (int n = lane; n < slices; n += 32)
    best = better(stored(load_fresh(best_value + b * slices + n), load_fresh(best_index + b * slices + n)), best);
  best = warp_best(best);
  if (lane) return;
  arrivals[b] = 0;
  token[b] = min(best.index, s.vocabulary - 1);  // a step of NaN only must not read past the embedding
  if (advance) position[b] = min(position[b] + 1, s.max_context - 1);
}

// ---- between the calls of torch.mm ----

// x += delta (what the last torch.mm gave; null: none); out = RMSNorm(x) * gain. One block per sequence.
extern "C" __global__ void normalise(Shape s, const narrow* delta, float* x, const narrow* gain, narrow* out) {
  DYNAMIC_SHARED(shared);  // [32]
  const size_t row = (size_t)blockIdx.x * s.hidden;
  const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
  float sum = 0;
  for (int i = threadIdx.x; i < s.hidden; i += blockDim.x) {
    const float v = x[row + i] + (delta ? widen<WIDE>(delta[row + i]) : 0.0f);
    x[row + i] = v;
    sum = fmaf(v, v, sum);
  }
  sum = lanes_sum<32>(sum);
  if (lane == 0) shared[threadIdx.x / 32] = sum;
  __syncthreads();  // the sum of every warp is there
  const float inverse = rsqrtf(lanes_sum<32>(lane < warps ? shared[lane] : 0.0f) / s.hidden + s.norm_eps);
  for (int i = threadIdx.x; i < s.hidden; i += blockDim.x)
    out[row + i] = round_to<WIDE>(x[row + i] * inverse * widen<WIDE>(gain[i]));
}

// Rotates q and k, keeps q, appends k and v to the cache. Grid (query and key-value heads, batch).
extern "C" __global__ void rotate(Shape s, const narrow* qkv_rows, const float2* rotary, const int* block_table,
                                  const int* position, float* q, narrow* keys, narrow* values) {
  const int HALF = HEAD_SIZE / 2, heads = s.query_heads + 2 * s.kv_heads, b = blockIdx.y, at = position[b];
  const int max_blocks = (s.max_context + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
  const narrow* from = qkv_rows + ((size_t)b * heads + blockIdx.x) * HEAD_SIZE;
  const size_t block = block_table[b * max_blocks + at / BLOCK_TOKENS];
  for (int i = threadIdx.x; i < HALF; i += blockDim.x) {
    int head = blockIdx.x;
    float u = widen<WIDE>(from[i]), v = widen<WIDE>(from[i + HALF]);
    if (head < s.query_heads + s.kv_heads) {
      const float2 turn = rotary[(size_t)at * HALF + i];
      const float rotated = u * turn.x - v * turn.y;
      v = v * turn.x + u * turn.y;
      u = rotated;
    }
    if (head < s.query_heads) {
      float* to = q + ((size_t)b * s.query_heads + head) * HEAD_SIZE + i;
      to[0] = u;
      to[HALF] = v;
      continue;
    }
    head -= s.query_heads;
    narrow* cache = head < s.kv_heads ? keys : values;
    cache += ((block * s.kv_heads + head % s.kv_heads) * BLOCK_TOKENS + at % BLOCK_TOKENS) * HEAD_SIZE + i;
    cache[0] = round_to<BF16>(u);
    cache[HALF] = round_to<BF16>(v);
  }
}

// h = silu(gate) * up, of rows [gate, up].
extern "C" __global__ void swiglu(Shape s, int batch, const narrow* rows, narrow* h) {
  const size_t total = (size_t)batch * s.inner;
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += (size_t)gridDim.x * blockDim.x) {
    const narrow* gate = rows + i / s.inner * 2 * s.inner + i % s.inner;
    h[i] = round_to<WIDE>(silu(widen<WIDE>(gate[0])) * widen<WIDE>(gate[s.inner]));
  }
}

// INT8 rows with scales, written out in 16 bits for torch.mm; 16 elements per thread and turn.
extern "C" __global__ void dequantise(Matrix m, long long rows, int columns, narrow* out) {
  const long long loads = rows * (columns / 16);
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < loads;
       i += (long long)gridDim.x * blockDim.x) {
    const uint4 load = load_weights((const char*)m.weights + i * 16);
    const float scale = m.scales[i / (columns / 16)];
#pragma unroll
    for (int p = 0; p < 4; p++) {
      const float4 v = unpack<INT8>(load, p);
      const narrow bits[4] = {round_to<WIDE>(v.x * scale), round_to<WIDE>(v.y * scale), round_to<WIDE>(v.z * scale),
                              round_to<WIDE>(v.w * scale)};
      ((uint2*)out)[i * 4 + p] = make_uint2(bits[0] | (word)bits[1] << 16, bits[2] | (word)bits[3] << 16);
    }
  }
}

// ---- the ceiling ----

// Reads `loads` times 16 bytes once, as the matrix kernels do; leaves the exclusive or of all words in *out.
extern "C" __global__ void __launch_bounds__(512) stream_read(const uint4* from, long long loads, word* out) {
  const int UNROLL = 4;
  const long long step = (long long)gridDim.x * blockDim.x;
  word mix = 0;
#pragma unroll 1  // the loads of one turn are the ones under way; unrolled further they spill on sm_100
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < loads; i += UNROLL * step) {
    uint4 v[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
      v[u] = i + u * step < loads ? load_weights(from + i + u * step) : make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int u = 0; u < UNROLL; u++) mix ^= v[u].x ^ v[u].y ^ v[u].z ^ v[u].w;
  }
#pragma unroll
  for (int offset = 16; offset; offset /= 2) mix ^= __shfl_xor_sync(FULL_WARP, mix, offset);
  if (threadIdx.x % 32 == 0) atomicXor(out, mix);
}
