// One decode step of the reference decoder on a CPU, written to be timed. Names and order follow the CUDA kernels;
// here each normalisation, rotation and SwiGLU is a kernel of its own. Reads top down in the order of a step:
//
//   embed, then per layer: normalise, linear (qkv), rotate, attention, linear (output, added to the residual),
//   normalise, linear (gate_up), swiglu, linear (down, added), then normalise, linear (head), argmax.
//
// Weights are fp32, bf16 or int8 with one fp32 scale per row; everything else is fp32. Every matrix lies in panels of
// 16 rows, [row / 16][column][row % 16], so that it is one stream, read from memory once for all sequences, and a sum
// needs no other lane.
// A cache block holds 16 tokens of one key-value head: keys lie transposed in it ([head_size][16]), so that one
// vector register gives 16 scores without a sum across its lanes; values lie as they come ([16][head_size]).

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#ifdef _OPENMP
#include <omp.h>
#endif
#ifdef __AVX2__
#include <immintrin.h>  // gcc 12 widens bytes and halves element by element unless told the instruction
#endif

#ifdef __AVX512F__
constexpr int LANES = 16;  // floats of one vector register
#else
constexpr int LANES = 8;
#endif
constexpr int PANEL = 16;  // rows of a panel
constexpr int BLOCK_TOKENS = 16;
typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

struct BFloat16 { uint16_t bits; };

static inline Vector load(const float* p) { return *reinterpret_cast<const Vector*>(p); }

static inline Vector load(const BFloat16* p) {
#if defined(__AVX512F__)
    __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return reinterpret_cast<Vector>(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
#elif defined(__AVX2__)
    __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return reinterpret_cast<Vector>(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
#else
    typedef uint16_t Halves __attribute__((vector_size(2 * LANES)));
    typedef uint32_t Words __attribute__((vector_size(4 * LANES)));
    Halves halves;
    std::memcpy(&halves, p, sizeof halves);
    return reinterpret_cast<Vector>(__builtin_convertvector(halves, Words) << 16);
#endif
}

static inline Vector load(const int8_t* p) {
#if defined(__AVX512F__)
    __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return reinterpret_cast<Vector>(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)));
#elif defined(__AVX2__)
    __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    return reinterpret_cast<Vector>(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)));
#else
    typedef int8_t Bytes __attribute__((vector_size(LANES)));
    Bytes bytes;
    std::memcpy(&bytes, p, sizeof bytes);
    return __builtin_convertvector(bytes, Vector);
#endif
}

static inline float widen(float value) { return value; }

static inline float widen(BFloat16 value) {
    uint32_t word = uint32_t(value.bits) << 16;
    float result;
    std::memcpy(&result, &word, sizeof result);
    return result;
}

static inline float sum(Vector v) {
    float total = 0;
    for (int i = 0; i < LANES; i++) total += v[i];
    return total;
}

template <class Weight>
static void embed(const Weight* table, const int32_t* tokens, float* x, int batch, int hidden) {
    for (int b = 0; b < batch; b++) {
        const Weight* row = table + size_t(tokens[b] / PANEL) * PANEL * hidden + tokens[b] % PANEL;
        for (int i = 0; i < hidden; i++) x[size_t(b) * hidden + i] = widen(row[size_t(i) * PANEL]);
    }
}

template <class Weight>
static void normalise(const float* x, const Weight* gain, float* y, int batch, int hidden, float eps) {
    for (int b = 0; b < batch; b++) {
        const float* row = x + size_t(b) * hidden;
        float squares = 0;
        for (int i = 0; i < hidden; i++) squares += row[i] * row[i];
        float scale = 1 / std::sqrt(squares / hidden + eps);
        for (int i = 0; i < hidden; i++) y[size_t(b) * hidden + i] = row[i] * scale * widen(gain[i]);
    }
}

constexpr int VECTORS = PANEL / LANES;  // registers of one column of a panel
constexpr int SEQUENCES = 4;            // sequences of a full tile
constexpr int CHUNK = 256;              // columns of a panel that stay in the first cache while all sequences use them

// The sums of one chunk of a panel for N sequences. Each of the `passes` over a chunk fetches its share of the chunk
// that follows in memory, so that traffic and arithmetic overlap all the time.
template <class Weight, int N>
static inline void tile(const Weight* w, const float* scale, const float* x, size_t x_stride, float* y,
                        size_t y_stride, int columns, bool add, int pass, int passes) {
    constexpr int COLUMN = sizeof(Weight) * PANEL, LINE = 64;                // bytes
    constexpr int CHAINS = 8 / (VECTORS * N) > 1 ? 8 / (VECTORS * N) : 1;  // fewer sums would wait for each other
    constexpr int STEP = 8;                                                  // columns
    Vector total[CHAINS][N][VECTORS] = {};
    auto take = [&](int chain, int column) {
        for (int v = 0; v < VECTORS; v++) {
            Vector weight = load(w + size_t(column) * PANEL + v * LANES);
            for (int b = 0; b < N; b++) total[chain][b][v] += weight * x[b * x_stride + column];
        }
    };
    const char* ahead = reinterpret_cast<const char*>(w + CHUNK * PANEL) + columns * COLUMN / passes * pass;
    // A processor foresees a pass over fp32 for one sequence; more arithmetic a byte would leave its memory idle.
    bool fetch = N > 1 || passes > 1 || sizeof(Weight) < sizeof(float);
    int column = 0, stride = LINE / passes;
    for (; column + STEP <= columns; column += STEP) {
        if (fetch)
            for (int line = 0; line < STEP * COLUMN / LINE; line++, ahead += stride) __builtin_prefetch(ahead, 0, 0);
#pragma GCC unroll 8
        for (int i = 0; i < STEP; i++) take(i % CHAINS, column + i);
    }
    for (; column < columns; column++) take(0, column);
    for (int b = 0; b < N; b++)
        for (int v = 0; v < VECTORS; v++) {
            Vector value = total[0][b][v];
            for (int chain = 1; chain < CHAINS; chain++) value += total[chain][b][v];
            if (scale) value *= load(scale + v * LANES);
            Vector* out = reinterpret_cast<Vector*>(y + b * y_stride + v * LANES);
            *out = add ? *out + value : value;
        }
}

// One chunk for all sequences, in tiles of 4, 2 and 1.
template <class Weight>
static void chunk(const Weight* w, const float* scale, const float* x, size_t x_stride, float* y, size_t y_stride,
                  int columns, int batch, bool add) {
    int b = 0, pass = 0, passes = batch / SEQUENCES + (batch % SEQUENCES + 1) / 2;
    auto take = [&](auto run, int sequences) {
        for (; batch - b >= sequences; b += sequences)
            run(w, scale, x + b * x_stride, x_stride, y + b * y_stride, y_stride, columns, add, pass++, passes);
    };
    take(tile<Weight, SEQUENCES>, SEQUENCES);
    take(tile<Weight, 2>, 2);
    take(tile<Weight, 1>, 1);
}

// y = x W^T, or y += x W^T.
template <class Weight>
static void linear(const Weight* w, const float* scale, const float* x, float* y, int rows, int columns, int batch,
                   bool add) {
#pragma omp parallel for schedule(static)
    for (int row = 0; row < rows; row += PANEL)
        for (int first = 0; first < columns; first += CHUNK) {
            int count = columns - first < CHUNK ? columns - first : CHUNK;
            chunk(w + size_t(row) * columns + size_t(first) * PANEL, scale ? scale + row : nullptr, x + first, columns,
                  y + row, rows, count, batch, add || first);
        }
}

// Where the parts of one layer of the paged cache lie. `blocks` counts the blocks of the whole cache.
struct Cache {
    float* keys;            // [block][kv_head][head_size][16]
    float* values;          // [block][kv_head][16][head_size]
    const int32_t* table;   // [batch][table_width]: block of each 16 tokens of a sequence
    int32_t table_width;
    int32_t query_heads, kv_heads, head_size, window;
};

static inline float* block_of(float* base, const Cache& c, int sequence, int block, int head) {
    size_t page = size_t(c.table[size_t(sequence) * c.table_width + block]);
    return base + (page * c.kv_heads + head) * size_t(c.head_size) * BLOCK_TOKENS;
}

// Rotates queries and keys in place (pairs i and i + head_size / 2) and appends keys and values to the cache.
static void rotate(float* qkv, const float* cosine, const float* sine, const Cache& c, const int32_t* positions,
                   int batch) {
    int half = c.head_size / 2, heads = c.query_heads + 2 * c.kv_heads;
    for (int b = 0; b < batch; b++) {
        float* row = qkv + size_t(b) * heads * c.head_size;
        int position = positions[b], block = position / BLOCK_TOKENS, slot = position % BLOCK_TOKENS;
        const float *co = cosine + size_t(position) * half, *si = sine + size_t(position) * half;
        for (int h = 0; h < c.query_heads + c.kv_heads; h++) {
            float* head = row + size_t(h) * c.head_size;
            for (int i = 0; i < half; i++) {
                float a = head[i], d = head[i + half];
                head[i] = a * co[i] - d * si[i];
                head[i + half] = d * co[i] + a * si[i];
            }
        }
        for (int h = 0; h < c.kv_heads; h++) {
            const float* key = row + size_t(c.query_heads + h) * c.head_size;
            const float* value = row + size_t(c.query_heads + c.kv_heads + h) * c.head_size;
            float *keys = block_of(c.keys, c, b, block, h), *values = block_of(c.values, c, b, block, h);
            for (int i = 0; i < c.head_size; i++) keys[i * BLOCK_TOKENS + slot] = key[i];
            for (int i = 0; i < c.head_size; i++) values[slot * c.head_size + i] = value[i];
        }
    }
}

// Softmax seen so far of one query: largest score, sum of exponentials, and the weighted sum of values.
template <int HEAD> struct Running {
    float largest = -1e30f, total = 0;  // finite, so that the compiler may assume finite arithmetic
    Vector values[HEAD / LANES] = {};
};

constexpr int LINE_FLOATS = 16;  // of one cache line

// The next block is fetched ahead line by line: blocks lie anywhere in memory, so the processor does not foresee it.
template <int HEAD>
static inline void add_block(Running<HEAD>& run, const float* query, const float* keys, const float* values,
                             const float* next_keys, const float* next_values, float scale, int first, int last) {
    constexpr int VECTORS = BLOCK_TOKENS / LANES;
    Vector part[4][VECTORS] = {};
    for (int i = 0; i < HEAD; i += 4)
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            __builtin_prefetch(next_keys + (i + j) * BLOCK_TOKENS, 0, 0);
            for (int v = 0; v < VECTORS; v++)
                part[j][v] += query[i + j] * load(keys + (i + j) * BLOCK_TOKENS + v * LANES);
        }
    float weights[BLOCK_TOKENS], largest = run.largest;
    for (int v = 0; v < VECTORS; v++) {
        Vector score = (part[0][v] + part[1][v] + part[2][v] + part[3][v]) * scale;
        std::memcpy(weights + v * LANES, &score, sizeof score);
    }
    for (int t = first; t < last; t++) largest = weights[t] > largest ? weights[t] : largest;
    float keep = std::exp(run.largest - largest), total = 0;
#pragma omp simd
    for (int t = 0; t < BLOCK_TOKENS; t++) weights[t] = std::exp(weights[t] - largest);
    Vector attended[HEAD / LANES];  // a copy of its own, which stays in registers
    for (int v = 0; v < HEAD / LANES; v++) attended[v] = run.values[v] * keep;
    for (int t = first; t < last; t++) {
        total += weights[t];
        for (int i = 0; i < HEAD; i += LINE_FLOATS) __builtin_prefetch(next_values + t * HEAD + i, 0, 0);
        for (int v = 0; v < HEAD / LANES; v++) attended[v] += weights[t] * load(values + t * HEAD + v * LANES);
    }
    for (int v = 0; v < HEAD / LANES; v++) run.values[v] = attended[v];
    run.total = run.total * keep + total;
    run.largest = largest;
}

constexpr int GROUP = 8;  // query heads that share one pass over the cache

// Attention of the newest token of each sequence over its window; each block is read once for GROUP query heads.
template <int HEAD>
static void attention(const float* qkv, float* out, const Cache& c, const int32_t* positions, int batch) {
    int group = c.query_heads / c.kv_heads, heads = c.query_heads + 2 * c.kv_heads;
    float scale = 1 / std::sqrt(float(HEAD));
#pragma omp parallel for schedule(static)
    for (int job = 0; job < batch * c.kv_heads; job++) {
        int b = job / c.kv_heads, kv = job % c.kv_heads, end = positions[b] + 1;
        int begin = c.window && end > c.window ? end - c.window : 0;
        for (int start = 0; start < group; start += GROUP) {
            int count = group - start < GROUP ? group - start : GROUP;
            Running<HEAD> runs[GROUP];
            const float* query = qkv + (size_t(b) * heads + kv * group + start) * HEAD;
            for (int block = begin / BLOCK_TOKENS; block * BLOCK_TOKENS < end; block++) {
                int next = (block + 1) * BLOCK_TOKENS < end ? block + 1 : block;
                const float *keys = block_of(c.keys, c, b, block, kv), *values = block_of(c.values, c, b, block, kv);
                int first = begin - block * BLOCK_TOKENS, last = end - block * BLOCK_TOKENS;
                first = first < 0 ? 0 : first;
                last = last > BLOCK_TOKENS ? BLOCK_TOKENS : last;
                for (int g = 0; g < count; g++)
                    add_block<HEAD>(runs[g], query + g * HEAD, keys, values, block_of(c.keys, c, b, next, kv),
                                    block_of(c.values, c, b, next, kv), scale, first, last);
            }
            for (int g = 0; g < count; g++)
                for (int i = 0; i < HEAD; i++)
                    out[(size_t(b) * c.query_heads + kv * group + start + g) * HEAD + i] =
                        runs[g].values[i / LANES][i % LANES] / runs[g].total;
        }
    }
}

static void swiglu(const float* gate_up, float* product, int batch, int inner) {
    for (int b = 0; b < batch; b++) {
        const float *gate = gate_up + size_t(b) * 2 * inner, *up = gate + inner;
        for (int i = 0; i < inner; i++)
            product[size_t(b) * inner + i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    }
}

static void argmax(const float* logits, int32_t* tokens, int batch, int vocabulary) {
    for (int b = 0; b < batch; b++) {
        const float* row = logits + size_t(b) * vocabulary;
        int best = 0;
        for (int i = 1; i < vocabulary; i++) best = row[i] > row[best] ? i : best;
        tokens[b] = best;
    }
}

// ---- entry points; format: 0 fp32, 1 bf16, 2 int8 ----

extern "C" {

void ref_threads(int count) {
#ifdef _OPENMP
    omp_set_num_threads(count);
#endif
}

void ref_embed(int format, const void* table, const int32_t* tokens, float* x, int batch, int hidden) {
    if (format == 0) embed(static_cast<const float*>(table), tokens, x, batch, hidden);
    else embed(static_cast<const BFloat16*>(table), tokens, x, batch, hidden);
}

void ref_normalise(int format, const float* x, const void* gain, float* y, int batch, int hidden, float eps) {
    if (format == 0) normalise(x, static_cast<const float*>(gain), y, batch, hidden, eps);
    else normalise(x, static_cast<const BFloat16*>(gain), y, batch, hidden, eps);
}

void ref_linear(int format, const void* w, const float* scale, const float* x, float* y, int rows, int columns,
                int batch, int add) {
    if (format == 0) linear(static_cast<const float*>(w), scale, x, y, rows, columns, batch, add != 0);
    else if (format == 1) linear(static_cast<const BFloat16*>(w), scale, x, y, rows, columns, batch, add != 0);
    else linear(static_cast<const int8_t*>(w), scale, x, y, rows, columns, batch, add != 0);
}

void ref_rotate(float* qkv, const float* cosine, const float* sine, const Cache* c, const int32_t* positions,
                int batch) {
    rotate(qkv, cosine, sine, *c, positions, batch);
}

int ref_attention(const float* qkv, float* out, const Cache* c, const int32_t* positions, int batch) {
    switch (c->head_size) {
        case 16: attention<16>(qkv, out, *c, positions, batch); return 0;
        case 32: attention<32>(qkv, out, *c, positions, batch); return 0;
        case 64: attention<64>(qkv, out, *c, positions, batch); return 0;
        case 128: attention<128>(qkv, out, *c, positions, batch); return 0;
        case 256: attention<256>(qkv, out, *c, positions, batch); return 0;
    }
    return 1;
}

void ref_swiglu(const float* gate_up, float* product, int batch, int inner) {
    swiglu(gate_up, product, batch, inner);
}

void ref_argmax(const float* logits, int32_t* tokens, int batch, int vocabulary) {
    argmax(logits, tokens, batch, vocabulary);
}

// ---- ceilings: the same streams without the model ----

// Sum of a buffer.
double ref_read(const float* p, size_t count) {
    constexpr size_t STEP = 8 * LANES;
    double total = 0;
#pragma omp parallel reduction(+ : total)
    {
        Vector part[8] = {};
#pragma omp for schedule(static)
        for (size_t i = 0; i < count / STEP; i++)
#pragma GCC unroll 8
            for (int v = 0; v < 8; v++) part[v] += load(p + i * STEP + v * LANES);
        for (int v = 1; v < 8; v++) part[0] += part[v];
        total += sum(part[0]);
    }
    return total;
}

// Multiply-adds on registers alone, in chains that do not wait for each other. Returns those of one round.
int ref_multiply_add(const float* seed, float* result, size_t rounds) {
    constexpr int SUMS = 12;
    Vector total[SUMS], factor = load(seed), other = load(seed + LANES);
    for (int i = 0; i < SUMS; i++) total[i] = load(seed + LANES * (i % 2));
    for (size_t round = 0; round < rounds; round++) {
#pragma GCC unroll 12
        for (int i = 0; i < SUMS; i++) total[i] = total[i] * factor + other;
    }
    Vector all = total[0];
    for (int i = 1; i < SUMS; i++) all += total[i];
    *result = sum(all);
    return SUMS * LANES;
}
}
