// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <time.h>

#include "dataplane/daemon/control/commands/commands.h"
#include "dataplane/daemon/observe/error_book.h"
#include "protocol/json_writer.h"

namespace hostnic {
namespace {

// UTC, as logs of several machines are compared.
std::string date_text(uint64_t unix_s) {
  const auto seconds = static_cast<time_t>(unix_s);
  tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  const size_t length = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return std::string(text, length);
}

CommandResult show_errors(Daemon&, const Asker&, std::span<const std::string_view> args) {
  if (!args.empty()) return usage_error(kShowErrors);
  std::string text;
  for (const ErrorBook::Entry& entry : error_book().entries()) {
    text += fmt::format("{} {} time{}, first {}: {}\n", date_text(entry.last_s), entry.count,
                        entry.count == 1 ? "" : "s", date_text(entry.first_s), entry.example);
  }
  if (const uint64_t forgotten = error_book().forgotten(); forgotten != 0)
    text += fmt::format("{} more, of kinds that were too many to keep\n", forgotten);
  return {0, text.empty() ? "no errors\n" : text};
}

CommandResult show_errors_json(Daemon&, const Asker&, std::span<const std::string_view> args) {
  if (!args.empty()) return usage_error(kShowErrors);
  JsonWriter json;
  json.begin_array();
  for (const ErrorBook::Entry& entry : error_book().entries()) {
    json.begin_object()
        .member("kind", entry.kind)
        .member("count", entry.count)
        .member("first_s", entry.first_s)
        .member("last_s", entry.last_s)
        .member("example", entry.example)
        .end_object()
        .line();
  }
  return {0, json.end_array().line().take()};
}

}  // namespace

// The lines tell of other users' programs.
const PromptCommand kShowErrors = {command_info("show errors"), show_errors, show_errors_json};

}  // namespace hostnic
