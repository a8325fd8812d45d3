// The intrinsics that net_avx512.cpp uses, as plain C++ from their documentation: so its blocks, tiles and slack are
// tested on machines and emulators without AVX-512. A new one there is a line here.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

template <class T, int N>
struct Lanes {
  T lane[N];
};
using __m128 = Lanes<float, 4>;
using __m256 = Lanes<float, 8>;
using __m512 = Lanes<float, 16>;
struct __m128i { uint8_t byte[16]; };
struct __m256i { uint8_t byte[32]; };
struct __m512i { uint8_t byte[64]; };
using __mmask16 = uint16_t;
using __mmask8 = uint8_t;

namespace emulated {

template <class To>
To load(const void* p, size_t bytes = sizeof(To)) {
  To to{};
  std::memcpy(&to, p, bytes);
  return to;
}

template <class T, class V>
T at(const V& v, int i) {
  T found;
  std::memcpy(&found, v.byte + i * int(sizeof(T)), sizeof(T));
  return found;
}

template <class T, class V>
void put(V& v, int i, T x) { std::memcpy(v.byte + i * int(sizeof(T)), &x, sizeof(T)); }

inline float single(uint16_t half) {
  const int exponent = half >> 10 & 31, fraction = half & 1023;
  const float size = exponent == 0 ? std::ldexp(float(fraction), -24) : std::ldexp(float(1024 + fraction), exponent - 25);
  return half & 0x8000 ? -size : size;
}

}  // namespace emulated

inline __m512 _mm512_loadu_ps(const void* p) { return emulated::load<__m512>(p); }
inline void _mm512_storeu_ps(void* p, const __m512& v) { std::memcpy(p, &v, sizeof v); }
inline __m512 _mm512_maskz_loadu_ps(__mmask16 mask, const float* p) {  // lanes that are masked out are not touched
  __m512 v{};
  for (int i = 0; i < 16; ++i)
    if (mask >> i & 1) v.lane[i] = p[i];
  return v;
}
inline void _mm512_mask_storeu_ps(float* p, __mmask16 mask, const __m512& v) {
  for (int i = 0; i < 16; ++i)
    if (mask >> i & 1) p[i] = v.lane[i];
}
inline __m512 _mm512_set1_ps(float x) {
  __m512 v;
  for (float& lane : v.lane) lane = x;
  return v;
}
inline __m512 _mm512_fmadd_ps(const __m512& a, const __m512& b, __m512 c) {
  for (int i = 0; i < 16; ++i) c.lane[i] += a.lane[i] * b.lane[i];
  return c;
}
inline __m512 _mm512_add_ps(__m512 a, const __m512& b) {
  for (int i = 0; i < 16; ++i) a.lane[i] += b.lane[i];
  return a;
}
inline __m512 _mm512_max_ps(const __m512& a, const __m512& b) {  // the second where either is NaN
  __m512 c;
  for (int i = 0; i < 16; ++i) c.lane[i] = a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i];
  return c;
}
inline __m512 _mm512_min_ps(const __m512& a, const __m512& b) {
  __m512 c;
  for (int i = 0; i < 16; ++i) c.lane[i] = a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i];
  return c;
}
inline float _mm512_reduce_add_ps(const __m512& v) {
  float all = 0;
  for (float lane : v.lane) all += lane;
  return all;
}
inline __m512i _mm512_loadu_si512(const void* p) { return emulated::load<__m512i>(p); }
inline __m256i _mm256_loadu_si256(const __m256i* p) { return emulated::load<__m256i>(p); }
inline void _mm256_storeu_si256(__m256i* p, const __m256i& v) { std::memcpy(static_cast<void*>(p), &v, sizeof v); }
inline __m128i _mm_loadl_epi64(const __m128i* p) { return emulated::load<__m128i>(p, 8); }
inline __m128i _mm_cvtsi32_si128(int x) { return emulated::load<__m128i>(&x, sizeof x); }
inline float _mm_cvtss_f32(const __m128& v) { return v.lane[0]; }
inline __m128 _mm_cvtph_ps(const __m128i& halves) {
  __m128 v;
  for (int i = 0; i < 4; ++i) v.lane[i] = emulated::single(emulated::at<uint16_t>(halves, i));
  return v;
}
inline __m512 _mm512_cvtph_ps(const __m256i& halves) {
  __m512 v;
  for (int i = 0; i < 16; ++i) v.lane[i] = emulated::single(emulated::at<uint16_t>(halves, i));
  return v;
}
inline __m512i _mm512_cvtepu16_epi32(const __m256i& narrow) {
  __m512i v{};
  for (int i = 0; i < 16; ++i) emulated::put<int32_t>(v, i, emulated::at<uint16_t>(narrow, i));
  return v;
}
inline __m256i _mm256_cvtepu8_epi32(const __m128i& narrow) {
  __m256i v{};
  for (int i = 0; i < 8; ++i) emulated::put<int32_t>(v, i, narrow.byte[i]);
  return v;
}
inline __m256i _mm256_set1_epi32(int x) {
  __m256i v{};
  for (int i = 0; i < 8; ++i) emulated::put<int32_t>(v, i, x);
  return v;
}
inline __m256i _mm256_add_epi32(__m256i a, const __m256i& b) {
  for (int i = 0; i < 8; ++i) emulated::put<int32_t>(a, i, emulated::at<int32_t>(a, i) + emulated::at<int32_t>(b, i));
  return a;
}
inline __m512 _mm512_maskz_expand_ps(__mmask16 mask, const __m512& a) {
  __m512 v{};
  for (int i = 0, next = 0; i < 16; ++i)
    if (mask >> i & 1) v.lane[i] = a.lane[next++];
  return v;
}
inline __m256i _mm256_maskz_loadu_epi16(__mmask16 mask, const void* p) {  // lanes that are masked out are not touched
  __m256i v{};
  for (int i = 0; i < 16; ++i)
    if (mask >> i & 1) emulated::put<uint16_t>(v, i, emulated::load<uint16_t>(static_cast<const char*>(p) + 2 * i));
  return v;
}
inline __m128i _mm_loadu_si128(const __m128i* p) { return emulated::load<__m128i>(p); }
inline void _mm512_storeu_si512(void* p, const __m512i& v) { std::memcpy(p, &v, sizeof v); }
inline __m512i _mm512_set1_epi32(int x) {
  __m512i v{};
  for (int i = 0; i < 16; ++i) emulated::put<int32_t>(v, i, x);
  return v;
}
inline __m512i _mm512_cvtepu8_epi32(const __m128i& narrow) {
  __m512i v{};
  for (int i = 0; i < 16; ++i) emulated::put<int32_t>(v, i, narrow.byte[i]);
  return v;
}
inline __m512i _mm512_add_epi32(__m512i a, const __m512i& b) {
  for (int i = 0; i < 16; ++i) emulated::put<int32_t>(a, i, emulated::at<int32_t>(a, i) + emulated::at<int32_t>(b, i));
  return a;
}
inline __m512i _mm512_alignr_epi32(const __m512i& high, const __m512i& low, int shift) {
  __m512i v{};
  for (int i = 0; i < 16; ++i)
    emulated::put<int32_t>(v, i, emulated::at<int32_t>(i + shift < 16 ? low : high, (i + shift) % 16));
  return v;
}
inline __m128i _mm512_castsi512_si128(const __m512i& v) { return emulated::load<__m128i>(v.byte); }
inline int _mm_cvtsi128_si32(const __m128i& v) { return emulated::at<int32_t>(v, 0); }
inline __m512i _mm512_maskz_loadu_epi32(__mmask16 mask, const void* p) {  // lanes that are masked out are not touched
  __m512i v{};
  for (int i = 0; i < 16; ++i)
    if (mask >> i & 1) emulated::put<int32_t>(v, i, emulated::load<int32_t>(static_cast<const char*>(p) + 4 * i));
  return v;
}
inline void _mm512_mask_storeu_epi32(void* p, __mmask16 mask, const __m512i& v) {
  for (int i = 0; i < 16; ++i)
    if (mask >> i & 1) std::memcpy(static_cast<char*>(p) + 4 * i, v.byte + 4 * i, 4);
}
inline __mmask16 _mm512_mask_cmplt_epi32_mask(__mmask16 mask, const __m512i& a, const __m512i& b) {
  __mmask16 found = 0;
  for (int i = 0; i < 16; ++i)
    if ((mask >> i & 1) && emulated::at<int32_t>(a, i) < emulated::at<int32_t>(b, i)) found = __mmask16(found | 1u << i);
  return found;
}
inline __m512i _mm512_mullo_epi32(__m512i a, const __m512i& b) {
  for (int i = 0; i < 16; ++i) {
    const auto product = emulated::at<uint32_t>(a, i) * emulated::at<uint32_t>(b, i);
    emulated::put<uint32_t>(a, i, product);
  }
  return a;
}
inline __m512i _mm512_cvttps_epi32(const __m512& a) {
  __m512i v{};
  for (int i = 0; i < 16; ++i) emulated::put<int32_t>(v, i, static_cast<int32_t>(a.lane[i]));
  return v;
}
inline __m512i _mm512_permutex2var_epi32(const __m512i& a, const __m512i& index, const __m512i& b) {
  __m512i v{};
  for (int i = 0; i < 16; ++i) {
    const int32_t from = emulated::at<int32_t>(index, i) & 31;
    emulated::put<int32_t>(v, i, emulated::at<int32_t>(from < 16 ? a : b, from & 15));
  }
  return v;
}
inline __m512i _mm512_castps_si512(const __m512& a) { return emulated::load<__m512i>(&a); }
inline __m512 _mm512_castsi512_ps(const __m512i& a) { return emulated::load<__m512>(&a); }
constexpr int _CMP_ORD_Q = 7;
inline __mmask16 _mm512_cmp_ps_mask(const __m512& a, const __m512& b, int) {  // ordered is all that is asked for
  __mmask16 mask = 0;
  for (int i = 0; i < 16; ++i)
    if (a.lane[i] == a.lane[i] && b.lane[i] == b.lane[i]) mask = __mmask16(mask | 1u << i);
  return mask;
}
inline __m512 _mm512_mask_max_ps(__m512 v, __mmask16 mask, const __m512& a, const __m512& b) {
  const __m512 c = _mm512_max_ps(a, b);
  for (int i = 0; i < 16; ++i)
    if (mask >> i & 1) v.lane[i] = c.lane[i];
  return v;
}
inline __m512 _mm512_mask_loadu_ps(__m512 v, __mmask16 mask, const float* p) {  // lanes that are masked out are not touched
  for (int i = 0; i < 16; ++i)
    if (mask >> i & 1) v.lane[i] = p[i];
  return v;
}
inline __m512 _mm512_div_ps(__m512 a, const __m512& b) {
  for (int i = 0; i < 16; ++i) a.lane[i] /= b.lane[i];
  return a;
}
inline __m512 _mm512_mask_mov_ps(__m512 v, __mmask16 mask, const __m512& a) {
  for (int i = 0; i < 16; ++i)
    if (mask >> i & 1) v.lane[i] = a.lane[i];
  return v;
}
inline __m512i _mm512_setr_epi32(int a, int b, int c, int d, int e, int f, int g, int h, int i, int j, int k, int l, int m,
                                 int n, int o, int p) {
  const int all[16] = {a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p};
  return emulated::load<__m512i>(all);
}
inline __m512 _mm512_permutex2var_ps(const __m512& a, const __m512i& index, const __m512& b) {
  __m512 v;
  for (int i = 0; i < 16; ++i) {
    const int from = emulated::at<int32_t>(index, i) & 31;
    v.lane[i] = from < 16 ? a.lane[from] : b.lane[from - 16];
  }
  return v;
}

template <class Operation>
__m512i emulated_lanes(Operation operation) {
  __m512i v{};
  for (int i = 0; i < 16; ++i) emulated::put<int32_t>(v, i, int32_t(operation(i)));
  return v;
}
inline __m512i _mm512_sub_epi32(const __m512i& a, const __m512i& b) {
  return emulated_lanes([&](int i) { return emulated::at<uint32_t>(a, i) - emulated::at<uint32_t>(b, i); });
}
inline __m512i _mm512_and_si512(const __m512i& a, const __m512i& b) {
  return emulated_lanes([&](int i) { return emulated::at<uint32_t>(a, i) & emulated::at<uint32_t>(b, i); });
}
inline __m512i _mm512_srli_epi32(const __m512i& a, unsigned bits) {
  return emulated_lanes([&](int i) { return emulated::at<uint32_t>(a, i) >> bits; });
}
inline __m512i _mm512_srlv_epi32(const __m512i& a, const __m512i& bits) {
  return emulated_lanes([&](int i) { return emulated::at<uint32_t>(a, i) >> emulated::at<uint32_t>(bits, i); });
}
inline __m512i _mm512_sllv_epi32(const __m512i& a, const __m512i& bits) {
  return emulated_lanes([&](int i) { return emulated::at<uint32_t>(a, i) << emulated::at<uint32_t>(bits, i); });
}
inline __m512i _mm512_set4_epi32(int d, int c, int b, int a) {
  const int all[4] = {a, b, c, d};
  return emulated_lanes([&](int i) { return all[i % 4]; });
}
inline __m512i _mm512_permutexvar_epi32(const __m512i& index, const __m512i& a) {
  return emulated_lanes([&](int i) { return emulated::at<int32_t>(a, emulated::at<int32_t>(index, i) & 15); });
}
inline __m512i _mm512_maskz_compress_epi32(__mmask16 mask, const __m512i& a) {
  __m512i v{};
  for (int i = 0, next = 0; i < 16; ++i)
    if (mask >> i & 1) emulated::put<int32_t>(v, next++, emulated::at<int32_t>(a, i));
  return v;
}
inline __mmask16 _mm512_test_epi32_mask(const __m512i& a, const __m512i& b) {
  int mask = 0;
  for (int i = 0; i < 16; ++i) mask |= ((emulated::at<uint32_t>(a, i) & emulated::at<uint32_t>(b, i)) != 0) << i;
  return __mmask16(mask);
}
inline __m512i _mm512_mullo_epi16(const __m512i& a, const __m512i& b) {
  __m512i v{};
  for (int i = 0; i < 32; ++i)
    emulated::put<uint16_t>(v, i, uint16_t(unsigned(emulated::at<uint16_t>(a, i)) * emulated::at<uint16_t>(b, i)));
  return v;
}
inline __m512i _mm512_shuffle_epi8(const __m512i& a, const __m512i& index) {  // within each sixteen bytes
  __m512i v{};
  for (int i = 0; i < 64; ++i) v.byte[i] = index.byte[i] & 0x80 ? 0 : a.byte[i / 16 * 16 + index.byte[i] % 16];
  return v;
}
inline __m512 _mm512_mul_ps(__m512 a, const __m512& b) {
  for (int i = 0; i < 16; ++i) a.lane[i] *= b.lane[i];
  return a;
}
inline __m512 _mm512_permutexvar_ps(const __m512i& index, const __m512& a) {
  __m512 v;
  for (int i = 0; i < 16; ++i) v.lane[i] = a.lane[emulated::at<int32_t>(index, i) & 15];
  return v;
}
inline __m128 _mm_load_ss(const float* p) { return {{*p, 0, 0, 0}}; }
inline __m128 _mm_insert_ps(__m128 a, const __m128& b, int where) {  // the first lane, without zeros
  a.lane[where >> 4 & 3] = b.lane[0];
  return a;
}
inline __m256 _mm256_loadu_ps(const float* p) { return emulated::load<__m256>(p); }
inline void _mm256_storeu_ps(float* p, const __m256& v) { std::memcpy(p, &v, sizeof v); }
inline __m256 _mm256_maskz_loadu_ps(__mmask8 mask, const float* p) {
  __m256 v{};
  for (int i = 0; i < 8; ++i)
    if (mask >> i & 1) v.lane[i] = p[i];
  return v;
}
inline void _mm256_mask_storeu_ps(float* p, __mmask8 mask, const __m256& v) {
  for (int i = 0; i < 8; ++i)
    if (mask >> i & 1) p[i] = v.lane[i];
}
inline __m256 _mm256_cvtph_ps(const __m128i& halves) {
  __m256 v;
  for (int i = 0; i < 8; ++i) v.lane[i] = emulated::single(emulated::at<uint16_t>(halves, i));
  return v;
}
inline __m256 _mm256_add_ps(__m256 a, const __m256& b) {
  for (int i = 0; i < 8; ++i) a.lane[i] += b.lane[i];
  return a;
}
inline __m256 _mm256_fmadd_ps(const __m256& a, const __m256& b, __m256 c) {
  for (int i = 0; i < 8; ++i) c.lane[i] += a.lane[i] * b.lane[i];
  return c;
}
inline __m512 _mm512_cvtepi32_ps(const __m512i& a) {
  __m512 v;
  for (int i = 0; i < 16; ++i) v.lane[i] = float(emulated::at<int32_t>(a, i));
  return v;
}
inline __m256 _mm256_castps128_ps256(const __m128& a) { return emulated::load<__m256>(&a, sizeof a); }
inline __m256 _mm256_insertf128_ps(__m256 a, const __m128& b, int half) {
  std::memcpy(a.lane + 4 * half, b.lane, sizeof b);
  return a;
}
inline __m128i _mm_shuffle_epi8(const __m128i& a, const __m128i& index) {
  __m128i v{};
  for (int i = 0; i < 16; ++i) v.byte[i] = index.byte[i] & 128 ? 0 : a.byte[index.byte[i] & 15];
  return v;
}
inline __m512i _mm512_broadcastd_epi32(const __m128i& a) { return _mm512_set1_epi32(emulated::at<int32_t>(a, 0)); }
inline __m512i _mm512_broadcast_i32x4(const __m128i& a) {
  __m512i v{};
  for (int i = 0; i < 64; ++i) v.byte[i] = a.byte[i % 16];
  return v;
}
inline __m512i _mm512_mask_broadcast_i32x4(__m512i v, __mmask16 mask, const __m128i& a) {
  for (int i = 0; i < 64; ++i)
    if (mask >> i / 4 & 1) v.byte[i] = a.byte[i % 16];
  return v;
}
inline __m256i _mm256_setr_epi32(int a, int b, int c, int d, int e, int f, int g, int h) {
  const int all[8] = {a, b, c, d, e, f, g, h};
  return emulated::load<__m256i>(all);
}
inline __m256i _mm256_cmpgt_epi32(const __m256i& a, const __m256i& b) {
  __m256i v{};
  for (int i = 0; i < 8; ++i) emulated::put<int32_t>(v, i, emulated::at<int32_t>(a, i) > emulated::at<int32_t>(b, i) ? -1 : 0);
  return v;
}
inline __m256 _mm256_castsi256_ps(const __m256i& a) { return emulated::load<__m256>(&a); }
inline __m256 _mm256_and_ps(const __m256& a, const __m256& b) {
  auto v = emulated::load<__m256i>(&a), mask = emulated::load<__m256i>(&b);
  for (int i = 0; i < 32; ++i) v.byte[i] = uint8_t(v.byte[i] & mask.byte[i]);
  return emulated::load<__m256>(&v);
}
inline __m128 _mm256_castps256_ps128(const __m256& a) { return emulated::load<__m128>(&a); }
inline __m128 _mm256_extractf128_ps(const __m256& a, int half) { return emulated::load<__m128>(a.lane + 4 * half); }
inline __m128 _mm_add_ps(__m128 a, const __m128& b) {
  for (int i = 0; i < 4; ++i) a.lane[i] += b.lane[i];
  return a;
}
inline __m128 _mm_add_ss(__m128 a, const __m128& b) {
  a.lane[0] += b.lane[0];
  return a;
}
inline __m128 _mm_movehl_ps(const __m128& a, const __m128& b) { return {{b.lane[2], b.lane[3], a.lane[2], a.lane[3]}}; }
inline __m128 _mm_movehdup_ps(const __m128& a) { return {{a.lane[1], a.lane[1], a.lane[3], a.lane[3]}}; }
