// SPDX-License-Identifier: BSD-3-Clause
// Writes JSON (RFC 8259) into a string, in the order of the calls. The caller closes what he opens,
// and names members in objects only: nothing of this is checked. Bytes of strings that are no
// printable ASCII are escaped, so that the text is ASCII whatever programs call themselves; so is
// '<', by which a text inside a page of HTML would end its script. One thread.
#pragma once

#include <charconv>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace hostnic {

class JsonWriter {
 public:
  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }

  // The name of the member that the next call writes.
  JsonWriter& key(std::string_view name) {
    separate();
    append_string(name);
    text_ += ':';
    needs_comma_ = false;
    return *this;
  }

  JsonWriter& value(std::string_view text) {
    separate();
    append_string(text);
    return *this;
  }
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(bool flag) {
    separate();
    text_ += flag ? "true" : "false";
    return *this;
  }
  // Numbers above 2^53 lose their last digits in readers that have doubles only.
  template <std::integral T>
  JsonWriter& value(T number) {
    separate();
    char digits[24];
    text_.append(digits, std::to_chars(digits, digits + sizeof(digits), number).ptr);
    return *this;
  }
  // A number that is not finite has no form in JSON and becomes null.
  JsonWriter& value(double number) {
    separate();
    if (number != number || number - number != 0) {
      text_ += "null";
      return *this;
    }
    char digits[32];
    text_.append(digits, std::to_chars(digits, digits + sizeof(digits), number).ptr);
    return *this;
  }

  // A value that is JSON already.
  JsonWriter& raw(std::string_view json) {
    separate();
    text_ += json;
    return *this;
  }

  template <typename T>
  JsonWriter& member(std::string_view name, const T& content) {
    return key(name).value(content);
  }

  // Ends a line, where people and line-wise tools like one.
  JsonWriter& line() {
    text_ += '\n';
    return *this;
  }

  const std::string& text() const { return text_; }
  std::string take() { return std::move(text_); }

 private:
  JsonWriter& open(char bracket) {
    separate();
    text_ += bracket;
    needs_comma_ = false;
    return *this;
  }
  JsonWriter& close(char bracket) {
    text_ += bracket;
    needs_comma_ = true;
    return *this;
  }
  void separate() {
    if (needs_comma_) text_ += ',';
    needs_comma_ = true;
  }
  void append_string(std::string_view text) {
    static constexpr char kHex[] = "0123456789abcdef";
    text_ += '"';
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      if (c == '"' || c == '\\') {
        text_ += '\\';
        text_ += c;
      } else if (byte >= ' ' && byte <= '~' && c != '<') {
        text_ += c;
      } else {
        text_ += "\\u00";
        text_ += kHex[byte >> 4];
        text_ += kHex[byte & 15];
      }
    }
    text_ += '"';
  }

  std::string text_;
  bool needs_comma_ = false;
};

}  // namespace hostnic
