// SPDX-License-Identifier: BSD-3-Clause
// docs/credit-channel.md quotes the program: what it quotes is there, line by line.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace {

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(CreditChannelPage, QuotesTheSources) {
  const std::filesystem::path top = HOSTNIC_SOURCE_DIR;
  std::string sources;
  for (const auto& entry : std::filesystem::directory_iterator(top / "tests/apps/credit-channel"))
    sources += contents(entry.path());

  std::istringstream page(contents(top / "docs/credit-channel.md"));
  std::string quote;
  int quotes = 0;
  for (std::string line; std::getline(page, line);) {
    if (line != "```cpp") continue;
    for (quote.clear(); std::getline(page, line) && line != "```";) quote += line + "\n";
    EXPECT_NE(sources.find(quote), std::string::npos) << quote;
    ++quotes;
  }
  EXPECT_GE(quotes, 5);
}

}  // namespace
