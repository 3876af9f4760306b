// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/packet/digest.h"

#include <cassert>
#include <cstring>
#include <vector>

#include "dataplane/nic/memory/copy.h"
#include "dataplane/nic/memory/random_source.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace hostnic {
namespace {

constexpr size_t kBlockBytes = 64, kBlockWords = kBlockBytes / sizeof(uint64_t);

using CopyFunction = uint64_t (*)(std::byte* to, std::span<const std::byte> memory,
                                  const DigestSecret& secret);

uint64_t load(const std::byte* from) {
  uint64_t word;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

// Both halves of a product, in which every bit of both factors counts.
uint64_t mix(uint64_t a, uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// The bytes behind the last whole block, with zeros behind them.
struct LastBlock {
  LastBlock(std::span<const std::byte> bytes) : any(bytes.size() % kBlockBytes != 0) {
    const size_t rest = bytes.size() % kBlockBytes;
    if (any) std::memcpy(block.data(), bytes.data() + (bytes.size() - rest), rest);
  }
  bool any;
  alignas(64) std::array<std::byte, kBlockBytes> block{};
};

// For any processor: lanes that don't wait for each other keep a multiplier busy.
uint64_t digest_by_products(std::span<const std::byte> bytes, const DigestSecret& secret) {
  constexpr size_t kLanes = 4, kLaneBytes = kBlockBytes / kLanes;
  const auto& words = secret.words;
  std::array<uint64_t, kLanes> lanes;
  for (size_t i = 0; i < kLanes; ++i) lanes[i] = words[i];
  const auto add = [&](const std::byte* block) {
    for (size_t i = 0; i < kLanes; ++i) {
      const std::byte* const lane = block + i * kLaneBytes;
      lanes[i] = mix(load(lane) ^ lanes[i], load(lane + 8) ^ words[kLanes + i]) + lanes[i];
    }
  };
  const std::byte* at = bytes.data();
  for (size_t left = bytes.size(); left >= kBlockBytes; left -= kBlockBytes, at += kBlockBytes)
    add(at);
  if (const LastBlock last(bytes); last.any) add(last.block.data());
  uint64_t digest = bytes.size() ^ words[0];
  for (size_t i = 0; i < kLanes; ++i) digest = mix(digest ^ lanes[i], words[kLanes + i]) + digest;
  return digest == 0 ? 1 : digest;
}

#if defined(__x86_64__)

// The digest of a message whose products have these sums, low and high halves in turn.
uint64_t finish_sums(const std::array<uint64_t, kBlockWords>& sums, size_t bytes,
                     const DigestSecret& secret) {
  const auto& words = secret.words;
  const uint64_t low = sums[0] ^ sums[2] ^ sums[4] ^ sums[6];
  const uint64_t high = sums[1] ^ sums[3] ^ sums[5] ^ sums[7];
  uint64_t digest = mix(low ^ words[0], high ^ words[1]);
  digest = mix(digest ^ low ^ words[2], high ^ bytes ^ words[3]) + digest;
  return digest == 0 ? 1 : digest;
}

// The sum of the products of neighbouring words, each word with a secret one of its place added, in
// polynomials over GF(2): two different messages of one length have equal sums with a probability
// of 2^-64 (Lemire and Kaser, "Faster 64-bit universal hashing using carry-less multiplications").
// The products wait for nothing, and a processor makes several at a time.
__attribute__((target("avx512f,vpclmulqdq"))) uint64_t digest_avx512(
    std::span<const std::byte> bytes, const DigestSecret& secret) {
  __m512i even = _mm512_setzero_si512(), odd = even;
  const std::byte* at = bytes.data();
  const uint64_t* key = secret.by_place.data();
  const std::byte* const end = at + bytes.size() / kBlockBytes * kBlockBytes;
  for (; end - at >= static_cast<ptrdiff_t>(2 * kBlockBytes); at += 2 * kBlockBytes) {
    const __m512i a = _mm512_xor_si512(_mm512_loadu_si512(at), _mm512_load_si512(key));
    const __m512i b = _mm512_xor_si512(_mm512_loadu_si512(at + kBlockBytes),
                                       _mm512_load_si512(key + kBlockWords));
    even = _mm512_xor_si512(even, _mm512_clmulepi64_epi128(a, a, 0x10));
    odd = _mm512_xor_si512(odd, _mm512_clmulepi64_epi128(b, b, 0x10));
    key += 2 * kBlockWords;
  }
  if (at != end) {
    const __m512i a = _mm512_xor_si512(_mm512_loadu_si512(at), _mm512_load_si512(key));
    even = _mm512_xor_si512(even, _mm512_clmulepi64_epi128(a, a, 0x10));
    key += kBlockWords;
  }
  if (const LastBlock last(bytes); last.any) {
    const __m512i a =
        _mm512_xor_si512(_mm512_load_si512(last.block.data()), _mm512_load_si512(key));
    odd = _mm512_xor_si512(odd, _mm512_clmulepi64_epi128(a, a, 0x10));
  }
  alignas(64) std::array<uint64_t, kBlockWords> sums;
  _mm512_store_si512(sums.data(), _mm512_xor_si512(even, odd));
  return finish_sums(sums, bytes.size(), secret);
}

// The same, with the same digests, for processors that have no AVX-512.
__attribute__((target("avx2,vpclmulqdq"))) uint64_t digest_avx2(std::span<const std::byte> bytes,
                                                                const DigestSecret& secret) {
  __m256i first = _mm256_setzero_si256(), second = first;
  const uint64_t* key = secret.by_place.data();
  const std::byte* at = bytes.data();
  const std::byte* const end = at + bytes.size() / kBlockBytes * kBlockBytes;
  const LastBlock last(bytes);
  while (true) {
    if (at == end) {
      if (!last.any) break;
      at = last.block.data();
    }
    const auto* block = reinterpret_cast<const __m256i*>(at);
    const auto* keys = reinterpret_cast<const __m256i*>(key);
    const __m256i a = _mm256_xor_si256(_mm256_loadu_si256(block), _mm256_load_si256(keys));
    const __m256i b = _mm256_xor_si256(_mm256_loadu_si256(block + 1), _mm256_load_si256(keys + 1));
    first = _mm256_xor_si256(first, _mm256_clmulepi64_epi128(a, a, 0x10));
    second = _mm256_xor_si256(second, _mm256_clmulepi64_epi128(b, b, 0x10));
    if (at == last.block.data()) break;
    at += kBlockBytes;
    key += kBlockWords;
  }
  alignas(64) std::array<uint64_t, kBlockWords> sums;
  _mm256_store_si256(reinterpret_cast<__m256i*>(sums.data()), first);
  _mm256_store_si256(reinterpret_cast<__m256i*>(sums.data() + kBlockWords / 2), second);
  return finish_sums(sums, bytes.size(), secret);
}

// This function copies and returns the digest_avx2() of the copy. It loads each unit of the memory
// once, by aligned instructions (copy.h), so that what it digests is what it stores.
__attribute__((target("avx2,vpclmulqdq"))) uint64_t copy_avx2(std::byte* to,
                                                              std::span<const std::byte> memory,
                                                              const DigestSecret& secret) {
  const std::byte* from = memory.data();
  const size_t rest = memory.size() % kBlockBytes;
  const std::byte* const end = from + (memory.size() - rest);
  const auto* keys = reinterpret_cast<const __m256i*>(secret.by_place.data());
  __m256i first = _mm256_setzero_si256(), second = first;
  const auto add = [&](__m256i a, __m256i b) __attribute__((target("avx2,vpclmulqdq"))) {
    a = _mm256_xor_si256(a, _mm256_load_si256(keys));
    b = _mm256_xor_si256(b, _mm256_load_si256(keys + 1));
    first = _mm256_xor_si256(first, _mm256_clmulepi64_epi128(a, a, 0x10));
    second = _mm256_xor_si256(second, _mm256_clmulepi64_epi128(b, b, 0x10));
  };
  for (; from != end; from += kBlockBytes, to += kBlockBytes, keys += 2) {
    const auto* watched = reinterpret_cast<const volatile __m256i*>(from);
    const __m256i a = watched[0], b = watched[1];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), a);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + sizeof(a)), b);
    add(a, b);
  }
  if (rest != 0) {
    copy_from_memory(to, from, rest);
    const LastBlock last({to, rest});
    const auto* block = reinterpret_cast<const __m256i*>(last.block.data());
    add(_mm256_load_si256(block), _mm256_load_si256(block + 1));
  }
  alignas(64) std::array<uint64_t, kBlockWords> sums;
  _mm256_store_si256(reinterpret_cast<__m256i*>(sums.data()), first);
  _mm256_store_si256(reinterpret_cast<__m256i*>(sums.data() + kBlockWords / 2), second);
  return finish_sums(sums, memory.size(), secret);
}

#endif

// The functions of this processor, the fastest first.
std::vector<DigestFunction> find_functions() {
  std::vector<DigestFunction> functions;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("vpclmulqdq")) {
    if (__builtin_cpu_supports("avx512f")) functions.push_back(digest_avx512);
    if (__builtin_cpu_supports("avx2")) functions.push_back(digest_avx2);
  }
#endif
  functions.push_back(digest_by_products);
  return functions;
}

const std::vector<DigestFunction> functions = find_functions();
const DigestFunction fastest = functions.front();

// Null where a copy is digested by itself. A processor that has this one has either function above
// whose digests are the same.
CopyFunction find_copy() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx2")) return copy_avx2;
#endif
  return nullptr;
}
const CopyFunction copy_in_one_pass = find_copy();

}  // namespace

DigestSecret::DigestSecret(uint64_t seed) {
  RandomSource random(seed);
  const auto word = [&] { return uint64_t{random.next()} << 32 | random.next(); };
  for (uint64_t& w : words) w = word() | 1;
  for (uint64_t& w : by_place) w = word();
}

uint64_t digest_of(std::span<const std::byte> bytes, const DigestSecret& secret) {
  assert(bytes.size() <= DigestSecret::kMostBytes);
  return fastest(bytes, secret);
}

uint64_t copy_and_digest(std::byte* to, std::span<const std::byte> memory,
                         const DigestSecret& secret) {
  assert(memory.size() <= DigestSecret::kMostBytes);
  if (copy_in_one_pass != nullptr &&
      reinterpret_cast<uintptr_t>(memory.data()) % copy_detail::kBlockAlign == 0)
    return copy_in_one_pass(to, memory, secret);
  copy_from_memory(to, memory.data(), memory.size());
  return fastest({to, memory.size()}, secret);
}

std::span<const DigestFunction> digest_functions() { return functions; }

}  // namespace hostnic
