// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/prompt_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <sstream>

namespace hostnic::cli {
namespace {

constexpr uint32_t kUsualWatchMs = 1000;
constexpr uint32_t kShortestWatchMs = 100, kLongestWatchMs = 3'600'000;

constexpr CommandInfo kOwn[] = {
    {"watch", "[SECONDS] COMMAND", "the command's answer anew each second, until a key is pressed"},
    {"rates", "[hnicK]", "counters that move, by the second"},
    {"fault add", "RULE", "another rule of faults from now on (hostnic fault --help)"},
    {"fault list", "", "the rules of faults, and how often they have fired"},
    {"fault remove", "N", "end a rule, by its number in the list"},
    {"exit", "", "leave this prompt, as Ctrl-D does; hostnicd goes on"},
};

std::vector<std::string> words_of(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

bool begins_with(std::span<const std::string> words, std::span<const std::string> start) {
  return words.size() >= start.size() && std::equal(start.begin(), start.end(), words.begin());
}

// The words that an item of a usage stands for: "[hnicK]", "rx|tx", "[all|help]". Capitals are for
// what nobody can know, e.g. QPN.
void add_choices(const std::string& item, const std::vector<std::string>& nics,
                 std::set<std::string>& choices) {
  std::string text = item;
  std::erase_if(text, [](char c) { return c == '[' || c == ']'; });
  std::replace(text.begin(), text.end(), '|', ' ');
  for (const std::string& word : words_of(text)) {
    if (word == "hnicK")
      choices.insert(nics.begin(), nics.end());
    else if (std::ranges::all_of(word, [](char c) { return c >= 'a' && c <= 'z'; }))
      choices.insert(word);
  }
}

// What may follow a command behind which `given` stands already.
void add_arguments(const CommandInfo& command, size_t given, const std::vector<std::string>& nics,
                   std::set<std::string>& choices) {
  const std::vector<std::string> items = words_of(command.usage);
  // An item that may be left out may be what comes next, as may the one behind it.
  for (size_t i = given; i < items.size(); ++i) {
    add_choices(items[i], nics, choices);
    if (items[i] == "SPEC")
      choices.insert({"none", "drop", "duplicate", "corrupt", "mark", "reorder", "delay", "rate",
                      "blackhole"});
    if (!items[i].starts_with('[')) break;
  }
}

void add_words(std::span<const std::string> before, std::span<const CommandInfo> commands,
               const std::vector<std::string>& nics, std::set<std::string>& choices) {
  for (const CommandInfo& command : commands) {
    const std::vector<std::string> name = words_of(command.words);
    if (name.size() > before.size() && begins_with(name, before))
      choices.insert(name[before.size()]);
    if (begins_with(before, name))
      add_arguments(command, before.size() - name.size(), nics, choices);
  }
}

std::optional<uint32_t> milliseconds_in(const std::string& text) {
  if (text.empty() || text.find_first_not_of("0123456789.") != std::string::npos)
    return std::nullopt;
  const double value = std::strtod(text.c_str(), nullptr) * 1000;
  return value > kLongestWatchMs ? kLongestWatchMs + 1 : static_cast<uint32_t>(std::lround(value));
}

std::string joined(std::span<const std::string> words) {
  return fmt::format("{}", fmt::join(words, " "));
}

}  // namespace

std::span<const CommandInfo> prompt_commands() { return kOwn; }

std::string prompt_help() {
  std::string commands;
  for (const CommandInfo& command : kCommandInfos)
    if (std::string_view(command.words) != "quit") commands += commands_help({&command, 1});
  const std::string all = commands_help();
  return commands_help(kOwn) + commands + all.substr(all.find("SPEC:\n"));
}

std::vector<std::string> completions(std::string_view line, const std::vector<std::string>& nics) {
  std::vector<std::string> words = words_of(line);
  std::string begun;
  if (!line.empty() && line.back() != ' ' && line.back() != '\t' && !words.empty()) {
    begun = words.back();
    words.pop_back();
  }
  std::set<std::string> choices;
  std::span<const std::string> before = words;
  const bool watched = !before.empty() && before[0] == "watch";
  if (watched) {
    before = before.subspan(1);
    if (!before.empty() && milliseconds_in(before[0])) before = before.subspan(1);
    add_words(before, std::span(kOwn).subspan(1, 1), nics, choices);
  } else {
    add_words(before, kOwn, nics, choices);
  }
  for (const CommandInfo& command : kCommandInfos) {
    // What ends hostnicd is not proposed to somebody who wants to leave the prompt.
    if (std::string_view(command.words) != "quit") add_words(before, {&command, 1}, nics, choices);
  }
  std::vector<std::string> fitting;
  for (const std::string& choice : choices)
    if (choice.starts_with(begun)) fitting.push_back(choice);
  return fitting;
}

Expected<PromptLine, std::string> parse_prompt_line(std::string_view line) {
  const std::vector<std::string> all = words_of(line);
  std::span<const std::string> words = all;
  PromptLine parsed;
  if (words.empty() || words[0].starts_with('#')) return parsed;
  if (words[0] == "watch") {
    words = words.subspan(1);
    parsed.watch_ms = kUsualWatchMs;
    if (!words.empty()) {
      if (const auto given = milliseconds_in(words[0])) {
        parsed.watch_ms = *given;
        words = words.subspan(1);
      }
    }
    if (parsed.watch_ms < kShortestWatchMs || parsed.watch_ms > kLongestWatchMs)
      return Unexpected(std::string("watch: use 0.1 to 3600 seconds"));
    if (words.empty() || words[0] == "watch")
      return Unexpected(std::string("usage: watch [SECONDS] COMMAND"));
  }
  if (words[0] == "exit" || words[0] == "quit") {
    if (words.size() > 1) return Unexpected(fmt::format("usage: {}", words[0]));
    parsed.kind = PromptLine::Kind::kExit;
  } else if (words[0] == "help") {
    parsed.kind = PromptLine::Kind::kHelp;
  } else if (words[0] == "rates") {
    if (words.size() > 2) return Unexpected(std::string("usage: rates [hnicK]"));
    parsed.kind = PromptLine::Kind::kRates;
    parsed.text = joined(words.subspan(1));
  } else if (words[0] == "fault") {
    parsed.kind = PromptLine::Kind::kFault;
    parsed.text = joined(words.subspan(1));
  } else {
    parsed.kind = PromptLine::Kind::kCommand;
    parsed.text = joined(words);
  }
  return parsed;
}

bool is_answered_here(std::string_view line) {
  const std::vector<std::string> words = words_of(line);
  return !words.empty() &&
         (words[0] == "help" || words[0] == "watch" || words[0] == "rates" || words[0] == "fault");
}

CounterValues counters_in(std::string_view text) {
  CounterValues values;
  std::istringstream lines{std::string(text)};
  std::string nic, name;
  uint64_t value = 0;
  while (lines >> nic >> name >> value) values[nic + " " + name] = value;
  return values;
}

std::string rates_text(const CounterValues& before, const CounterValues& now, uint64_t elapsed_ns) {
  std::string text;
  for (const auto& [name, value] : now) {
    const auto old = before.find(name);
    const uint64_t from = old == before.end() ? 0 : old->second;
    // One that was set to 0 in between has counted from there.
    const uint64_t moved = value >= from ? value - from : value;
    if (moved == 0) continue;
    const double rate = static_cast<double>(moved) * 1e9 / static_cast<double>(elapsed_ns);
    text += fmt::format("{:<40} {:>16.{}f}/s\n", name, rate, rate < 10 ? 1 : 0);
  }
  return text.empty() ? "no counter has moved\n" : text;
}

}  // namespace hostnic::cli
