// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/impair/spec_lexer.h"

#include <algorithm>

namespace hostnic::impair {

void Lexer::advance() {
  const size_t start = end_of_run(position_, is_space);
  token_ = {Token::Kind::kEnd, {}, start};
  position_ = start;
  if (start == text_.size()) return;

  const char first = text_[start];
  size_t end = start + 1;
  token_.kind = Token::Kind::kSymbol;
  if (is_letter(first)) {
    token_.kind = Token::Kind::kWord;
    end = end_of_run(start,
                     [](char c) { return is_letter(c) || is_digit(c) || c == '-' || c == '_'; });
  } else if (first == '0' && end < text_.size() && (text_[end] == 'x' || text_[end] == 'X')) {
    token_.kind = Token::Kind::kNumber;
    end = end_of_run(end + 1, is_hex_digit);
  } else if (is_digit(first) || first == '.') {
    end = end_of_run(start, [](char c) { return is_digit(c) || c == '.'; });
    const std::string_view run = text_.substr(start, end - start);
    const bool several_dots = std::count(run.begin(), run.end(), '.') > 1;
    token_.kind = several_dots ? Token::Kind::kAddress : Token::Kind::kNumber;
  }
  token_.text = text_.substr(start, end - start);
  position_ = end;
}

std::string_view Lexer::take_name() {
  const size_t start = token_.offset;
  const size_t end = end_of_run(start, [](char c) { return !is_space(c) && c != ';'; });
  position_ = end;
  advance();
  return text_.substr(start, end - start);
}

std::string_view Lexer::written_at(size_t offset) const {
  size_t end = end_of_run(offset, [](char c) { return !is_space(c) && c != ';' && c != ','; });
  if (end == offset && end < text_.size()) ++end;  // take the separator itself
  constexpr size_t kLongest = 40;
  return text_.substr(offset, std::min(end - offset, kLongest));
}

}  // namespace hostnic::impair
