// One decode step of the reference decoder on a CPU, written to be timed. Names and order follow the CUDA kernels;
// here each normalisation, rotation and SwiGLU is a kernel of its own. Reads top down in the order of a step:
//
//   embed, then per layer: normalise, linear (qkv), rotate, attention, linear (output, added to the residual),
//   normalise, linear (gate_up), swiglu, linear (down, added), then normalise, linear (head), argmax.
//
// Weights are fp32, bf16 or int8 with one fp32 scale per row; everything else is fp32. A weight is read from memory
// once for up to eight sequences (two passes over a tile of rows that stays in the cache for up to sixteen).
// A cache block holds 16 tokens of one key-value head: keys lie transposed in it ([head_size][16]), so that one
// vector register gives 16 scores without a sum across its lanes; values lie as they come ([16][head_size]).

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#ifdef _OPENMP
#include <omp.h>
#endif
#ifdef __AVX512F__
#include <immintrin.h>  // gcc 12 widens bytes and halves element by element unless told the instruction
#endif

typedef float Vector __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint32_t Words __attribute__((vector_size(64)));
constexpr int LANES = 16;
constexpr int BLOCK_TOKENS = 16;

struct BFloat16 { uint16_t bits; };

static inline Vector load16(const float* p) { return *reinterpret_cast<const Vector*>(p); }

static inline Vector load16(const BFloat16* p) {
#ifdef __AVX512F__
    __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return reinterpret_cast<Vector>(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
#else
    typedef uint16_t Halves __attribute__((vector_size(32)));
    Halves halves;
    std::memcpy(&halves, p, sizeof halves);
    return reinterpret_cast<Vector>(__builtin_convertvector(halves, Words) << 16);
#endif
}

static inline Vector load16(const int8_t* p) {
#ifdef __AVX512F__
    __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return reinterpret_cast<Vector>(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)));
#else
    typedef int8_t Bytes __attribute__((vector_size(16)));
    Bytes bytes;
    std::memcpy(&bytes, p, sizeof bytes);
    typedef float Floats __attribute__((vector_size(64)));
    return __builtin_convertvector(bytes, Floats);
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
    for (int b = 0; b < batch; b++)
        for (int i = 0; i < hidden; i++) x[size_t(b) * hidden + i] = widen(table[size_t(tokens[b]) * hidden + i]);
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

// ROWS outputs of SEQUENCES inputs: each weight is loaded once and used for every sequence of the tile.
template <class Weight, int ROWS, int SEQUENCES>
static void tile(const Weight* w, const float* scale, const float* x, float* y, int rows, int columns, bool add) {
    Vector total[ROWS][SEQUENCES] = {};
    constexpr int LINE = 64 / sizeof(Weight);  // weights of one cache line; the same line of the next tile is fetched ahead
    for (int line = 0; line < columns; line += LINE) {
        for (int r = 0; r < ROWS; r++) __builtin_prefetch(w + size_t(ROWS + r) * columns + line, 0, 2);
        int end = line + LINE < columns ? line + LINE : columns;
        for (int k = line; k < end; k += LANES) {
            Vector weight[ROWS];
            for (int r = 0; r < ROWS; r++) weight[r] = load16(w + size_t(r) * columns + k);
            for (int b = 0; b < SEQUENCES; b++) {
                Vector input = load16(x + size_t(b) * columns + k);
                for (int r = 0; r < ROWS; r++) total[r][b] += weight[r] * input;
            }
        }
    }
    for (int b = 0; b < SEQUENCES; b++)
        for (int r = 0; r < ROWS; r++) {
            float value = sum(total[r][b]) * (scale ? scale[r] : 1.0f);
            float* out = y + size_t(b) * rows + r;
            *out = add ? *out + value : value;
        }
}

// All sequences of ROWS rows, in tiles of 8, 4, 2 and 1 sequences.
template <class Weight, int ROWS>
static void tiles(const Weight* w, const float* scale, const float* x, float* y, int rows, int columns, int batch,
                  bool add) {
    int b = 0;
    auto take = [&](auto run, int sequences) {
        for (; batch - b >= sequences; b += sequences)
            run(w, scale, x + size_t(b) * columns, y + size_t(b) * rows, rows, columns, add);
    };
    take(tile<Weight, ROWS, 8>, 8);
    take(tile<Weight, ROWS, 4>, 4);
    take(tile<Weight, ROWS, 2>, 2);
    take(tile<Weight, ROWS, 1>, 1);
}

template <class Weight, int ROWS>
static void linear_rows(const Weight* w, const float* scale, const float* x, float* y, int rows, int columns,
                        int batch, bool add) {
    int whole = rows / ROWS;
#pragma omp parallel for schedule(static)
    for (int i = 0; i < whole; i++) {
        int row = i * ROWS;
        tiles<Weight, ROWS>(w + size_t(row) * columns, scale ? scale + row : nullptr, x, y + row, rows, columns,
                            batch, add);
    }
    for (int row = whole * ROWS; row < rows; row++)
        tiles<Weight, 1>(w + size_t(row) * columns, scale ? scale + row : nullptr, x, y + row, rows, columns, batch,
                         add);
}

// y = x W^T, or y += x W^T. Four rows share the inputs; three where eight sequences take 24 registers for sums.
template <class Weight>
static void linear(const Weight* w, const float* scale, const float* x, float* y, int rows, int columns, int batch,
                   bool add) {
    if (batch < 8) linear_rows<Weight, 4>(w, scale, x, y, rows, columns, batch, add);
    else linear_rows<Weight, 3>(w, scale, x, y, rows, columns, batch, add);
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

template <int HEAD>
static inline void add_block(Running<HEAD>& run, const float* query, const float* keys, const float* values,
                             float scale, int first, int last) {
    Vector part[4] = {};
    for (int i = 0; i < HEAD; i++) part[i % 4] += query[i] * load16(keys + i * BLOCK_TOKENS);
    Vector score = (part[0] + part[1] + part[2] + part[3]) * scale;
    float weights[BLOCK_TOKENS], largest = run.largest;
    for (int t = first; t < last; t++) largest = score[t] > largest ? score[t] : largest;
    float keep = std::exp(run.largest - largest), total = 0;
    Vector distance = score - largest;
    std::memcpy(weights, &distance, sizeof weights);
#pragma omp simd
    for (int t = 0; t < BLOCK_TOKENS; t++) weights[t] = std::exp(weights[t]);
    for (int v = 0; v < HEAD / LANES; v++) run.values[v] *= keep;
    for (int t = first; t < last; t++) {
        total += weights[t];
        for (int v = 0; v < HEAD / LANES; v++) run.values[v] += weights[t] * load16(values + t * HEAD + v * LANES);
    }
    run.total = run.total * keep + total;
    run.largest = largest;
}

constexpr int BLOCKS_AHEAD = 2;  // blocks lie anywhere in memory, so the processor does not foresee the next

template <int HEAD> static inline void fetch(const float* block) {
    for (int i = 0; i < HEAD * BLOCK_TOKENS; i += LANES) __builtin_prefetch(block + i, 0, 2);
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
                if ((block + BLOCKS_AHEAD) * BLOCK_TOKENS < end) {
                    fetch<HEAD>(block_of(c.keys, c, b, block + BLOCKS_AHEAD, kv));
                    fetch<HEAD>(block_of(c.values, c, b, block + BLOCKS_AHEAD, kv));
                }
                const float *keys = block_of(c.keys, c, b, block, kv), *values = block_of(c.values, c, b, block, kv);
                int first = begin - block * BLOCK_TOKENS, last = end - block * BLOCK_TOKENS;
                first = first < 0 ? 0 : first;
                last = last > BLOCK_TOKENS ? BLOCK_TOKENS : last;
                for (int g = 0; g < count; g++)
                    add_block<HEAD>(runs[g], query + g * HEAD, keys, values, scale, first, last);
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

// Sum of a buffer, read as `streams` rows side by side as `tile` does.
double ref_read(const float* p, size_t count, int streams) {
    double total = 0;
    size_t chunk = 8192, row = chunk / streams;
#pragma omp parallel for schedule(static) reduction(+ : total)
    for (size_t c = 0; c < count / chunk; c++) {
        Vector part[4] = {};
        const float* base = p + c * chunk;
        for (size_t i = 0; i < row; i += LANES)
            for (int s = 0; s < streams; s++) {
                part[s % 4] += load16(base + s * row + i);
                __builtin_prefetch(base + s * row + i + 512, 0, 3);
            }
        total += sum(part[0] + part[1] + part[2] + part[3]);
    }
    return total;
}

// Multiply-adds on registers alone: 24 independent chains of 16 lanes. Returns a value so that nothing is dropped.
float ref_multiply_add(const float* seed, size_t rounds) {
    Vector total[24], factor = load16(seed), other = load16(seed + LANES);
    for (int i = 0; i < 24; i++) total[i] = load16(seed + LANES * (i % 2));
    for (size_t round = 0; round < rounds; round++) {
        for (int i = 0; i < 24; i++) total[i] = total[i] * factor + other;
    }
    Vector all = total[0];
    for (int i = 1; i < 24; i++) all += total[i];
    return sum(all);
}
}
