// SPDX-License-Identifier: BSD-3-Clause
// Reads the words that all rules share, of impairments and of faults: counts, percentages, times.
// It is the base of their parsers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "protocol/impair/spec.h"
#include "protocol/impair/spec_lexer.h"
#include "protocol/impair/spec_values.h"

namespace hostnic::impair {

// Functions return false once the error is set; nothing is to be read after that.
class SpecReader {
 protected:
  explicit SpecReader(std::string_view text) : lexer_(text) {}
  ~SpecReader() = default;
  SpecReader(const SpecReader&) = default;
  SpecReader& operator=(const SpecReader&) = default;

  const Token& peek() const { return lexer_.peek(); }
  Token take() { return lexer_.take(); }
  std::string_view take_name() { return lexer_.take_name(); }
  bool at_end() const { return peek().kind == Token::Kind::kEnd; }
  bool at_end_of_rule() const { return at_end() || peek().is_symbol(';'); }

  bool percentage(uint32_t& ppb);
  bool duration(uint64_t& ns);
  bool count(uint64_t& value) {
    return integer(value, 1, uint64_t{1} << 48, "a count from 1, such as 3");
  }
  template <typename Int>
  bool integer(Int& value, uint64_t least, uint64_t most, const char* expected) {
    const auto number = integer_at(least, most, expected);
    if (number) value = static_cast<Int>(*number);
    return number.has_value();
  }
  // Takes a number and a unit; none if either is malformed.
  template <size_t N>
  std::optional<uint64_t> quantity(const std::array<Unit, N>& units) {
    return quantity(units.data(), N);
  }

  bool fail(size_t offset, std::string expected);
  bool fail_here(std::string expected) { return fail(peek().offset, std::move(expected)); }
  SpecError take_error() { return std::move(error_); }

 private:
  std::optional<uint64_t> integer_at(uint64_t least, uint64_t most, const char* expected);
  std::optional<uint64_t> quantity(const Unit* units, size_t count);

  Lexer lexer_;
  SpecError error_;
};

}  // namespace hostnic::impair
