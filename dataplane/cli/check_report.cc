// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/check_report.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <sstream>

#include "protocol/hostif/check_board.h"
#include "protocol/json_writer.h"

namespace hostnic::cli {
namespace {

bool is_kind(const std::string& name) {
  return std::ranges::any_of(kCheckKinds, [&](const auto& kind) { return name == kind.name; });
}

bool matches(const std::string& pattern, const SourcePlace& place) {
  const auto fits = [&](const std::string& text) {
    return !text.empty() && fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
  };
  return fits(place.function) || fits(place.line) || fits(place.object);
}

std::string words_of(const SourcePlace& place) {
  const std::string& where = place.line.empty() ? place.object : place.line;
  return place.function.empty() ? where : fmt::format("{} ({})", place.function, where);
}

void write_place(JsonWriter& json, const SourcePlace& place) {
  json.begin_object()
      .member("function", place.function)
      .member("line", place.line)
      .member("object", place.object)
      .end_object();
}

}  // namespace

Expected<Suppressions, std::string> Suppressions::parse(std::string_view text) {
  Suppressions result;
  std::istringstream lines{std::string(text)};
  size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    line.erase(std::min(line.find('#'), line.size()));
    std::istringstream words(line);
    Line parsed;
    if (!(words >> parsed.kind)) continue;
    std::string more;
    if (parsed.kind != "*" && !is_kind(parsed.kind))
      return Unexpected(fmt::format("line {}: no kind of finding is called \"{}\" (see --list)",
                                    number, parsed.kind));
    if (!(words >> parsed.pattern) || words >> more)
      return Unexpected(fmt::format("line {}: use KIND PATTERN", number));
    result.lines_.push_back(std::move(parsed));
  }
  return result;
}

bool Suppressions::contains(const Finding& finding) const {
  return std::ranges::any_of(lines_, [&](const Line& line) {
    if (line.kind != "*" && line.kind != finding.kind) return false;
    return matches(line.pattern, finding.other) ||
           std::ranges::any_of(finding.places, [&](const SourcePlace& place) {
             return matches(line.pattern, place);
           });
  });
}

std::string text_of(const Finding& finding) {
  std::string text = fmt::format("hostnic check[{}]: {}: {}: {}\n", finding.pid, finding.kind,
                                 finding.verb, finding.text);
  for (size_t i = 0; i < finding.places.size(); ++i)
    text += fmt::format("    {} {}\n", i == 0 ? "at" : "called from", words_of(finding.places[i]));
  if (!finding.other_word.empty())
    text += fmt::format("    {} at {}\n", finding.other_word, words_of(finding.other));
  return text;
}

std::string key_of(const Finding& finding) {
  const SourcePlace here = finding.places.empty() ? SourcePlace{} : finding.places.front();
  return fmt::format("{} {} {} {}", finding.kind, finding.verb, here.object, finding.other.object);
}

std::string text_of(const CheckSummary& summary) {
  if (summary.processes == 0)
    return "hostnic check: no program made a call of verbs that could be seen\n";
  const size_t count = summary.findings.size();
  std::string text = fmt::format("hostnic check: {} finding{} in {} process{}",
                                 count == 0 ? "no" : std::to_string(count), count == 1 ? "" : "s",
                                 summary.processes, summary.processes == 1 ? "" : "es");
  if (summary.repeated != 0) text += fmt::format(", {} of them again", summary.repeated);
  if (summary.suppressed != 0) text += fmt::format(", {} suppressed", summary.suppressed);
  text += "\n";
  if (summary.lost != 0)
    text += fmt::format("hostnic check: {} further findings had no room\n", summary.lost);
  return text;
}

std::string json_of(const CheckSummary& summary) {
  JsonWriter json;
  json.begin_object().key("findings").begin_array();
  for (const Finding& finding : summary.findings) {
    json.line()
        .begin_object()
        .member("kind", finding.kind)
        .member("program", finding.program)
        .member("pid", finding.pid)
        .member("verb", finding.verb)
        .member("text", finding.text)
        .key("places")
        .begin_array();
    for (const SourcePlace& place : finding.places) write_place(json, place);
    json.end_array();
    if (!finding.other_word.empty()) {
      json.member("other", finding.other_word).key("other_place");
      write_place(json, finding.other);
    }
    json.end_object();
  }
  json.line()
      .end_array()
      .member("processes", summary.processes)
      .member("repeated", summary.repeated)
      .member("suppressed", summary.suppressed)
      .member("lost", summary.lost)
      .end_object();
  return json.text() + "\n";
}

std::string table_of_kinds() {
  std::string text = "| finding | of | what |\n|---|---|---|\n";
  for (const CheckKindInfo& kind : kCheckKinds)
    text += fmt::format("| `{}` | {} | {} |\n", kind.name, kind.is_strict ? "`--strict`" : "all",
                        kind.meaning);
  return text;
}

}  // namespace hostnic::cli
