// Attention of one step over the paged cache: block = (split of the context, key-value head, sequence).
//
// A token's key (16 bytes a lane) is read by LANES lanes, so a warp works on TEAMS tokens at once; each key and value
// loaded serves all GROUP query heads. Every team keeps an online softmax (peak, total, weighted values); teams,
// then warps, then splits are combined by rescaling to the common peak. The split that arrives last combines
// the splits, which saves a launch. Keys and values are read by plain loads: the kernel before wrote some of them.

#define ATTENTION_THREADS 128

__device__ constexpr int power_of_two_above(int n) {
  int p = 1;
  while (p < n) p *= 2;
  return p;
}

struct Softmax {  // of one query head; base 2
  float peak, total, value[8];

  __device__ __forceinline__ void clear() {
    peak = NEVER;
    total = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) value[i] = 0;
  }
  // Raises the peak to `higher` and rescales what was summed.
  __device__ __forceinline__ void raise(float higher) {
    const float factor = exp2f(peak - higher);
    peak = higher;
    total *= factor;
#pragma unroll
    for (int i = 0; i < 8; i++) value[i] *= factor;
  }
};

__device__ __forceinline__ uint4 load_cache(const narrow* address) {
#ifdef __CUDA_ARCH__
  return *(const uint4*)address;
#else
  return counted_load(address, emu::cache_bytes);
#endif
}

// Adds the tokens first, first + stride, ... below `end` to the softmax of each head.
template <int LANES, class Row>
__device__ __forceinline__ void attend(const float (&query)[GROUP][8], int first, int end, int stride, bool active,
                                       const narrow* keys, const narrow* values, const Row& row_of,
                                       Softmax (&state)[GROUP]) {
  const int UNROLL = GROUP > 4 ? 2 : 4;
  // The bound is that of the warp, not of the team, so that all lanes meet in the shuffles.
  const int turns = (end - first + stride * UNROLL - 1) / (stride * UNROLL);
  const int warp_turns = __shfl_sync(FULL_WARP, turns, 0);  // lane 0 starts first and has the most turns
  for (int turn = 0; turn < warp_turns; turn++) {
    uint4 key[UNROLL], value[UNROLL];
    bool there[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      const int token = first + (turn * UNROLL + u) * stride;
      there[u] = token < end;
      key[u] = value[u] = make_uint4(0, 0, 0, 0);
      if (there[u] && active) {
        const size_t row = row_of(token);
        key[u] = load_cache(keys + row);
        value[u] = load_cache(values + row);
      }
    }
#pragma unroll
    for (int g = 0; g < GROUP; g++) {
      float score[UNROLL], peak = state[g].peak;
#pragma unroll
      for (int u = 0; u < UNROLL; u++) {
        float sum = 0;
#pragma unroll
        for (int p = 0; p < 2; p++)
          sum = dot(unpack<BF16>(key[u], p),
                    make_float4(query[g][4 * p], query[g][4 * p + 1], query[g][4 * p + 2], query[g][4 * p + 3]), sum);
        sum = lanes_sum<LANES>(sum);
        score[u] = there[u] ? sum : NEVER;
        peak = fmaxf(peak, score[u]);
      }
      state[g].raise(peak);
#pragma unroll
      for (int u = 0; u < UNROLL; u++) {
        const float weight = there[u] ? exp2f(score[u] - peak) : 0.0f;
        const float4 low = unpack<BF16>(value[u], 0), high = unpack<BF16>(value[u], 1);
        const float v[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        state[g].total += weight;
#pragma unroll
        for (int i = 0; i < 8; i++) state[g].value[i] = fmaf(weight, v[i], state[g].value[i]);
      }
    }
  }
}

// Combines the teams of a warp; every lane of a column then holds the same softmax.
template <int LANES>
__device__ __forceinline__ void combine_teams(Softmax& state) {
#pragma unroll
  for (int offset = LANES; offset < 32; offset *= 2) {
    state.raise(fmaxf(state.peak, __shfl_xor_sync(FULL_WARP, state.peak, offset)));
    state.total += __shfl_xor_sync(FULL_WARP, state.total, offset);
#pragma unroll
    for (int i = 0; i < 8; i++) state.value[i] += __shfl_xor_sync(FULL_WARP, state.value[i], offset);
  }
}

#ifdef NARROW_ATTENTION  // torch.mm takes the output in 16 bits
typedef narrow attended_t;
#define ATTENDED(v) round_to<WIDE>(v)
#else
typedef float attended_t;
#define ATTENDED(v) (v)
#endif

// Combines the splits of GROUP heads: `partial` [head][split][HEAD_SIZE], `peaks` [head][split][peak, total].
__device__ __forceinline__ void combine_splits(int splits, const float* partial, const float* peaks, float* factor,
                                               attended_t* to) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int g = warp; g < GROUP; g += blockDim.x / 32) {
    float peak = NEVER, total = 0;
    for (int n = lane; n < splits; n += 32) peak = fmaxf(peak, load_fresh(peaks + (g * splits + n) * 2));
    peak = warp_max(peak);
    for (int n = lane; n < splits; n += 32) {
      factor[g * splits + n] = exp2f(load_fresh(peaks + (g * splits + n) * 2) - peak);
      total += factor[g * splits + n] * load_fresh(peaks + (g * splits + n) * 2 + 1);
    }
    total = lanes_sum<32>(total);
    for (int n = lane; n < splits; n += 32) factor[g * splits + n] /= total;
  }
  __syncthreads();  // factors of all heads are there
  for (int i = threadIdx.x; i < GROUP * HEAD_SIZE; i += blockDim.x) {
    const int g = i / HEAD_SIZE, element = i % HEAD_SIZE;
    float sum = 0;
    for (int n = 0; n < splits; n++)
      sum = fmaf(factor[g * splits + n], load_fresh(partial + (size_t)(g * splits + n) * HEAD_SIZE + element), sum);
    to[i] = ATTENDED(sum);
  }
}

extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS)
    attention(Shape s, const float* q, const narrow* keys, const narrow* values, const int* block_table,
              const int* position, attended_t* attended, float* partial, float* peaks, word* arrivals) {
  DYNAMIC_SHARED(shared);  // [warps][GROUP][HEAD_SIZE + 2], later [GROUP][splits]; then one word
  const int LANES = power_of_two_above(HEAD_SIZE / 8), WARPS = ATTENTION_THREADS / 32, TEAMS = 32 / LANES * WARPS;
  const int split = blockIdx.x, b = blockIdx.z, first_head = blockIdx.y * GROUP;
  const int kv_head = first_head / (s.query_heads / s.kv_heads);
  const int warp = threadIdx.x / 32, team = threadIdx.x / LANES, element = threadIdx.x % LANES * 8;
  const int max_blocks = (s.max_context + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
  const bool active = element < HEAD_SIZE;

  const int tokens = position[b] + 1, begin = s.window ? max(0, tokens - s.window) : 0;
  const int chunk = (tokens - begin + s.splits - 1) / s.splits;
  const int start = begin + split * chunk, end = min(start + chunk, tokens);
  auto row_of = [&](int token) {
    const size_t block = block_table[b * max_blocks + token / BLOCK_TOKENS];
    return ((block * s.kv_heads + kv_head) * BLOCK_TOKENS + token % BLOCK_TOKENS) * HEAD_SIZE + element;
  };

  float query[GROUP][8];
  Softmax state[GROUP];
  const float scale = 1.44269504f * rsqrtf((float)HEAD_SIZE);  // log2(e): exp2 in place of exp
#pragma unroll
  for (int g = 0; g < GROUP; g++) {
    state[g].clear();
    const float4* from = (const float4*)(q + ((size_t)b * s.query_heads + first_head + g) * HEAD_SIZE + element);
#pragma unroll
    for (int p = 0; p < 2; p++) {
      const float4 v = active ? from[p] : make_float4(0, 0, 0, 0);
      query[g][4 * p] = v.x * scale;
      query[g][4 * p + 1] = v.y * scale;
      query[g][4 * p + 2] = v.z * scale;
      query[g][4 * p + 3] = v.w * scale;
    }
  }
  attend<LANES>(query, start + team, end, TEAMS, active, keys, values, row_of, state);

  float* by_warp = shared + warp * GROUP * (HEAD_SIZE + 2);
#pragma unroll
  for (int g = 0; g < GROUP; g++) {
    combine_teams<LANES>(state[g]);
    float* to = by_warp + g * (HEAD_SIZE + 2);
    if (threadIdx.x % 32 < LANES && active)
#pragma unroll
      for (int i = 0; i < 8; i++) to[element + i] = state[g].value[i];
    if (threadIdx.x % 32 == 0) {
      to[HEAD_SIZE] = state[g].peak;
      to[HEAD_SIZE + 1] = state[g].total;
    }
  }
  __syncthreads();  // softmax of every warp is there

  const size_t head = (size_t)b * s.query_heads + first_head;
  for (int i = threadIdx.x; i < GROUP * HEAD_SIZE; i += blockDim.x) {
    const float* from = shared + i / HEAD_SIZE * (HEAD_SIZE + 2);
    float peak = NEVER, total = 0, sum = 0;
    for (int w = 0; w < WARPS; w++) peak = fmaxf(peak, from[w * GROUP * (HEAD_SIZE + 2) + HEAD_SIZE]);
    for (int w = 0; w < WARPS; w++) {
      const float* part = from + w * GROUP * (HEAD_SIZE + 2);
      const float factor = exp2f(part[HEAD_SIZE] - peak);
      total = fmaf(factor, part[HEAD_SIZE + 1], total);
      sum = fmaf(factor, part[i % HEAD_SIZE], sum);
    }
    if (s.splits == 1) {
      attended[head * HEAD_SIZE + i] = ATTENDED(sum / total);
      continue;
    }
    const size_t slot = (head + i / HEAD_SIZE) * s.splits + split;
    partial[slot * HEAD_SIZE + i % HEAD_SIZE] = sum;
    if (i % HEAD_SIZE == 0) {
      peaks[slot * 2] = peak;
      peaks[slot * 2 + 1] = total;
    }
  }
  if (s.splits == 1) return;

  const int factors = max(GROUP * s.splits, WARPS * GROUP * (HEAD_SIZE + 2));
  word* last = (word*)(shared + factors);
  word* arrived = arrivals + b * gridDim.y + blockIdx.y;
  __threadfence();
  __syncthreads();  // all of this split is written before it is counted, and `shared` is read
  if (threadIdx.x == 0) *last = atomicAdd(arrived, 1u) == (word)s.splits - 1;
  __syncthreads();  // every thread knows whether it combines
  if (!*last) return;
  __threadfence();
  combine_splits(s.splits, partial + head * s.splits * HEAD_SIZE, peaks + head * s.splits * 2, shared,
                 attended + head * HEAD_SIZE);
  if (threadIdx.x == 0) *arrived = 0;  // for the next launch
}
