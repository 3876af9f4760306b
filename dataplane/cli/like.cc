// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/like.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/personality.h"
#include "dataplane/cli/process.h"

namespace hostnic::cli {
namespace {

int list() {
  for (const config::ShippedPersonality& each : config::shipped_personalities())
    if (const auto personality = config::find_personality(std::string(each.name)))
      fmt::print("{:<16}{}\n", each.name, personality->about);
  return 0;
}

}  // namespace

int run_like(const std::vector<std::string>& words) {
  if (words.empty()) return list();
  if (words.size() > 1) return fail("like", "usage: hostnic like [NAME|FILE]");
  const auto personality = config::find_personality(words[0]);
  if (!personality) return fail("like", personality.error().text());
  const auto shipped = config::shipped_personalities();
  const auto found = std::ranges::find(shipped, words[0], &config::ShippedPersonality::name);
  if (found != shipped.end())
    fmt::print("{}", found->text);
  else if (!personality->about.empty())
    fmt::print("# {}: {}\n", words[0], personality->about);
  for (const std::string& line : personality->capped)
    fmt::print("# hostnic's own limit holds: {}\n", line);
  return 0;
}

}  // namespace hostnic::cli
