// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/seed_search.h"

#include <errno.h>
#include <fmt/format.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dataplane/cli/fault.h"
#include "dataplane/cli/locate.h"
#include "dataplane/cli/process.h"
#include "protocol/hostif/unique_fd.h"

namespace hostnic::cli {
namespace {

void no_other_child(pid_t, int) {}

// The end of a run, and all that it has said.
struct Run {
  int code = 1;
  UniqueFd output;

  bool failed() const { return code != 0 && code != kNeverFired; }
  // Somebody wants the search to end, not only this run.
  bool was_interrupted() const { return code == 128 + SIGINT || code == 128 + SIGTERM; }
};

class Search {
 public:
  explicit Search(const std::vector<std::string>& command) : command_(command) {}

  Run run(const std::vector<std::string>& words) const {
    Run done;
    done.output = UniqueFd(memfd_create("hostnic-seed", MFD_CLOEXEC));
    ChildOptions child;
    child.output_fd = done.output.get();
    std::vector<std::string> line = words_of(own_directory() + "/hostnic", words);
    const pid_t pid = start_child(line, child);
    if (pid < 0)
      fail("seeds", fmt::format("fork: {}", strerror(errno)));
    else
      done.code = exit_code_of(wait_and_forward(pid, no_other_child));
    return done;
  }
  // Leaves out what is not needed for a failure.
  std::vector<std::string> shrink(std::vector<std::string> words) const {
    for (size_t i = rules_in(words).size(); i-- > 0;) {
      std::vector<std::string> fewer = without_rule(words, rules_in(words)[i]);
      // `hostnic fault` without a rule is no run.
      if (words[0] == "fault" && rules_in(fewer).empty()) break;
      const Run done = run(fewer);
      if (done.was_interrupted()) break;
      if (done.failed()) words = std::move(fewer);
    }
    return words;
  }
  std::vector<std::string> words_of(const std::string& program,
                                    const std::vector<std::string>& words) const {
    std::vector<std::string> line = {program};
    line.insert(line.end(), words.begin(), words.end());
    line.emplace_back("--");
    line.insert(line.end(), command_.begin(), command_.end());
    return line;
  }

 private:
  const std::vector<std::string>& command_;
};

void show(const UniqueFd& output) {
  fflush(stderr);
  lseek(output.get(), 0, SEEK_SET);
  char piece[4096];
  for (ssize_t got = 0; (got = read(output.get(), piece, sizeof(piece))) > 0;)
    if (write(STDERR_FILENO, piece, static_cast<size_t>(got)) != got) break;
}

}  // namespace

int search_seeds(const std::string& seeds, const std::vector<std::string>& words,
                 const std::vector<std::string>& command) {
  const auto range = parse_seeds(seeds);
  if (!range) {
    fail(words[0], fmt::format("--seeds {}: two numbers such as 1..200", seeds));
    return 2;
  }
  if (command.empty()) return fail(words[0], "--seeds: no command");
  block_signals();
  const Search search(command);
  uint64_t never_fired = 0;
  for (uint64_t seed = range->first; seed <= range->last; ++seed) {
    std::vector<std::string> seeded = with_seed(words, seed);
    const Run done = search.run(seeded);
    if (done.code == kNeverFired) ++never_fired;
    if (!done.failed()) continue;
    show(done.output);
    if (done.was_interrupted()) return done.code;
    fmt::print(stderr, "hostnic seeds: seed {} fails (exit code {}) after {} that do not\n", seed,
               done.code, seed - range->first);
    // Rules that were misread fail with each seed.
    if (done.code == 2 && seed == range->first) return done.code;
    const std::vector<std::string> least = search.shrink(seeded);
    if (const size_t left_out = rules_in(seeded).size() - rules_in(least).size(); left_out != 0)
      fmt::print(stderr, "hostnic seeds: {} of the rules are not needed for it\n", left_out);
    fmt::print(stderr, "hostnic seeds: again: {}\n", shell_line(search.words_of("hostnic", least)));
    return done.code;
  }
  const uint64_t runs = range->last - range->first + 1;
  fmt::print(stderr, "hostnic seeds: {} of {} passed{}\n", runs, runs,
             never_fired == 0 ? std::string()
                              : fmt::format("; in {} of them a rule never fired", never_fired));
  return never_fired == runs ? kNeverFired : 0;
}

}  // namespace hostnic::cli
