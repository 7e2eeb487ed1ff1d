// Narrow numbers, and as many of them at once as the processor takes: kWidth floats.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

inline float from_bf16(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }

inline uint16_t to_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return uint16_t(bits >> 16 | 0x40);
  return uint16_t((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);  // to the nearest, ties to even
}

// e4m3 without infinities: sign, 4 bits of exponent biased by 7, 3 bits of mantissa. In a float's place its exponent is
// 120 too small.
inline float from_fp8(int8_t code) {
  const uint32_t byte = uint8_t(code);
  return std::bit_cast<float>((byte & 0x80u) << 24 | (byte & 0x7fu) << 20) * 0x1p120f;
}

#if defined(__AVX512F__)
constexpr int64_t kWidth = 16;
using Floats = __m512;
inline Floats widened(const int8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
inline Floats widened(const uint16_t* p) {
  const __m512i bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
}
inline Floats loaded(const float* p) { return _mm512_loadu_ps(p); }
inline void stored(float* p, Floats v) { _mm512_storeu_ps(p, v); }
inline Floats widened_fp8(const int8_t* p) {
  const __m512i byte = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m512i sign = _mm512_slli_epi32(_mm512_and_si512(byte, _mm512_set1_epi32(0x80)), 24);
  const __m512i rest = _mm512_slli_epi32(_mm512_and_si512(byte, _mm512_set1_epi32(0x7f)), 20);
  return _mm512_castsi512_ps(_mm512_or_si512(sign, rest)) * 0x1p120f;
}
inline float sum(Floats v) { return _mm512_reduce_add_ps(v); }
inline void sums_of_four(const Floats* v, float* out) {
  for (int i = 0; i < 4; ++i) out[i] = sum(v[i]);
}
#elif defined(__AVX2__)
constexpr int64_t kWidth = 8;
using Floats = __m256;
inline Floats widened(const int8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
inline Floats widened(const uint16_t* p) {
  const __m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
}
inline Floats widened_fp8(const int8_t* p) {
  const __m256i byte = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(byte, _mm256_set1_epi32(0x80)), 24);
  const __m256i rest = _mm256_slli_epi32(_mm256_and_si256(byte, _mm256_set1_epi32(0x7f)), 20);
  return _mm256_castsi256_ps(_mm256_or_si256(sign, rest)) * 0x1p120f;
}
inline Floats loaded(const float* p) { return _mm256_loadu_ps(p); }
inline void stored(float* p, Floats v) { _mm256_storeu_ps(p, v); }
inline float sum(Floats v) {
  const __m128 half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 pair = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
}
inline void sums_of_four(const Floats* v, float* out) {
  const __m256 all = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
  _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
}
#else  // whatever the compiler makes of it
constexpr int64_t kWidth = 4;
typedef float Floats __attribute__((vector_size(16)));
inline Floats widened(const int8_t* p) { return Floats{float(p[0]), float(p[1]), float(p[2]), float(p[3])}; }
inline Floats widened(const uint16_t* p) {
  return Floats{from_bf16(p[0]), from_bf16(p[1]), from_bf16(p[2]), from_bf16(p[3])};
}
inline Floats widened_fp8(const int8_t* p) {
  return Floats{from_fp8(p[0]), from_fp8(p[1]), from_fp8(p[2]), from_fp8(p[3])};
}
inline Floats loaded(const float* p) {
  Floats v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline void stored(float* p, Floats v) { std::memcpy(p, &v, sizeof v); }
inline float sum(Floats v) { return (v[0] + v[2]) + (v[1] + v[3]); }
inline void sums_of_four(const Floats* v, float* out) {
  for (int i = 0; i < 4; ++i) out[i] = sum(v[i]);
}
#endif
