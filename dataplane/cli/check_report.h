// SPDX-License-Identifier: BSD-3-Clause
// Findings of `hostnic check` as people and programs read them, and those that nobody wants to
// read. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/expected.h"

namespace hostnic::cli {

// A place in a program, as far as it is known.
struct SourcePlace {
  std::string function;  // empty: not known
  std::string line;      // file and line; empty: not known
  std::string object;    // "program+0x1234"
};

struct Finding {
  std::string kind;
  std::string program;
  int pid = 0;
  std::string verb;
  std::string text;
  std::vector<SourcePlace> places;  // from the call outwards
  std::string other_word;           // empty: there is no other place
  SourcePlace other;
};

// Which findings are left out, by lines of a file: "KIND PATTERN". The kind may be "*"; the pattern
// is a shell's and stands for a function, a line or an object of any of the places.
class Suppressions {
 public:
  // An error is one line with the number of the bad one.
  static Expected<Suppressions, std::string> parse(std::string_view text);
  bool contains(const Finding& finding) const;

 private:
  struct Line {
    std::string kind, pattern;
  };
  std::vector<Line> lines_;
};

// Lines for people, the last with its newline.
std::string text_of(const Finding& finding);
// What makes two findings of two processes the same one.
std::string key_of(const Finding& finding);

struct CheckSummary {
  std::vector<Finding> findings;
  uint64_t repeated = 0;  // the same ones, by further processes
  uint64_t suppressed = 0;
  uint64_t lost = 0;       // that had no room
  uint32_t processes = 0;  // that made calls
};
std::string text_of(const CheckSummary& summary);
std::string json_of(const CheckSummary& summary);
// All kinds, for `--list`.
std::string table_of_kinds();

}  // namespace hostnic::cli
