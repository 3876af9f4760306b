// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "dataplane/daemon/control/commands/commands.h"

namespace hostnic {
namespace {

constexpr std::array kCommands = {
    &kShowNic,       &kShowQp,     &kShowPeers, &kShowClient, &kShowCm,     &kShowCounters,
    &kShowImpair,    &kShowSwitch, &kShowMrc,   &kShowDead,   &kShowErrors, &kShowMetrics,
    &kExplain,       &kProbe,      &kMrcProbe,  &kSetImpair,  &kSetMrc,     &kTracePoints,
    &kClearCounters, &kStart,      &kStop,      &kHelp,       &kQuit,
};

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  constexpr std::string_view kSpaces = " \t\r\n";
  size_t at = text.find_first_not_of(kSpaces);
  while (at != std::string_view::npos) {
    const size_t end = std::min(text.find_first_of(kSpaces, at), text.size());
    words.push_back(text.substr(at, end - at));
    at = text.find_first_not_of(kSpaces, end);
  }
  return words;
}

}  // namespace

std::span<const PromptCommand* const> all_commands() { return kCommands; }

ParsedLine parse_command_line(std::string_view line) {
  ParsedLine parsed;
  std::vector<std::string_view> words = split_words(line);
  parsed.wants_json = std::erase(words, "--json") != 0;
  if (words.empty() || words[0].starts_with('#')) return parsed;
  size_t matched = 0;
  std::string same_start;
  for (const PromptCommand* command : all_commands()) {
    const auto name = split_words(command->words);
    if (name[0] == words[0]) {
      if (!same_start.empty()) same_start += ", ";
      same_start += command->words;
    }
    if (name.size() <= matched || name.size() > words.size()) continue;
    if (!std::equal(name.begin(), name.end(), words.begin())) continue;
    parsed.command = command;
    matched = name.size();
  }
  if (parsed.command == nullptr) {
    parsed.error = same_start.empty()
                       ? fmt::format("no command \"{}\" (`help` lists them)", words[0])
                       : fmt::format("\"{}\" is incomplete or unknown (there are: {})",
                                     fmt::join(words, " "), same_start);
    return parsed;
  }
  words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(matched));
  parsed.args = std::move(words);
  return parsed;
}

CommandResult run_command(Daemon& daemon, const Asker& asker, std::string_view line) {
  const ParsedLine parsed = parse_command_line(line);
  if (!parsed.error.empty()) return {EINVAL, parsed.error};
  if (parsed.command == nullptr) return {};
  if (parsed.command->is_owners && !asker.is_owner)
    return {EPERM,
            fmt::format("`{}` is for the user who runs hostnicd (uid {}) and for root, not for uid "
                        "{} (`help` lists what is for everybody)",
                        parsed.command->words, geteuid(), asker.uid)};
  if (!parsed.wants_json) return parsed.command->run(daemon, asker, parsed.args);
  if (parsed.command->run_json == nullptr)
    return {EINVAL, fmt::format("`{}` has no --json", parsed.command->words)};
  return parsed.command->run_json(daemon, asker, parsed.args);
}

CommandResult usage_error(const PromptCommand& command) {
  return {EINVAL, fmt::format("usage: {} {}", command.words, command.usage)};
}

}  // namespace hostnic
