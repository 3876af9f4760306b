// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <charconv>

#include "dataplane/cli/seed_search.h"

namespace hostnic::cli {
namespace {

constexpr std::array<std::string_view, 4> kRules = {"--fault", "--rule", "--impair", "--loss"};

bool is_option(const std::string& word, std::string_view option) {
  return word == option || word.starts_with(std::string(option) + "=");
}

std::optional<uint64_t> number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Removes the option at `place` and its value; returns the value.
std::string take_option(std::vector<std::string>& words, size_t place) {
  const auto at = words.begin() + static_cast<std::ptrdiff_t>(place);
  std::string value;
  if (const size_t sign = at->find('='); sign != std::string::npos) {
    value = at->substr(sign + 1);
    words.erase(at);
  } else {
    const bool has_value = at + 1 != words.end();
    if (has_value) value = at[1];
    words.erase(at, at + (has_value ? 2 : 1));
  }
  return value;
}

}  // namespace

std::optional<SeedRange> parse_seeds(std::string_view text) {
  const size_t dots = text.find("..");
  const auto first = number(text.substr(0, dots));
  const auto last = dots == std::string_view::npos ? first : number(text.substr(dots + 2));
  if (!first || !last || *last < *first || *last == UINT64_MAX) return std::nullopt;
  return SeedRange{*first, *last};
}

std::optional<std::string> take_seeds(std::vector<std::string>& words) {
  for (size_t i = 1; i < words.size(); ++i)
    if (is_option(words[i], "--seeds")) return take_option(words, i);
  return std::nullopt;
}

std::vector<std::string> with_seed(const std::vector<std::string>& words, uint64_t seed) {
  std::vector<std::string> result = words;
  for (size_t i = 1; i < result.size();)
    if (is_option(result[i], "--seed"))
      take_option(result, i);
    else
      ++i;
  result.insert(result.begin() + 1, {"--seed", std::to_string(seed)});
  return result;
}

std::vector<size_t> rules_in(const std::vector<std::string>& words) {
  std::vector<size_t> places;
  for (size_t i = 1; i < words.size(); ++i)
    if (std::ranges::any_of(kRules,
                            [&](std::string_view each) { return is_option(words[i], each); }))
      places.push_back(i);
  return places;
}

std::vector<std::string> without_rule(std::vector<std::string> words, size_t place) {
  take_option(words, place);
  return words;
}

std::string shell_line(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) {
    constexpr std::string_view kPlain =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,%@";
    line += line.empty() ? "" : " ";
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
      line += word;
      continue;
    }
    line += '\'';
    for (const char c : word) line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += '\'';
  }
  return line;
}

}  // namespace hostnic::cli
