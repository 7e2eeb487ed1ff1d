// Products of a few rows with a matrix of int8 weights, a scale per row of it.
//
// Such a product takes as long as reading the weights, if widening them does not take longer. Each weight is read and
// widened once for up to kTile rows, and multiplied in float32.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "bfloat16.h"

namespace {

constexpr int64_t kTile = 8;  // rows that go through the weights together

#if defined(__AVX512F__)
constexpr int64_t kWidth = 16;
using Floats = __m512;
inline Floats widened(const int8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
inline Floats loaded(const float* p) { return _mm512_loadu_ps(p); }
inline float sum(Floats v) { return _mm512_reduce_add_ps(v); }
#elif defined(__AVX2__)
constexpr int64_t kWidth = 8;
using Floats = __m256;
inline Floats widened(const int8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
inline Floats loaded(const float* p) { return _mm256_loadu_ps(p); }
inline float sum(Floats v) {
  float lanes[kWidth];
  _mm256_storeu_ps(lanes, v);
  return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) + ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}
#else  // whatever the compiler makes of it
constexpr int64_t kWidth = 4;
typedef float Floats __attribute__((vector_size(16)));
inline Floats widened(const int8_t* p) { return Floats{float(p[0]), float(p[1]), float(p[2]), float(p[3])}; }
inline Floats loaded(const float* p) {
  Floats v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline float sum(Floats v) { return (v[0] + v[2]) + (v[1] + v[3]); }
#endif

// The dot products of one row of weights with Rows rows of x, which lie `size` apart. Each is summed in several chains
// of additions, so that none has to wait for the one before.
template <int64_t Rows>
void dots(const float* x, const int8_t* weights, int64_t size, float* out) {
  constexpr int64_t kChains = Rows == 1 ? 4 : Rows <= 4 ? 2 : 1;
  Floats sums[Rows][kChains] = {};
  int64_t k = 0;
  for (; k + kChains * kWidth <= size; k += kChains * kWidth)
    for (int64_t chain = 0; chain < kChains; ++chain) {
      const int64_t at = k + chain * kWidth;
      const Floats weight = widened(weights + at);
      for (int64_t row = 0; row < Rows; ++row) sums[row][chain] += weight * loaded(x + row * size + at);
    }
  for (int64_t row = 0; row < Rows; ++row) {
    float total = 0.0f;
    for (int64_t chain = 0; chain < kChains; ++chain) total += sum(sums[row][chain]);
    for (int64_t rest = k; rest < size; ++rest) total += x[row * size + rest] * float(weights[rest]);
    out[row] = total;
  }
}

using Dots = void (*)(const float*, const int8_t*, int64_t, float*);
constexpr Dots kDots[kTile] = {dots<1>, dots<2>, dots<3>, dots<4>, dots<5>, dots<6>, dots<7>, dots<8>};

}  // namespace

extern "C" {

// x [rows, size] times codes [n, size] transposed, times scales [n], plus bias [n] or null: out [rows, n]. All but the
// codes are bfloat16.
void agentkv_multiply(int64_t rows, int64_t n, int64_t size, const uint16_t* x, const int8_t* codes,
                      const uint16_t* scales, const uint16_t* bias, int64_t threads, uint16_t* out) {
  static thread_local std::vector<float> buffer;
  buffer.resize(rows * size);
  float* wide = buffer.data();  // thread_local names another vector in another thread
  for (int64_t i = 0; i < rows * size; ++i) wide[i] = from_bf16(x[i]);
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (int64_t i = 0; i < n; ++i) {
    const float scale = from_bf16(scales[i]), added = bias == nullptr ? 0.0f : from_bf16(bias[i]);
    for (int64_t first = 0; first < rows; first += kTile) {
      const int64_t count = std::min(kTile, rows - first);
      float product[kTile];
      kDots[count - 1](wide + first * size, codes + i * size, size, product);
      for (int64_t row = 0; row < count; ++row) out[(first + row) * n + i] = to_bf16(product[row] * scale + added);
    }
  }
}

}  // extern "C"
