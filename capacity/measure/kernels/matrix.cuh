// Matrix times vectors for batch 1 to 4: qkv, output, gate_up, down, head.
//
// A warp owns PAIRS pairs of rows. A pair is what its epilogue needs together: both halves of a rotation, gate
// and up of one element, or two neighbours. Lanes read 16 bytes each, so a warp reads 512 neighbouring bytes of a
// row per load, and UNROLL loads per row are under way before the first is used. SPLIT warps may share a row.
// The input vectors lie in shared memory, multiplied by the gain of the norm; the norm's 1 / rms is a factor of
// the whole row and comes last, so that norm and product need one pass.

// In shared memory plane p of 16-byte load j lies at float4 number p * loads + j: neighbouring lanes read
// neighbouring float4, without bank conflicts.
template <int FORMAT>
__device__ __forceinline__ int staged_slot(int quad, int loads) {
  const int planes = Load<FORMAT>::PLANES;
  return (quad % planes) * loads + quad / planes;
}

// Copies the vectors; several loads are under way at once, for the whole block waits for them.
template <int FORMAT>
__device__ __forceinline__ void stage(const float* x, int columns, float4* staged) {
  const int UNROLL = 8, quads = columns / 4, loads = columns / Load<FORMAT>::ELEMENTS, threads = blockDim.x;
  for (int first = threadIdx.x; first < BATCH * quads; first += UNROLL * threads) {
    float4 v[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
      if (first + u * threads < BATCH * quads) v[u] = ((const float4*)x)[first + u * threads];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      const int i = first + u * threads;
      if (i < BATCH * quads) staged[i / quads * quads + staged_slot<FORMAT>(i % quads, loads)] = v[u];
    }
  }
  __syncthreads();  // the vectors are there
}

// Stages x * gain and leaves the sums of squares of each warp in `squares` [BATCH][32].
template <int FORMAT>
__device__ __forceinline__ void stage_scaled(const float* x, const narrow* gain, int columns, float4* staged,
                                             float* squares) {
  const int UNROLL = 4, quads = columns / 4, loads = columns / Load<FORMAT>::ELEMENTS, threads = blockDim.x;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int b = 0; b < BATCH; b++) {
    float sum = 0;
    for (int first = threadIdx.x; first < quads; first += UNROLL * threads) {
      float4 v[UNROLL];
      uint2 g[UNROLL];
#pragma unroll
      for (int u = 0; u < UNROLL; u++)
        if (first + u * threads < quads) {
          v[u] = ((const float4*)(x + (size_t)b * columns))[first + u * threads];
          g[u] = ((const uint2*)gain)[first + u * threads];
        }
#pragma unroll
      for (int u = 0; u < UNROLL; u++) {
        const int i = first + u * threads;
        if (i >= quads) break;
        staged[b * quads + staged_slot<FORMAT>(i, loads)] =
            make_float4(v[u].x * widen<WIDE>((narrow)g[u].x), v[u].y * widen<WIDE>((narrow)(g[u].x >> 16)),
                        v[u].z * widen<WIDE>((narrow)g[u].y), v[u].w * widen<WIDE>((narrow)(g[u].y >> 16)));
        sum = dot(v[u], v[u], sum);
      }
    }
    sum = lanes_sum<32>(sum);
    if (lane == 0) squares[b * 32 + warp] = sum;
  }
  __syncthreads();  // the vectors and the sums of every warp are there
}

// 1 / sqrt(mean square + eps) of each vector, from the sums of all warps.
__device__ __forceinline__ void inverse_rms(const float* squares, int columns, float eps, float (&inverse)[BATCH]) {
  const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
#pragma unroll
  for (int b = 0; b < BATCH; b++)
    inverse[b] = rsqrtf(lanes_sum<32>(lane < warps ? squares[b * 32 + lane] : 0.0f) / columns + eps);
}

// sum[r][b] += the lane's share of row r times vector b.
template <int FORMAT, int ROWS, bool STAGED>
__device__ __forceinline__ void multiply_rows(const char* const (&row)[ROWS], const float4* x, int columns,
                                              int first, int step, float (&sum)[ROWS][BATCH]) {
  const int PLANES = Load<FORMAT>::PLANES, UNROLL = ROWS * BATCH > 8 ? 2 : 8 / ROWS;
  const int loads = columns / Load<FORMAT>::ELEMENTS, quads = columns / 4;
  for (int j = first; j < loads; j += UNROLL * step) {
    uint4 weights[UNROLL][ROWS];
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
#pragma unroll
      for (int r = 0; r < ROWS; r++)
        if (j + u * step < loads) weights[u][r] = load_weights(row[r] + 16 * (size_t)(j + u * step));
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      const int k = j + u * step;
      if (k >= loads) break;
#pragma unroll
      for (int p = 0; p < PLANES; p++) {
        float4 w[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++) w[r] = unpack<FORMAT>(weights[u][r], p);
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
          const float4 v = x[b * quads + (STAGED ? p * loads + k : k * PLANES + p)];
#pragma unroll
          for (int r = 0; r < ROWS; r++) sum[r][b] = dot(w[r], v, sum[r][b]);
        }
      }
    }
  }
}

// Which rows a warp owns, and where they lie.
template <int FORMAT, int PAIRS, int SPLIT>
struct Task {
  int lane, part, team, teams, pairs;

  __device__ __forceinline__ Task(int pairs_) : pairs(pairs_) {
    const int warp = threadIdx.x / 32, per_block = blockDim.x / 32 / SPLIT;
    lane = threadIdx.x % 32;
    part = warp % SPLIT;
    team = blockIdx.x * per_block + warp / SPLIT;
    teams = gridDim.x * per_block;
  }
  // The same number of turns for every warp of the grid, so that barriers inside a turn are met by all.
  __device__ __forceinline__ int turns() const { return (pairs + teams * PAIRS - 1) / (teams * PAIRS); }
  __device__ __forceinline__ int pair(int turn, int i) const { return (turn * teams + team) * PAIRS + i; }

  template <class Rows>
  __device__ __forceinline__ void rows(const Matrix& m, int columns, int turn, const Rows& row_of,
                                       const char* (&row)[2 * PAIRS]) const {
    const size_t row_bytes = (size_t)columns * (FORMAT == INT8 ? 1 : 2);
#pragma unroll
    for (int r = 0; r < 2 * PAIRS; r++)  // past the end: the last pair again, never written
      row[r] = (const char*)m.weights + row_of(min(pair(turn, r / 2), pairs - 1), r % 2) * row_bytes;
  }
};

// Starts the first lines of each row on their way to L2; a line has 128 bytes, which eight lanes read.
template <int FORMAT, int PAIRS, int SPLIT, class Rows>
__device__ __forceinline__ void prefetch_rows(const Matrix& m, int pairs, int columns, const Rows& row_of) {
  const Task<FORMAT, PAIRS, SPLIT> task(pairs);
  const int row_bytes = columns * (FORMAT == INT8 ? 1 : 2), offset = (task.part * 32 + task.lane) * 128;
  const char* row[2 * PAIRS];
  task.rows(m, columns, 0, row_of, row);
#pragma unroll
  for (int r = 0; r < 2 * PAIRS; r++)
    if (offset < row_bytes && offset < 4096) prefetch(row[r] + offset);
}

// Multiplies all pairs of rows and hands each result to finish(pair, b, first, second), once.
// `partial` is shared memory, [warps][2 * PAIRS * BATCH], used when SPLIT > 1.
template <int FORMAT, int PAIRS, int SPLIT, bool STAGED, class Rows, class Finish>
__device__ __forceinline__ void multiply(const Matrix& m, const float4* x, int pairs, int columns, float* partial,
                                         const Rows& row_of, const Finish& finish) {
  const int ROWS = 2 * PAIRS, RESULTS = PAIRS * BATCH;
  const Task<FORMAT, PAIRS, SPLIT> task(pairs);
  const int warp = threadIdx.x / 32;
  for (int turn = 0; turn < task.turns(); turn++) {
    const char* row[ROWS];
    float sum[ROWS][BATCH] = {};
    task.rows(m, columns, turn, row_of, row);
    if (task.pair(turn, 0) < pairs)
      multiply_rows<FORMAT, ROWS, STAGED>(row, x, columns, task.part * 32 + task.lane, 32 * SPLIT, sum);

    float mine[2] = {0, 0};  // lane n keeps result n: pair n / BATCH of vector n % BATCH
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
      for (int b = 0; b < BATCH; b++) {
        const float total = lanes_sum<32>(sum[r][b]);
        if (task.lane == r / 2 * BATCH + b) mine[r % 2] = total;
      }
    if (SPLIT > 1) {
      if (task.lane < RESULTS)
        for (int h = 0; h < 2; h++) partial[(warp * RESULTS + task.lane) * 2 + h] = mine[h];
      __syncthreads();  // sums of all parts are there
      if (task.lane < RESULTS && task.part == 0)
        for (int part = 1; part < SPLIT; part++)
          for (int h = 0; h < 2; h++) mine[h] += partial[((warp + part) * RESULTS + task.lane) * 2 + h];
      __syncthreads();  // and read, before the next turn writes them
    }
    const int pair = task.pair(turn, task.lane / BATCH), b = task.lane % BATCH;
    if (task.part == 0 && task.lane < RESULTS && pair < pairs) {
      if (FORMAT == INT8)
        for (int h = 0; h < 2; h++) mine[h] *= m.scales[row_of(pair, h)];
      finish(pair, b, mine[0], mine[1]);
    }
  }
}

// ---- norm, q, k, v, rotation, append to the cache ----
// A pair is (i, i + HEAD_SIZE / 2) of one head, which one angle rotates. `rotary` holds (cos, sin) [position][pair].
extern "C" __global__ void __launch_bounds__(MATRIX_THREADS)
    qkv(Shape s, const float* x, const narrow* gain, Matrix m, const float2* rotary, const int* block_table,
        const int* position, float* q, narrow* keys, narrow* values) {
  DYNAMIC_SHARED(shared);
  const int HALF = HEAD_SIZE / 2, columns = s.hidden, pairs = (s.query_heads + 2 * s.kv_heads) * HALF;
  const int max_blocks = (s.max_context + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
  float *squares = shared + BATCH * columns, *partial = squares + BATCH * 32;
  auto row_of = [&](int pair, int h) { return (size_t)(pair / HALF) * HEAD_SIZE + pair % HALF + h * HALF; };

  prefetch_rows<WEIGHTS, QKV_PAIRS, QKV_SPLIT>(m, pairs, columns, row_of);
  stage_scaled<WEIGHTS>(x, gain, columns, (float4*)shared, squares);
  float inverse[BATCH];
  inverse_rms(squares, columns, s.norm_eps, inverse);

  multiply<WEIGHTS, QKV_PAIRS, QKV_SPLIT, true>(
      m, (const float4*)shared, pairs, columns, partial, row_of, [&](int pair, int b, float u, float v) {
        int head = pair / HALF;
        const int i = pair % HALF, at = position[b];
        float scale = inverse[0];
#pragma unroll
        for (int n = 1; n < BATCH; n++) scale = b == n ? inverse[n] : scale;
        u *= scale;
        v *= scale;
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
          return;
        }
        head -= s.query_heads;
        narrow* cache = head < s.kv_heads ? keys : values;
        const size_t block = block_table[b * max_blocks + at / BLOCK_TOKENS];
        cache += ((block * s.kv_heads + head % s.kv_heads) * BLOCK_TOKENS + at % BLOCK_TOKENS) * HEAD_SIZE + i;
        cache[0] = round_to<BF16>(u);
        cache[HALF] = round_to<BF16>(v);
      });
}

// ---- x += W input; each element of x is read and written by one lane ----
template <int PAIRS, int SPLIT, bool STAGED>
__device__ __forceinline__ void project(const float* input, const Matrix& m, float* x, int rows, int columns,
                                        float* shared) {
  const int pairs = (rows + 1) / 2;
  auto row_of = [&](int pair, int h) { return (size_t)min(2 * pair + h, rows - 1); };
  prefetch_rows<WEIGHTS, PAIRS, SPLIT>(m, pairs, columns, row_of);
  if (STAGED) stage<WEIGHTS>(input, columns, (float4*)shared);
  multiply<WEIGHTS, PAIRS, SPLIT, STAGED>(
      m, STAGED ? (const float4*)shared : (const float4*)input, pairs, columns,
      shared + (STAGED ? BATCH * columns : 0), row_of, [&](int pair, int b, float u, float v) {
        float* to = x + (size_t)b * rows + 2 * pair;
        to[0] += u;
        if (2 * pair + 1 < rows) to[1] += v;
      });
}

extern "C" __global__ void __launch_bounds__(MATRIX_THREADS)
    output(Shape s, const float* attended, Matrix m, float* x) {
  DYNAMIC_SHARED(shared);
  project<OUTPUT_PAIRS, OUTPUT_SPLIT, OUTPUT_STAGED>(attended, m, x, s.hidden, s.query_heads * HEAD_SIZE, shared);
}

extern "C" __global__ void __launch_bounds__(MATRIX_THREADS) down(Shape s, const float* h, Matrix m, float* x) {
  DYNAMIC_SHARED(shared);
  project<DOWN_PAIRS, DOWN_SPLIT, DOWN_STAGED>(h, m, x, s.hidden, s.inner, shared);
}

// ---- norm, gate and up, h = silu(gate) * up ----
extern "C" __global__ void __launch_bounds__(MATRIX_THREADS)
    gate_up(Shape s, const float* x, const narrow* gain, Matrix m, float* h) {
  DYNAMIC_SHARED(shared);
  const int columns = s.hidden;
  float *squares = shared + BATCH * columns, *partial = squares + BATCH * 32;
  auto row_of = [&](int pair, int half) { return (size_t)pair + (size_t)half * s.inner; };
  prefetch_rows<WEIGHTS, GATE_UP_PAIRS, GATE_UP_SPLIT>(m, s.inner, columns, row_of);
  stage_scaled<WEIGHTS>(x, gain, columns, (float4*)shared, squares);
  float inverse[BATCH];
  inverse_rms(squares, columns, s.norm_eps, inverse);
  multiply<WEIGHTS, GATE_UP_PAIRS, GATE_UP_SPLIT, true>(
      m, (const float4*)shared, s.inner, columns, partial, row_of, [&](int pair, int b, float gate, float up) {
        float scale = inverse[0];
#pragma unroll
        for (int n = 1; n < BATCH; n++) scale = b == n ? inverse[n] : scale;
        h[(size_t)b * s.inner + pair] = silu(gate * scale) * (up * scale);
      });
}

// ---- last norm, output head ----
extern "C" __global__ void __launch_bounds__(MATRIX_THREADS)
    head(Shape s, const float* x, const narrow* gain, Matrix m, float* logits) {
  DYNAMIC_SHARED(shared);
  const int columns = s.hidden, pairs = (s.vocabulary + 1) / 2;
  float *squares = shared + BATCH * columns, *partial = squares + BATCH * 32;
  auto row_of = [&](int pair, int h) { return (size_t)min(2 * pair + h, s.vocabulary - 1); };
  prefetch_rows<WIDE, HEAD_PAIRS, HEAD_SPLIT>(m, pairs, columns, row_of);
  stage_scaled<WIDE>(x, gain, columns, (float4*)shared, squares);
  float inverse[BATCH];
  inverse_rms(squares, columns, s.norm_eps, inverse);
  multiply<WIDE, HEAD_PAIRS, HEAD_SPLIT, true>(
      m, (const float4*)shared, pairs, columns, partial, row_of, [&](int pair, int b, float u, float v) {
        float scale = inverse[0];
#pragma unroll
        for (int n = 1; n < BATCH; n++) scale = b == n ? inverse[n] : scale;
        float* to = logits + (size_t)b * s.vocabulary + 2 * pair;
        to[0] = u * scale;
        if (2 * pair + 1 < s.vocabulary) to[1] = v * scale;
      });
}
