// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/fault_prompt.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "protocol/hostif/unique_fd.h"

namespace hostnic::cli {
namespace {

using faults::FaultRule;
using Error = Unexpected<std::string>;

constexpr const char* kUsage = "usage: fault add RULE, fault list, or fault remove N";

size_t places_of(const FaultBoard& board) {
  return std::min<size_t>(board.rules.load(std::memory_order_acquire), faults::kMaxFaults);
}

// Nothing: the board says no rule there.
std::optional<FaultRule> rule_at(const FaultBoard& board, size_t place) {
  char text[faults::kMaxFaultBytes + 1];
  memcpy(text, board.rule[place].text, sizeof(text));
  auto parsed = faults::parse_faults({text, strnlen(text, faults::kMaxFaultBytes)});
  if (!parsed || parsed->size() != 1) return std::nullopt;
  return parsed->front();
}

// A mapped board, which is locked against others who change it.
class OpenBoard {
 public:
  OpenBoard() = default;
  ~OpenBoard() {
    if (board_ != nullptr) munmap(board_, sizeof(FaultBoard));
  }
  OpenBoard(const OpenBoard&) = delete;
  OpenBoard& operator=(const OpenBoard&) = delete;

  Expected<FaultBoard*, std::string> open() {
    const char* const path = getenv(kFaultBoardVariable);
    if (path == nullptr || *path == '\0')
      return Error(
          "no fault rules are in force here: run this in a lab or run with --fault RULE, or "
          "--fault none");
    file_ = UniqueFd(::open(path, O_RDWR | O_CLOEXEC));
    struct stat status {};
    if (!file_ || fstat(file_.get(), &status) != 0 || flock(file_.get(), LOCK_EX) != 0)
      return Error(fmt::format("{}: {}", path, strerror(errno)));
    if (static_cast<size_t>(status.st_size) < sizeof(FaultBoard))
      return Error(fmt::format("{} is no board of fault rules", path));
    void* const mapped =
        mmap(nullptr, sizeof(FaultBoard), PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
    if (mapped == MAP_FAILED) return Error(fmt::format("{}: {}", path, strerror(errno)));
    board_ = static_cast<FaultBoard*>(mapped);
    if (board_->magic != kFaultMagic || board_->version != kFaultVersion)
      return Error(fmt::format("{} is of another version of hostnic", path));
    return board_;
  }

 private:
  UniqueFd file_;
  FaultBoard* board_ = nullptr;
};

}  // namespace

FaultReport report_of(const FaultBoard& board) {
  FaultReport report;
  report.processes = board.processes.load();
  for (size_t i = 0; i < places_of(board); ++i)
    if (const auto rule = rule_at(board, i))
      report.rules.push_back({to_string(*rule), board.rule[i].met.load(),
                              board.rule[i].fired.load(), board.rule[i].removed.load() != 0});
  return report;
}

Expected<std::string, std::string> add_fault(FaultBoard& board, std::string_view rule) {
  const auto added = faults::parse_faults(rule);
  if (!added) return Error(added.error().message());
  if (added->empty()) return Error(kUsage);
  // What an earlier one takes all of can't fire.
  std::string all;
  const size_t places = places_of(board);
  for (size_t i = 0; i < places; ++i)
    if (const auto before = rule_at(board, i); before && board.rule[i].removed.load() == 0)
      all += to_string(*before) + ";";
  for (const FaultRule& each : *added) {
    if (each.subject == faults::Subject::kEvent)
      return Error(
          "rules of events are in force from the opening of a device on: give them at the start");
    all += to_string(each) + ";";
  }
  if (const auto together = faults::parse_faults(all); !together)
    return Error(together.error().message());
  if (places + added->size() > faults::kMaxFaults)
    return Error(fmt::format("a run has at most {} rules, with those that were removed",
                             faults::kMaxFaults));
  std::string answer;
  size_t place = places;
  for (const FaultRule& each : *added) {
    const std::string text = to_string(each);
    memcpy(board.rule[place].text, text.data(), std::min(text.size(), faults::kMaxFaultBytes));
    answer += fmt::format("{}: {}\n", ++place, text);
  }
  board.rules.store(static_cast<uint32_t>(place), std::memory_order_release);
  return answer;
}

Expected<std::string, std::string> remove_fault(FaultBoard& board, std::string_view number) {
  size_t place = 0;
  const auto [end, code] = std::from_chars(number.data(), number.data() + number.size(), place);
  if (code != std::errc{} || end != number.data() + number.size() || place < 1 ||
      place > places_of(board) || board.rule[place - 1].removed.load() != 0)
    return Error(fmt::format("fault remove {}: no such rule (see fault list)", number));
  board.rule[place - 1].removed.store(1);
  return std::string();
}

std::string list_faults(const FaultBoard& board) {
  std::string text;
  for (size_t i = 0; i < places_of(board); ++i) {
    const auto rule = rule_at(board, i);
    if (!rule || board.rule[i].removed.load() != 0) continue;
    text += fmt::format("{}: {} (met {} times, fired {} times)\n", i + 1, to_string(*rule),
                        board.rule[i].met.load(), board.rule[i].fired.load());
  }
  return text.empty() ? "no rules\n" : text;
}

Expected<std::string, std::string> answer_fault(std::string_view words) {
  const size_t space = std::min(words.find(' '), words.size());
  const std::string_view verb = words.substr(0, space);
  const std::string_view rest = words.substr(std::min(space + 1, words.size()));
  const bool is_list = verb == "list" && rest.empty();
  if (!is_list && ((verb != "add" && verb != "remove") || rest.empty())) return Error(kUsage);
  OpenBoard open;
  const auto board = open.open();
  if (!board) return Error(board.error());
  if (is_list) return list_faults(**board);
  return verb == "add" ? add_fault(**board, rest) : remove_fault(**board, rest);
}

}  // namespace hostnic::cli
