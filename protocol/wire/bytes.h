// SPDX-License-Identifier: BSD-3-Clause
// Big-endian (and, for the ICRC, little-endian) integers at unaligned addresses, and the two base
// classes of every header: a view and a writer whose field accesses are checked against the
// header's size at compile time. Pure functions, any thread.
#pragma once

#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

namespace hostnic::wire {

static_assert(std::endian::native == std::endian::little || std::endian::native == std::endian::big,
              "mixed-endian hosts are not supported");

namespace detail {
inline uint8_t swap_bytes(uint8_t v) { return v; }
inline uint16_t swap_bytes(uint16_t v) { return __builtin_bswap16(v); }
inline uint32_t swap_bytes(uint32_t v) { return __builtin_bswap32(v); }
inline uint64_t swap_bytes(uint64_t v) { return __builtin_bswap64(v); }

template <typename T, std::endian Order>
inline T load(const std::byte* at) {
  T v;
  std::memcpy(&v, at, sizeof v);
  if constexpr (Order != std::endian::native) v = swap_bytes(v);
  return v;
}
template <typename T, std::endian Order>
inline void store(std::byte* at, T v) {
  if constexpr (Order != std::endian::native) v = swap_bytes(v);
  std::memcpy(at, &v, sizeof v);
}
}  // namespace detail

inline uint8_t load_u8(const std::byte* at) { return std::to_integer<uint8_t>(*at); }
inline uint16_t load_be16(const std::byte* at) {
  return detail::load<uint16_t, std::endian::big>(at);
}
inline uint32_t load_be24(const std::byte* at) {
  return uint32_t{load_u8(at)} << 16 | load_be16(at + 1);
}
inline uint32_t load_be32(const std::byte* at) {
  return detail::load<uint32_t, std::endian::big>(at);
}
inline uint64_t load_be64(const std::byte* at) {
  return detail::load<uint64_t, std::endian::big>(at);
}
inline uint32_t load_le32(const std::byte* at) {
  return detail::load<uint32_t, std::endian::little>(at);
}

inline void store_u8(std::byte* at, uint8_t v) { *at = std::byte{v}; }
inline void store_be16(std::byte* at, uint16_t v) {
  detail::store<uint16_t, std::endian::big>(at, v);
}
// Stores the low 24 bits of v.
inline void store_be24(std::byte* at, uint32_t v) {
  store_u8(at, static_cast<uint8_t>(v >> 16));
  store_be16(at + 1, static_cast<uint16_t>(v));
}
inline void store_be32(std::byte* at, uint32_t v) {
  detail::store<uint32_t, std::endian::big>(at, v);
}
inline void store_be64(std::byte* at, uint64_t v) {
  detail::store<uint64_t, std::endian::big>(at, v);
}
inline void store_le32(std::byte* at, uint32_t v) {
  detail::store<uint32_t, std::endian::little>(at, v);
}

// The base of the read views. A view can only be made from exactly Bytes bytes, and a field that
// would end behind them does not compile, so no accessor can read past the end.
template <size_t Bytes>
class HeaderView {
 public:
  static constexpr size_t kBytes = Bytes;
  explicit HeaderView(std::span<const std::byte, Bytes> bytes) : start_(bytes.data()) {}

 protected:
  template <size_t Offset, size_t Size>
  const std::byte* field() const {
    static_assert(Offset + Size <= Bytes, "field ends behind the header");
    return start_ + Offset;
  }
  template <size_t Offset>
  uint8_t u8() const {
    return load_u8(field<Offset, 1>());
  }
  template <size_t Offset>
  uint16_t u16() const {
    return load_be16(field<Offset, 2>());
  }
  template <size_t Offset>
  uint32_t u24() const {
    // A header with a byte before the field reads that as well: one access instead of two.
    if constexpr (Offset >= 1) {
      return u32<Offset - 1>() & 0xffffff;
    } else if constexpr (Offset + 4 <= Bytes) {
      return u32<Offset>() >> 8;
    } else {
      return load_be24(field<Offset, 3>());
    }
  }
  template <size_t Offset>
  uint32_t u32() const {
    return load_be32(field<Offset, 4>());
  }
  template <size_t Offset>
  uint64_t u64() const {
    return load_be64(field<Offset, 8>());
  }

 private:
  const std::byte* start_;
};

// The base for writing headers, used by the emit() functions.
template <size_t Bytes>
class HeaderWriter {
 public:
  explicit HeaderWriter(std::span<std::byte, Bytes> bytes) : start_(bytes.data()) {}

  template <size_t Offset, size_t Size>
  std::byte* field() const {
    static_assert(Offset + Size <= Bytes, "field ends behind the header");
    return start_ + Offset;
  }
  template <size_t Offset>
  void u8(uint8_t v) const {
    store_u8(field<Offset, 1>(), v);
  }
  template <size_t Offset>
  void u16(uint16_t v) const {
    store_be16(field<Offset, 2>(), v);
  }
  template <size_t Offset>
  void u24(uint32_t v) const {
    store_be24(field<Offset, 3>(), v);
  }
  template <size_t Offset>
  void u32(uint32_t v) const {
    store_be32(field<Offset, 4>(), v);
  }
  template <size_t Offset>
  void u64(uint64_t v) const {
    store_be64(field<Offset, 8>(), v);
  }

 private:
  std::byte* start_;
};

// The checked way to a view: nothing if `bytes` is shorter than the header.
//   if (auto udp = view_front<UdpView>(bytes)) use(udp->dst_port());
template <typename View>
std::optional<View> view_front(std::span<const std::byte> bytes) {
  if (bytes.size() < View::kBytes) return std::nullopt;
  return View(bytes.first<View::kBytes>());
}

}  // namespace hostnic::wire
