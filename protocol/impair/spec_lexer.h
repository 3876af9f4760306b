// SPDX-License-Identifier: BSD-3-Clause
// Splits an impairment spec into tokens. A number ends where its unit begins, so "50us" and "50 us"
// are the same two tokens.
#pragma once

#include <cstddef>
#include <string_view>

namespace hostnic::impair {

struct Token {
  enum class Kind { kEnd, kWord, kNumber, kAddress, kSymbol };
  Kind kind = Kind::kEnd;
  std::string_view text;
  size_t offset = 0;  // offset in the spec, bytes from 0

  bool is(std::string_view word) const { return kind == Kind::kWord && text == word; }
  bool is_symbol(char c) const { return kind == Kind::kSymbol && text[0] == c; }
};

// The character classes are locale-free; bytes beyond ASCII are symbols, which no rule accepts.
constexpr bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
constexpr bool is_hex_digit(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) { advance(); }

  const Token& peek() const { return token_; }
  Token take() {
    const Token token = token_;
    advance();
    return token;
  }
  // Takes a name, of any characters but spaces and ';'.
  std::string_view take_name();
  // The text at `offset`, up to the next space or separator: for error messages.
  std::string_view written_at(size_t offset) const;

 private:
  void advance();
  template <typename Predicate>
  size_t end_of_run(size_t from, Predicate in_run) const {
    while (from < text_.size() && in_run(text_[from])) ++from;
    return from;
  }

  std::string_view text_;
  size_t position_ = 0;
  Token token_;
};

}  // namespace hostnic::impair
