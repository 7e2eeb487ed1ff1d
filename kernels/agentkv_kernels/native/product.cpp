// Products with a matrix of narrow weights, which are widened in registers and multiplied in float32.
//
// A product of few rows takes as long as reading the weights, if widening them does not take longer: each weight is
// widened once for up to kTile rows.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "vectors.h"

namespace {

inline float widened_one(int8_t weight) { return float(weight); }
inline float widened_one(uint16_t weight) { return from_bf16(weight); }

// The dot products of a row of weights with Rows rows of x, all `size` long and apart. Each is summed in several chains
// of additions where it would have to wait for itself.
template <int64_t Rows, typename Weight>
void dots(const float* x, const Weight* weights, int64_t size, float* out) {
  constexpr int64_t kChains = Rows == 1 ? 4 : Rows <= 4 ? 2 : 1;
  Floats sums[Rows][kChains] = {};
  int64_t k = 0;
  for (; k + kChains * kWidth <= size; k += kChains * kWidth)
#pragma GCC unroll 4
    for (int64_t chain = 0; chain < kChains; ++chain) {
      const int64_t at = k + chain * kWidth;
      const Floats weight = widened(weights + at);
#pragma GCC unroll 8
      for (int64_t row = 0; row < Rows; ++row) sums[row][chain] += weight * loaded(x + row * size + at);
    }
  for (int64_t row = 0; row < Rows; ++row) {
    float total = 0.0f;
    for (int64_t chain = 0; chain < kChains; ++chain) total += sum(sums[row][chain]);
    for (int64_t rest = k; rest < size; ++rest) total += x[row * size + rest] * widened_one(weights[rest]);
    out[row] = total;
  }
}

constexpr int64_t kTile = 8;  // rows that go through the weights together
template <typename Weight>
using Dots = void (*)(const float*, const Weight*, int64_t, float*);
template <typename Weight>
constexpr Dots<Weight> kDots[kTile] = {dots<1, Weight>, dots<2, Weight>, dots<3, Weight>, dots<4, Weight>,
                                       dots<5, Weight>, dots<6, Weight>, dots<7, Weight>, dots<8, Weight>};

template <typename Weight>
void multiply(int64_t rows, int64_t n, int64_t size, const float* x, const Weight* weights, const uint16_t* scales,
              const uint16_t* bias, int64_t threads, uint16_t* out) {
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (int64_t i = 0; i < n; ++i) {
    const float scale = scales == nullptr ? 1.0f : from_bf16(scales[i]);
    const float added = bias == nullptr ? 0.0f : from_bf16(bias[i]);
    for (int64_t first = 0; first < rows; first += kTile) {
      const int64_t count = std::min(kTile, rows - first);
      float products[kTile];
      kDots<Weight>[count - 1](x + first * size, weights + i * size, size, products);
      for (int64_t row = 0; row < count; ++row) out[(first + row) * n + i] = to_bf16(products[row] * scale + added);
    }
  }
}

}  // namespace

extern "C" {

// x [rows, size] times weights [n, size] transposed, times scales [n], plus bias [n] where they are not null: out
// [rows, n]. The weights are int8 if `codes`, else bfloat16 as all the rest is.
void agentkv_multiply(int64_t rows, int64_t n, int64_t size, const uint16_t* x, const void* weights, int64_t codes,
                      const uint16_t* scales, const uint16_t* bias, int64_t threads, uint16_t* out) {
  static thread_local std::vector<float> buffer;
  buffer.resize(rows * size);
  float* wide = buffer.data();
  for (int64_t i = 0; i < rows * size; ++i) wide[i] = from_bf16(x[i]);
  if (codes != 0)
    multiply(rows, n, size, wide, static_cast<const int8_t*>(weights), scales, bias, threads, out);
  else
    multiply(rows, n, size, wide, static_cast<const uint16_t*>(weights), scales, bias, threads, out);
}

}  // extern "C"
