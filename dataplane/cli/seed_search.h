// SPDX-License-Identifier: BSD-3-Clause
// `--seeds A..B` of `hostnic lab` and `hostnic fault`: the same command with one seed after the
// other, until it fails; then with fewer rules, as long as it still does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hostnic::cli {

struct SeedRange {
  uint64_t first = 1, last = 1;
};
// Reads "1..200", or one seed.
std::optional<SeedRange> parse_seeds(std::string_view text);

// Takes `--seeds X` out of hostnic's words; none: it is not among them.
std::optional<std::string> take_seeds(std::vector<std::string>& words);
// The words with this seed instead of any other.
std::vector<std::string> with_seed(const std::vector<std::string>& words, uint64_t seed);
// Where the rules are among the words: impairments and faults. Those of the command do not count.
std::vector<size_t> rules_in(const std::vector<std::string>& words);
// The words without the rule at `place`.
std::vector<std::string> without_rule(std::vector<std::string> words, size_t place);
// A line for a shell.
std::string shell_line(const std::vector<std::string>& words);

// Runs hostnic with these words for each seed. Returns 0, or the exit code of the first that fails,
// whose output it shows; or kNeverFired where in each of the runs some rule never fired.
int search_seeds(const std::string& seeds, const std::vector<std::string>& words,
                 const std::vector<std::string>& command);

}  // namespace hostnic::cli
