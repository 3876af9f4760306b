// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/check.h"

#include <errno.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "dataplane/cli/check_report.h"
#include "dataplane/cli/locate.h"
#include "dataplane/cli/preload_obstacle.h"
#include "dataplane/cli/process.h"
#include "dataplane/cli/shared_board.h"
#include "dataplane/cli/source_lines.h"
#include "protocol/hostif/check_board.h"

namespace hostnic::cli {
namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr long kPauseNs = 50'000'000;
// What is a mistake if it lasts is one after this time.
constexpr uint64_t kPatienceNs = 2 * kSecondNs;

uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * kSecondNs + static_cast<uint64_t>(now.tv_nsec);
}

template <size_t kBytes>
std::string text_in(const char (&text)[kBytes]) {
  return {text, strnlen(text, kBytes)};
}

Finding finding_in(const CheckRecord& record) {
  Finding finding;
  const auto kind = static_cast<size_t>(record.kind);
  finding.kind = kind < kCheckKinds.size() ? kCheckKinds[kind].name : "?";
  finding.program = text_in(record.program);
  finding.pid = record.pid;
  finding.verb = text_in(record.verb);
  finding.text = text_in(record.text);
  const uint32_t places = std::min(record.places, CheckRecord::kMostPlaces);
  for (uint32_t i = 0; i < places; ++i) finding.places.push_back(source_of(record.place[i]));
  finding.other_word = text_in(record.other_word);
  if (!finding.other_word.empty()) finding.other = source_of(record.other);
  return finding;
}

// Reads what programs find, and tells it at once.
class Reader {
 public:
  Reader(CheckBoard& board, const Suppressions& suppressions)
      : board_(board), suppressions_(suppressions) {}

  void run() {
    while (!stop_.load()) {
      look(/*at_end=*/false);
      const timespec pause{0, kPauseNs};
      nanosleep(&pause, nullptr);
    }
    look(/*at_end=*/true);
    const uint32_t taken = board_.taken.load();
    summary_.lost = taken > CheckBoard::kRecords ? taken - CheckBoard::kRecords : 0;
    summary_.processes = board_.processes.load();
  }
  void stop() { stop_.store(true); }
  const CheckSummary& summary() const { return summary_; }

 private:
  void look(bool at_end) {
    const uint32_t taken = std::min(board_.taken.load(), CheckBoard::kRecords);
    for (uint32_t i = 0; i < taken; ++i) {
      if (done_[i]) continue;
      const uint32_t state = board_.record[i].state.load(std::memory_order_acquire);
      if (state == kProvisional && since_ns_[i] == 0) since_ns_[i] = now_ns();
      const bool lasts = state == kProvisional && (at_end || now_ns() - since_ns_[i] > kPatienceNs);
      done_[i] = state == kFinal || state == kWithdrawn || lasts;
      if (state == kFinal || lasts) tell(finding_in(board_.record[i]));
    }
  }

  void tell(Finding finding) {
    if (suppressions_.contains(finding)) {
      ++summary_.suppressed;
    } else if (!told_.insert(key_of(finding)).second) {
      ++summary_.repeated;
    } else {
      fputs(text_of(finding).c_str(), stderr);
      summary_.findings.push_back(std::move(finding));
    }
  }

  CheckBoard& board_;
  const Suppressions& suppressions_;
  std::atomic<bool> stop_{false};
  CheckSummary summary_;
  std::set<std::string> told_;
  bool done_[CheckBoard::kRecords] = {};
  uint64_t since_ns_[CheckBoard::kRecords] = {};
};

Expected<Suppressions, std::string> read_suppressions(const std::string& path) {
  if (path.empty()) return Suppressions();
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return Unexpected(fmt::format("{}: {}", path, strerror(errno)));
  auto parsed = Suppressions::parse(text.str());
  if (!parsed) return Unexpected(fmt::format("{}: {}", path, parsed.error()));
  return parsed;
}

void no_other_child(pid_t, int) {}

}  // namespace

std::vector<std::string> with_check(const CheckOptions& options,
                                    const std::vector<std::string>& command) {
  std::vector<std::string> words = {own_directory() + "/hostnic", "check", "--exit-code",
                                    std::to_string(options.exit_code)};
  if (!options.json.empty()) words.insert(words.end(), {"--json", options.json});
  if (!options.suppressions.empty())
    words.insert(words.end(), {"--suppress", options.suppressions});
  if (options.is_strict) words.emplace_back("--strict");
  if (options.is_full) words.emplace_back("--full");
  words.emplace_back("--");
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

int run_check(const CheckOptions& options, const std::vector<std::string>& command) {
  auto suppressions = read_suppressions(options.suppressions);
  if (!suppressions) {
    fail("check", fmt::format("--suppress: {}", suppressions.error()));
    return 2;
  }
  auto library = find_calls_library();
  if (!library) return fail("check", library.error());
  SharedBoard<CheckBoard> board;
  if (auto made = board.make("check", false); !made) return fail("check", made.error());
  board->is_strict = options.is_strict;
  board->is_full = options.is_full;
  block_signals();
  warn_if_not_preloaded("check", command);
  ChildOptions child;
  child.environment = {{"LD_PRELOAD", preload_in_front(getenv("LD_PRELOAD"), *library)},
                       {"ASAN_OPTIONS", asan_options_value(getenv("ASAN_OPTIONS"))},
                       {kCheckBoardVariable, board.path()}};
  const pid_t pid = start_child(command, child);
  if (pid < 0) return fail("check", fmt::format("fork: {}", strerror(errno)));
  Reader reader(*board, *suppressions);
  std::thread thread([&] { reader.run(); });
  const int code = exit_code_of(wait_and_forward(pid, no_other_child));
  reader.stop();
  thread.join();
  fputs(text_of(reader.summary()).c_str(), stderr);
  if (!options.json.empty()) {
    std::ofstream file(options.json, std::ios::binary);
    file << json_of(reader.summary());
    file.close();
    if (!file) fail("check", fmt::format("--json: {}: {}", options.json, strerror(errno)));
  }
  return code == 0 && !reader.summary().findings.empty() ? options.exit_code : code;
}

}  // namespace hostnic::cli
