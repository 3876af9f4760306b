// SPDX-License-Identifier: BSD-3-Clause
// Headers one behind the other: Cursor reads them, Appender writes them. Pure, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "protocol/wire/bytes.h"

namespace hostnic::wire {

// Hands out one header after the other. Its owner has checked that they all fit.
class Cursor {
 public:
  explicit Cursor(const std::byte* at) : at_(at) {}
  template <typename View>
  View take() {
    const View view(std::span<const std::byte, View::kBytes>(at_, View::kBytes));
    at_ += View::kBytes;
    return view;
  }
  const std::byte* at() const { return at_; }

 private:
  const std::byte* at_;
};

// Appends one header after the other. Its owner has checked that they all fit.
class Appender {
 public:
  explicit Appender(std::byte* at) : at_(at) {}
  template <size_t Bytes, typename Header>
  void put(const Header& header) {
    emit(header, std::span<std::byte, Bytes>(at_, Bytes));
    at_ += Bytes;
  }
  void put_be64(uint64_t word) {
    store_be64(at_, word);
    at_ += sizeof(word);
  }
  const std::byte* at() const { return at_; }

 private:
  std::byte* at_;
};

}  // namespace hostnic::wire
