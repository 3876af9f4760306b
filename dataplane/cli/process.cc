// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/process.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "protocol/hostif/unique_fd.h"

namespace hostnic::cli {
namespace {

sigset_t handled_signals;
sigset_t original_mask;
bool signals_blocked = false;

[[noreturn]] void become(const std::vector<std::string>& command, const ChildOptions& options,
                         pid_t parent) {
  if (options.own_group) setpgid(0, 0);
  if (options.dies_with_us) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(1);  // the parent died in between
  }
  if (options.stdin_null) {
    const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(null, STDIN_FILENO);
  }
  if (options.output_fd >= 0) {
    dup2(options.output_fd, STDOUT_FILENO);
    dup2(options.output_fd, STDERR_FILENO);
  }
  for (const int fd : options.keep_fds) fcntl(fd, F_SETFD, 0);
  for (const std::string& name : options.unset) unsetenv(name.c_str());
  for (const auto& [name, value] : options.environment) setenv(name.c_str(), value.c_str(), 1);
  if (options.before_exec && !options.before_exec()) _exit(1);
  if (signals_blocked) sigprocmask(SIG_SETMASK, &original_mask, nullptr);
  _exit(exec_command(command));
}

}  // namespace

int exec_command(const std::vector<std::string>& command) {
  std::vector<char*> argv;
  argv.reserve(command.size() + 1);
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  const int error = errno;
  fmt::print(stderr, "hostnic: {}: {}\n", command[0], strerror(error));
  return error == ENOENT ? 127 : 126;
}

int fail(const std::string& subcommand, const std::string& line) {
  const bool lacks_descriptors = line.ends_with(strerror(EMFILE));
  fmt::print(stderr, "hostnic {}: {}{}\n", subcommand, line,
             lacks_descriptors ? ": see ulimit -n" : "");
  return 1;
}

pid_t start_child(const std::vector<std::string>& command, const ChildOptions& options) {
  const pid_t parent = getpid();
  fflush(nullptr);
  const pid_t pid = fork();
  if (pid == 0) become(command, options, parent);
  return pid;
}

int exit_code_of(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

std::optional<int> wait_child(pid_t pid, int limit_ms) {
  const UniqueFd pid_fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  pollfd watched{pid_fd.get(), POLLIN, 0};
  if (pid_fd && poll(&watched, 1, limit_ms) <= 0) return std::nullopt;
  int status = 0;
  if (waitpid(pid, &status, 0) != pid) return std::nullopt;
  return status;
}

std::optional<int> wait_child_at_work(pid_t pid, int limit_ms) {
  const std::string tasks = fmt::format("/proc/{}/task", pid);
  return wait_child_at_work(pid, limit_ms, [&tasks] { return processor_waits(tasks); });
}

std::optional<int> wait_child_at_work(pid_t pid, int limit_ms,
                                      const std::function<ProcessorWaits()>& waits) {
  constexpr int kSliceMs = 100, kMostTimesLonger = 10;
  uint64_t left_ns = uint64_t{1'000'000} * static_cast<uint64_t>(limit_ms);
  const auto give_up = std::chrono::steady_clock::now() +
                       std::chrono::milliseconds(int64_t{kMostTimesLonger} * limit_ms);
  ProcessorWaits before = waits();
  for (auto now = std::chrono::steady_clock::now(); left_ns != 0 && now < give_up;) {
    const uint64_t slice_ns = std::min<uint64_t>(left_ns, uint64_t{kSliceMs} * 1'000'000);
    if (const auto status = wait_child(pid, static_cast<int>(slice_ns / 1'000'000) + 1))
      return status;
    ProcessorWaits after = waits();
    const auto then = std::exchange(now, std::chrono::steady_clock::now());
    const auto passed_ns = static_cast<uint64_t>(std::chrono::nanoseconds(now - then).count());
    const uint64_t excused_ns = std::min(passed_ns, longest_wait_ns(before, after));
    left_ns -= std::min(left_ns, passed_ns - excused_ns);
    before = std::move(after);
  }
  return std::nullopt;
}

void block_signals() {
  sigemptyset(&handled_signals);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD})
    sigaddset(&handled_signals, number);
  sigprocmask(SIG_BLOCK, &handled_signals, &original_mask);
  signals_blocked = true;
}

int wait_and_forward(pid_t pid, void (*on_other)(pid_t pid, int status)) {
  for (;;) {
    int status = 0;
    pid_t ended = 0;
    while ((ended = waitpid(-1, &status, WNOHANG)) > 0) {
      if (ended == pid) return status;
      on_other(ended, status);
    }
    siginfo_t info{};
    if (sigwaitinfo(&handled_signals, &info) < 0 || info.si_signo == SIGCHLD) continue;
    // Signals of the terminal reach the whole foreground group anyway; a hangup is heard only by
    // the leader of the session, which we may be.
    if (info.si_code != SI_KERNEL || info.si_signo == SIGHUP) kill(pid, info.si_signo);
  }
}

}  // namespace hostnic::cli
