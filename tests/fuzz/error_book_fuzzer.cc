// SPDX-License-Identifier: BSD-3-Clause
// A file of errors may hold anything: the entries that make sense are few, short and printable, and
// a file that is made of them says the same.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "dataplane/daemon/observe/error_book.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hostnic;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto entries = ErrorBook::from_file(text);
  fuzz::require(entries.size() <= ErrorBook::kMaxKinds);
  const auto again = ErrorBook::from_file(ErrorBook::to_file(entries));
  fuzz::require(std::ranges::equal(entries, again, [](const auto& a, const auto& b) {
    return a.kind == b.kind && a.count == b.count && a.first_s == b.first_s &&
           a.last_s == b.last_s && a.example == b.example;
  }));
  // A line of a log is any text, too.
  ErrorBook book;
  fuzz::require(book.note(text, 1) == 1 && book.note(text, 2) == 2);
  const auto noted = book.entries();
  fuzz::require(noted.size() == 1 && noted[0].count == 2 &&
                noted[0].example.size() <= ErrorBook::kMaxLineBytes);
  return 0;
}
