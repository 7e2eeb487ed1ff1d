// Attention of single queries over pages of mixed formats, read where they lie.
//
// The slots of a KV head are cut into pieces; a piece is scored, exponentiated against its own largest score and summed
// with its values, and the pieces are put together at the end (split-KV with an online softmax). The query heads of a
// KV head go through a piece together, so that each key and each value is read once. Nothing dequantised is written.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "vectors.h"

namespace {

constexpr int kMaxGroup = 16;
constexpr int kMaxDim = 256;
constexpr int64_t kPiece = 256;  // slots of a piece; a multiple of every page size
constexpr float kHidden = -1e30f;

enum Dtype : int64_t { kFloat32 = 0, kBFloat16 = 1 };
enum CodeFormat : int64_t { kInt8Token = 1, kInt8Channel = 2, kFp8Token = 3 };

// e^x for x <= 0, exactly 0 below -87; a polynomial, so that the compiler can do many at once.
inline float exp_negative(float x) {
  const float clamped = std::max(x, -87.0f);
  const float shifted = clamped * 1.44269504f + 12582912.0f;
  const float n = shifted - 12582912.0f;
  const float r = clamped - n * 0.693359375f + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const float result = p * std::bit_cast<float>((int32_t(n) + 127) << 23);
  return x < -87.0f ? 0.0f : result;
}

struct Float32 {
  using Stored = float;
  static float one(const float* p) { return *p; }
  static Floats many(const float* p) { return loaded(p); }
};
struct BFloat16 {
  using Stored = uint16_t;
  static float one(const uint16_t* p) { return from_bf16(*p); }
  static Floats many(const uint16_t* p) { return widened(p); }
};
struct Int8 {
  using Stored = int8_t;
  static float one(const int8_t* p) { return float(*p); }
  static Floats many(const int8_t* p) { return widened(p); }
};
struct Fp8 {
  using Stored = int8_t;
  static float one(const int8_t* p) { return from_fp8(*p); }
  static Floats many(const int8_t* p) { return widened_fp8(p); }
};

// One region (codes or FP) of one layer.
struct Region {
  const void* halves;       // [half-pages, page_slots, D]
  const int32_t* index;     // [2, H, pages]
  int64_t index_part, index_head;
  int64_t page_slots;
  const float* scales;      // [2, H, slots] or null
  int64_t scale_part, scale_head;
  const float* channels;    // [H, pages, D] scales of K, or null
  int64_t channel_head, channel_page;
  int64_t first_slot;       // where the region begins among the head's slots
};

struct Call {
  int64_t heads, group, dim, slots;
  const float* query;       // [H, group, D], scaled
  const int32_t* token_index;
  int64_t token_head;
  const int32_t* query_index;
  int64_t query_step;       // 0: one for all heads
  int64_t visible_slots;    // the first so many need no mask
  int64_t window;           // 0: none
  float softcap;            // 0: none
};

struct Piece {
  int64_t head, begin, end;  // slots within the region
  bool code;
};

// So many query heads go through keys and values together, as many as there are registers for their sums.
constexpr int64_t kHeads = 4;

// Scores of Slots keys, which follow one another in a page, for Heads queries: scores[head * stride + slot].
template <typename Format, int64_t Heads, int64_t Slots>
inline void score_keys(const typename Format::Stored* keys, int64_t dim, const float* query, const float* scales,
                       float* scores, int64_t stride) {
  Floats sums[Heads][Slots] = {};
  int64_t d = 0;
  for (; d + kWidth <= dim; d += kWidth) {
    Floats own[Heads];
#pragma GCC unroll 8
    for (int64_t head = 0; head < Heads; ++head) own[head] = loaded(query + head * dim + d);
#pragma GCC unroll 4
    for (int64_t slot = 0; slot < Slots; ++slot) {
      const Floats key = Format::many(keys + slot * dim + d);
#pragma GCC unroll 8
      for (int64_t head = 0; head < Heads; ++head) sums[head][slot] += key * own[head];
    }
  }
  for (int64_t head = 0; head < Heads; ++head) {
    float found[Slots];
    if constexpr (Slots == 4)
      sums_of_four(sums[head], found);
    else
      for (int64_t slot = 0; slot < Slots; ++slot) found[slot] = sum(sums[head][slot]);
    for (int64_t slot = 0; slot < Slots; ++slot) {
      for (int64_t rest = d; rest < dim; ++rest)
        found[slot] += Format::one(keys + slot * dim + rest) * query[head * dim + rest];
      scores[head * stride + slot] = scales == nullptr ? found[slot] : found[slot] * scales[slot];
    }
  }
}

template <typename Format, int64_t Heads>
void score_page(const typename Format::Stored* keys, int64_t count, int64_t dim, const float* query,
                const float* scales, float* scores, int64_t stride) {
  constexpr int64_t kSlots = Heads <= 3 ? 4 : 2;
  int64_t slot = 0;
  for (; slot + kSlots <= count; slot += kSlots)
    score_keys<Format, Heads, kSlots>(keys + slot * dim, dim, query, scales == nullptr ? nullptr : scales + slot,
                                      scores + slot, stride);
  for (; slot < count; ++slot)
    score_keys<Format, Heads, 1>(keys + slot * dim, dim, query, scales == nullptr ? nullptr : scales + slot,
                                 scores + slot, stride);
}

// Adds Heads weighted sums of the values of a page: sums[head * dim + d]. Weights are [head * stride + slot]; where
// all of a slot are 0 it is not read: an empty slot holds arbitrary bits, NaN among them.
template <typename Format, int64_t Heads>
void add_page(const typename Format::Stored* values, int64_t count, int64_t dim, const float* weights, int64_t stride,
              const float* scales, float* sums) {
  constexpr int64_t kBlocks = Heads <= 2 ? 4 : 2;
  constexpr int64_t kMost = 64;  // slots at a time
  for (int64_t begin = 0; begin < count; begin += kMost) {
    float own[kMost][Heads];
    int64_t used[kMost], kept = 0;
    for (int64_t slot = begin; slot < std::min(begin + kMost, count); ++slot) {
      bool any = false;
      for (int64_t head = 0; head < Heads; ++head) {
        const float weight = weights[head * stride + slot];
        any |= weight != 0.0f;
        own[kept][head] = scales == nullptr ? weight : weight * scales[slot];
      }
      used[kept] = slot;
      kept += any;
    }
    const auto add = [&]<int64_t Blocks>(int64_t d) {
      Floats total[Heads][Blocks];
#pragma GCC unroll 8
      for (int64_t head = 0; head < Heads; ++head)
#pragma GCC unroll 4
        for (int64_t block = 0; block < Blocks; ++block) total[head][block] = loaded(sums + head * dim + d + block * kWidth);
      for (int64_t i = 0; i < kept; ++i) {
        const auto* row = values + used[i] * dim + d;
#pragma GCC unroll 4
        for (int64_t block = 0; block < Blocks; ++block) {
          const Floats value = Format::many(row + block * kWidth);
#pragma GCC unroll 8
          for (int64_t head = 0; head < Heads; ++head) total[head][block] += value * own[i][head];
        }
      }
#pragma GCC unroll 8
      for (int64_t head = 0; head < Heads; ++head)
#pragma GCC unroll 4
        for (int64_t block = 0; block < Blocks; ++block) stored(sums + head * dim + d + block * kWidth, total[head][block]);
    };
    int64_t d = 0;
    for (; d + kBlocks * kWidth <= dim; d += kBlocks * kWidth) add.template operator()<kBlocks>(d);
    for (; d + kWidth <= dim; d += kWidth) add.template operator()<1>(d);
    for (; d < dim; ++d)
      for (int64_t i = 0; i < kept; ++i)
        for (int64_t head = 0; head < Heads; ++head)
          sums[head * dim + d] += own[i][head] * Format::one(values + used[i] * dim + d);
  }
}

template <typename Format>
using ScorePage = void (*)(const typename Format::Stored*, int64_t, int64_t, const float*, const float*, float*, int64_t);
template <typename Format>
constexpr ScorePage<Format> kScorePage[kHeads] = {
    score_page<Format, 1>, score_page<Format, 2>, score_page<Format, 3>, score_page<Format, 4>};
template <typename Format>
using AddPage = void (*)(const typename Format::Stored*, int64_t, int64_t, const float*, int64_t, const float*, float*);
template <typename Format>
constexpr AddPage<Format> kAddPage[kHeads] = {
    add_page<Format, 1>, add_page<Format, 2>, add_page<Format, 3>, add_page<Format, 4>};

// Pages lie anywhere, so the processor cannot guess where the next one begins.
inline void fetch(const void* page, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(static_cast<const char*>(page) + at);
}

template <typename Format>
void score(const Call& call, const Region& region, const Piece& piece, const float* query, float* scores) {
  const int64_t dim = call.dim, group = call.group, page_size = region.page_slots * dim;
  const auto* halves = static_cast<const typename Format::Stored*>(region.halves);
  const int32_t* pages = region.index + piece.head * region.index_head;
  const float* scales = region.scales == nullptr || region.channels != nullptr
                            ? nullptr : region.scales + piece.head * region.scale_head;
  float scaled[kMaxGroup * kMaxDim];
  for (int64_t slot = piece.begin; slot < piece.end;) {
    const int64_t page = slot / region.page_slots;
    const int64_t stop = std::min((page + 1) * region.page_slots, piece.end);
    const float* q = query;
    if (region.channels != nullptr) {
      const float* channels = region.channels + piece.head * region.channel_head + page * region.channel_page;
      for (int64_t g = 0; g < group; ++g)
        for (int64_t d = 0; d < dim; ++d) scaled[g * dim + d] = query[g * dim + d] * channels[d];
      q = scaled;
    }
    const auto* keys = halves + (int64_t(pages[page]) * region.page_slots + slot % region.page_slots) * dim;
    if (stop < piece.end) fetch(halves + int64_t(pages[page + 1]) * page_size, page_size * sizeof(*halves));
    for (int64_t g = 0; g < group; g += kHeads)
      kScorePage<Format>[std::min(kHeads, group - g) - 1](keys, stop - slot, dim, q + g * dim,
                                                          scales == nullptr ? nullptr : scales + slot,
                                                          scores + g * call.slots + slot, call.slots);
    slot = stop;
  }
}

template <typename Format>
void add_values(const Call& call, const Region& region, const Piece& piece, const float* probs, float* sums) {
  const int64_t dim = call.dim, group = call.group, page_size = region.page_slots * dim;
  const auto* halves = static_cast<const typename Format::Stored*>(region.halves);
  const int32_t* pages = region.index + region.index_part + piece.head * region.index_head;
  const float* scales =
      region.scales == nullptr ? nullptr : region.scales + region.scale_part + piece.head * region.scale_head;
  for (int64_t slot = piece.begin; slot < piece.end;) {
    const int64_t page = slot / region.page_slots;
    const int64_t stop = std::min((page + 1) * region.page_slots, piece.end);
    const auto* values = halves + (int64_t(pages[page]) * region.page_slots + slot % region.page_slots) * dim;
    if (stop < piece.end) fetch(halves + int64_t(pages[page + 1]) * page_size, page_size * sizeof(*halves));
    for (int64_t g = 0; g < group; g += kHeads)
      kAddPage<Format>[std::min(kHeads, group - g) - 1](values, stop - slot, dim, probs + g * call.slots + slot,
                                                        call.slots, scales == nullptr ? nullptr : scales + slot,
                                                        sums + g * dim);
    slot = stop;
  }
}

void hide(const Call& call, const Piece& piece, int64_t first_slot, float* scores) {
  const int64_t first = call.window != 0 ? piece.begin : std::max(piece.begin, call.visible_slots - first_slot);
  const int32_t* tokens = call.token_index + piece.head * call.token_head + first_slot;
  const int64_t newest = call.query_index[piece.head * call.query_step];
  const int64_t oldest = call.window != 0 ? std::max<int64_t>(newest - call.window + 1, 0) : 0;
  for (int64_t slot = first; slot < piece.end; ++slot)
    if (tokens[slot] > newest || tokens[slot] < oldest)
      for (int64_t g = 0; g < call.group; ++g) scores[g * call.slots + slot] = kHidden;
}

template <typename Format>
void run_piece(const Call& call, const Region& region, const Piece& piece, float* scores, float* largest, float* total,
               float* sums) {
  // Scores of this head, shifted so that the region's slots count from its own first one.
  float* own = scores + piece.head * call.group * call.slots + region.first_slot;
  score<Format>(call, region, piece, call.query + piece.head * call.group * call.dim, own);
  if (call.softcap != 0.0f)
    for (int64_t g = 0; g < call.group; ++g)
      for (int64_t slot = piece.begin; slot < piece.end; ++slot)
        own[g * call.slots + slot] = call.softcap * std::tanh(own[g * call.slots + slot] / call.softcap);
  hide(call, piece, region.first_slot, own);
  for (int64_t g = 0; g < call.group; ++g) {
    float* row = own + g * call.slots;
    float most = kHidden;
#pragma omp simd reduction(max : most)
    for (int64_t slot = piece.begin; slot < piece.end; ++slot) most = std::max(most, row[slot]);
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t slot = piece.begin; slot < piece.end; ++slot) {
      row[slot] = row[slot] <= kHidden ? 0.0f : exp_negative(row[slot] - most);
      sum += row[slot];
    }
    largest[g] = most;
    total[g] = sum;
  }
  std::fill(sums, sums + call.group * call.dim, 0.0f);
  add_values<Format>(call, region, piece, own, sums);
}

void run_any(const Call& call, const Region& code, const Region& fp, int64_t dtype, int64_t code_format,
             const Piece& piece, float* scores, float* largest, float* total, float* sums) {
  if (piece.code && code_format == kFp8Token)
    run_piece<Fp8>(call, code, piece, scores, largest, total, sums);
  else if (piece.code)
    run_piece<Int8>(call, code, piece, scores, largest, total, sums);
  else if (dtype == kBFloat16)
    run_piece<BFloat16>(call, fp, piece, scores, largest, total, sums);
  else
    run_piece<Float32>(call, fp, piece, scores, largest, total, sums);
}

}  // namespace

extern "C" {

// The arguments of PagedKV and paged_mixed_attention for one query per head; strides in elements. `mass` [H, slots] and
// `probs` [Hq, slots] are filled where they are not null, mass times the one number at `mass_weight`.
void agentkv_attend(int64_t heads, int64_t group, int64_t dim, const void* query, int64_t dtype, float scaling,
                    const void* fp_halves, int64_t fp_page, const int32_t* fp_index, int64_t fp_part, int64_t fp_head,
                    int64_t fp_slots, const void* code_halves, int64_t code_page, const int32_t* code_index,
                    int64_t code_part, int64_t code_head, int64_t code_slots, int64_t code_format, const float* scales,
                    int64_t scale_part, int64_t scale_head, const float* channels, int64_t channel_head,
                    int64_t channel_page, const int32_t* token_index, int64_t token_head, const int32_t* query_index,
                    int64_t query_step, int64_t visible_slots, int64_t window, float softcap, const float* sinks,
                    int64_t threads, void* out, float* mass, const float* mass_weight, float* probs) {
  const int64_t slots = code_slots + fp_slots, q_heads = heads * group;
  static thread_local std::vector<float> buffer;
  static thread_local std::vector<Piece> pieces;
  pieces.clear();
  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t begin = 0; begin < code_slots; begin += kPiece)
      pieces.push_back({head, begin, std::min(begin + kPiece, code_slots), true});
    for (int64_t begin = 0; begin < fp_slots; begin += kPiece)
      pieces.push_back({head, begin, std::min(begin + kPiece, fp_slots), false});
  }
  const int64_t count = int64_t(pieces.size());
  buffer.resize(q_heads * dim + q_heads * slots + count * group * (dim + 3));
  float* scaled = buffer.data();
  float* scores = scaled + q_heads * dim;
  float* largest = scores + q_heads * slots;
  float* total = largest + count * group;
  float* factor = total + count * group;
  float* sums = factor + count * group;

  for (int64_t i = 0; i < q_heads * dim; ++i)
    scaled[i] = scaling * (dtype == kBFloat16 ? from_bf16(static_cast<const uint16_t*>(query)[i])
                                              : static_cast<const float*>(query)[i]);
  const Call call{heads, group, dim, slots, scaled, token_index, token_head, query_index, query_step, visible_slots,
                  window, softcap};
  const Region code{code_halves, code_index, code_part, code_head, code_page, scales, scale_part, scale_head,
                    code_format == kInt8Channel ? channels : nullptr, channel_head, channel_page, 0};
  const Region fp{fp_halves, fp_index, fp_part, fp_head, fp_page, nullptr, 0, 0, nullptr, 0, 0, code_slots};
  const Piece* all = pieces.data();  // thread_local names another vector in another thread

#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) if (threads > 1 && count > 1)
  for (int64_t i = 0; i < count; ++i)
    run_any(call, code, fp, dtype, code_format, all[i], scores, largest + i * group, total + i * group,
            sums + i * group * dim);

  if (mass != nullptr) std::fill(mass, mass + heads * slots, 0.0f);
  const int64_t per_head = count / std::max<int64_t>(heads, 1);
  for (int64_t head = 0; head < heads; ++head) {
    const int64_t first = head * per_head;
    for (int64_t g = 0; g < group; ++g) {
      const int64_t q_head = head * group + g;
      float most = sinks == nullptr ? kHidden : sinks[q_head];
      for (int64_t i = first; i < first + per_head; ++i) most = std::max(most, largest[i * group + g]);
      float sum = sinks == nullptr ? 0.0f : exp_negative(sinks[q_head] - most);
      for (int64_t i = first; i < first + per_head; ++i) {
        factor[i * group + g] = exp_negative(largest[i * group + g] - most);
        sum += total[i * group + g] * factor[i * group + g];
      }
      float result[kMaxDim] = {};
      for (int64_t i = first; i < first + per_head; ++i) {
        const float share = factor[i * group + g] /= sum;
        const float* own = sums + (i * group + g) * dim;
        for (int64_t d = 0; d < dim; ++d) result[d] += share * own[d];
      }
      for (int64_t d = 0; d < dim; ++d)
        if (dtype == kBFloat16)
          static_cast<uint16_t*>(out)[q_head * dim + d] = to_bf16(result[d]);
        else
          static_cast<float*>(out)[q_head * dim + d] = result[d];
      if (mass == nullptr && probs == nullptr) continue;
      for (int64_t i = first; i < first + per_head; ++i) {
        const int64_t offset = all[i].code ? 0 : code_slots;
        const float* row = scores + q_head * slots + offset;
        const float share = factor[i * group + g];
        for (int64_t slot = all[i].begin; slot < all[i].end; ++slot) {
          if (mass != nullptr) mass[head * slots + offset + slot] += *mass_weight * share * row[slot];
          if (probs != nullptr) probs[q_head * slots + offset + slot] = share * row[slot];
        }
      }
    }
  }
}

}  // extern "C"
