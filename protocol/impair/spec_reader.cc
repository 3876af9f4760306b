// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/impair/spec_reader.h"

namespace hostnic::impair {
namespace {

constexpr const char* kPercentExpected = "a percentage such as 1%, from 0% to 100%";
constexpr const char* kTimeExpected = "a time such as 50us, in whole nanoseconds, at most 86400s";

}  // namespace

bool SpecReader::fail(size_t offset, std::string expected) {
  const std::string_view written = lexer_.written_at(offset);
  error_ = {offset + 1, written.empty() ? "the end" : std::string(written), std::move(expected)};
  return false;
}

bool SpecReader::percentage(uint32_t& ppb) {
  const Token number = peek();
  if (number.kind != Token::Kind::kNumber) return fail_here(kPercentExpected);
  take();
  const auto value = parse_decimal(number.text, kPercentDecimals);
  if (!peek().is_symbol('%') || !value || *value > 1'000'000'000)
    return fail(number.offset, kPercentExpected);
  take();
  ppb = static_cast<uint32_t>(*value);
  return true;
}

std::optional<uint64_t> SpecReader::quantity(const Unit* units, size_t count) {
  const Token number = peek();
  if (number.kind != Token::Kind::kNumber) return std::nullopt;
  take();
  for (size_t i = 0; i < count; ++i) {
    if (!peek().is(units[i].name)) continue;
    take();
    return parse_decimal(number.text, units[i].decimals);
  }
  return std::nullopt;
}

bool SpecReader::duration(uint64_t& ns) {
  const size_t offset = peek().offset;
  const auto value = quantity(kTimeUnits);
  if (!value || *value > kMaxDurationNs) return fail(offset, kTimeExpected);
  ns = *value;
  return true;
}

std::optional<uint64_t> SpecReader::integer_at(uint64_t least, uint64_t most,
                                               const char* expected) {
  const Token token = peek();
  const auto number = token.kind == Token::Kind::kNumber ? parse_integer(token.text) : std::nullopt;
  if (!number || *number < least || *number > most) {
    fail_here(expected);
    return std::nullopt;
  }
  take();
  return number;
}

}  // namespace hostnic::impair
