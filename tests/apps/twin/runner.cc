// SPDX-License-Identifier: BSD-3-Clause
#include "tests/apps/twin/runner.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>
#include <sstream>

#include "tests/apps/twin/ends.h"

namespace hostnic::twin {
namespace {

constexpr size_t kMostOutput = 64 << 10;
constexpr unsigned kShrinkTries = 250;

struct Outcome {
  bool passed = false;
  std::string output;
};

std::string contents(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  char text[2048];
  const ssize_t got = read(fd, text, sizeof(text));
  close(fd);
  return got > 0 ? std::string(text, static_cast<size_t>(got)) : "";
}

// Where the threads of a process are that does not go on.
std::string where(pid_t pid) {
  const std::string tasks = fmt::format("/proc/{}/task", pid);
  std::string result;
  DIR* folder = opendir(tasks.c_str());
  if (folder == nullptr) return result;
  while (const dirent* each = readdir(folder)) {
    if (each->d_name[0] == '.') continue;
    const std::string task = tasks + "/" + each->d_name + "/";
    std::string name = contents(task + "comm"), stack = contents(task + "stack");
    std::replace(stack.begin(), stack.end(), '\n', ' ');
    if (!name.empty()) name.pop_back();
    result +=
        fmt::format("     | {} {}: wchan {} syscall {} stack {}\n", each->d_name, name,
                    contents(task + "wchan"), contents(task + "syscall"), stack.substr(0, 400));
  }
  closedir(folder);
  return result;
}

Outcome run_one(const char* program, std::vector<std::string> arguments, unsigned limit_s) {
  int output[2];
  if (pipe2(output, O_CLOEXEC) != 0) _exit(2);
  std::vector<char*> words;
  for (std::string& each : arguments) words.push_back(each.data());
  words.push_back(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setpgid(0, 0);
    dup2(output[1], STDOUT_FILENO);
    dup2(output[1], STDERR_FILENO);
    execv(program, words.data());
    _exit(127);
  }
  setpgid(pid, pid);
  close(output[1]);
  Outcome outcome;
  const double end = now_s() + limit_s;
  int status = 0;
  bool ended = false, hung = false, open = true;
  while (!ended) {
    pollfd told{output[0], POLLIN, 0};
    if (open && poll(&told, 1, 10) > 0) {
      char text[4096];
      const ssize_t got = read(output[0], text, sizeof(text));
      if (got <= 0) open = false;
      if (got > 0 && outcome.output.size() < kMostOutput)
        outcome.output.append(text, static_cast<size_t>(got));
    } else if (!open) {
      usleep(1000);
    }
    ended = waitpid(pid, &status, WNOHANG) == pid;
    if (!ended && now_s() > end) {
      hung = true;
      outcome.output += where(pid);
      kill(-pid, SIGKILL);
      waitpid(pid, &status, 0);
      ended = true;
    }
  }
  // Its children: the peer, and those of its own.
  kill(-pid, SIGKILL);
  while (open) {
    pollfd told{output[0], POLLIN, 0};
    char text[4096];
    if (poll(&told, 1, 100) <= 0) break;
    const ssize_t got = read(output[0], text, sizeof(text));
    if (got <= 0) break;
    if (outcome.output.size() < 2 * kMostOutput)
      outcome.output.append(text, static_cast<size_t>(got));
  }
  close(output[0]);
  outcome.passed = !hung && status == 0;
  if (hung)
    outcome.output += fmt::format("DIFFERENT it has not ended in {} s\n", limit_s);
  else if (WIFSIGNALED(status))
    outcome.output += fmt::format("DIFFERENT it was ended by signal {}\n", WTERMSIG(status));
  else if (!outcome.passed && outcome.output.find("DIFFERENT") == std::string::npos)
    outcome.output += fmt::format("DIFFERENT exit status {}\n", WEXITSTATUS(status));
  return outcome;
}

std::vector<std::string> command(uint64_t seed, const RunOptions& options,
                                 const std::string& kept) {
  std::vector<std::string> words = {"hostnic-twin", "--one", std::to_string(seed), "--ops",
                                    std::to_string(options.operations)};
  if (options.threads != 0)
    words.insert(words.end(), {"--threads", std::to_string(options.threads)});
  words.insert(words.end(), options.passed_on.begin(), options.passed_on.end());
  if (!kept.empty()) words.insert(words.end(), {"--keep", kept});
  return words;
}

std::string list_of(const std::vector<size_t>& kept) {
  std::string text;
  for (const size_t each : kept) text += (text.empty() ? "" : ",") + std::to_string(each);
  return text.empty() ? "none" : text;
}

// Leaves operations out, ever fewer at a time, as long as what is left fails.
std::vector<size_t> shrink(const char* program, uint64_t seed, const RunOptions& options,
                           Outcome& outcome) {
  std::vector<size_t> kept(options.operations);
  for (size_t i = 0; i < kept.size(); ++i) kept[i] = i;
  unsigned tries = 0;
  for (size_t piece = kept.size() / 2; piece >= 1; piece /= 2) {
    for (size_t at = 0; at < kept.size() && tries < kShrinkTries;) {
      std::vector<size_t> fewer(kept.begin(), kept.begin() + static_cast<ptrdiff_t>(at));
      const size_t behind = std::min(kept.size(), at + piece);
      fewer.insert(fewer.end(), kept.begin() + static_cast<ptrdiff_t>(behind), kept.end());
      ++tries;
      Outcome again = run_one(program, command(seed, options, list_of(fewer)), options.limit_s);
      if (again.passed) {
        at += piece;
      } else {
        kept = std::move(fewer);
        outcome = std::move(again);
      }
    }
  }
  return kept;
}

void note_longest(const std::string& output, std::map<std::string, double>& longest) {
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("LONGEST ")) continue;
    std::istringstream words(line.substr(8));
    std::string kind;
    for (double ms = 0; words >> kind >> ms;) longest[kind] = std::max(longest[kind], ms);
  }
}

}  // namespace

int run_seeds(const char* program, const RunOptions& options) {
  unsigned passed = 0, failed = 0;
  std::map<std::string, double> longest;
  for (uint64_t seed = options.first; seed <= options.last; ++seed) {
    Outcome outcome = run_one(program, command(seed, options, ""), options.limit_s);
    note_longest(outcome.output, longest);
    if (outcome.passed) {
      ++passed;
      continue;
    }
    ++failed;
    std::vector<size_t> kept;
    if (options.shrink) kept = shrink(program, seed, options, outcome);
    fmt::print("FAIL seed {}\n{}", seed, outcome.output);
    if (options.shrink) fmt::print("     left: --keep {}\n", list_of(kept));
    fflush(stdout);
    if (failed >= options.most_failures) {
      fmt::print("{} failures, it stops at seed {}\n", failed, seed);
      break;
    }
  }
  std::vector<std::pair<double, std::string>> sorted;
  for (const auto& [kind, ms] : longest) sorted.emplace_back(ms, kind);
  std::sort(sorted.rbegin(), sorted.rend());
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(sorted.size(), 12); ++i)
    text += fmt::format(" {} {:.1f}", sorted[i].second, sorted[i].first);
  if (!text.empty()) fmt::print("longest calls, ms:{}\n", text);
  fmt::print("{} passed, {} failed\n", passed, failed);
  return failed == 0 && passed != 0 ? 0 : 1;
}

}  // namespace hostnic::twin
