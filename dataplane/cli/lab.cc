// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/lab.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "dataplane/cli/locate.h"
#include "dataplane/cli/preload_obstacle.h"
#include "dataplane/cli/process.h"
#include "protocol/expected.h"
#include "protocol/hostif/unique_fd.h"

namespace hostnic::cli {
namespace {

// The limit for hostnicd's start: EAL takes 0.2 s; under a sanitizer on a busy machine many times
// that.
constexpr int kReadyLimitMs = 30'000;
constexpr int kStopLimitMs = 10'000;
// "/hostnicd.sock" and EAL's "/dpdk/hostnic-PID/dpdk_telemetry.v2" must fit a socket address.
constexpr size_t kMaxDirectoryBytes = 56;

// The lab's directory: socket, log, EAL's files. It is removed at the end unless it is to be kept.
class LabDirectory {
 public:
  static Expected<LabDirectory, std::string> create() {
    const char* base = getenv("TMPDIR");
    if (base == nullptr || *base == 0 || strlen(base) > kMaxDirectoryBytes - 20) base = "/tmp";
    std::string name = std::string(base) + "/hostnic-lab-XXXXXX";
    if (mkdtemp(name.data()) == nullptr)
      return Unexpected(fmt::format("a directory in {}: {}", base, strerror(errno)));
    return LabDirectory(name);
  }
  LabDirectory(LabDirectory&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  LabDirectory& operator=(LabDirectory&&) = delete;
  ~LabDirectory() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }

  std::string file(const char* name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }
  void keep() { path_.clear(); }

 private:
  explicit LabDirectory(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// The lab's private hostnicd. It is stopped when this is destroyed.
class LabDaemon {
 public:
  ~LabDaemon() { stop(); }

  bool start(const LabOptions& options, const LabDirectory& directory, const std::string& program) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    ready_ = UniqueFd(ends[0]);
    const UniqueFd write_end(ends[1]);
    std::vector<std::string> command = {program,
                                        "--socket",
                                        directory.file("hostnicd.sock"),
                                        "--ready-fd",
                                        fmt::format("{}", write_end.get()),
                                        "--no-prompt"};
    command.insert(command.end(), options.daemon_arguments.begin(), options.daemon_arguments.end());
    UniqueFd log;
    ChildOptions child;
    child.environment = {{"XDG_RUNTIME_DIR", directory.path()}, {"HOSTNIC_LAB", "1"}};
    child.unset = {"LD_PRELOAD", "HOSTNIC_SOCKET"};
    child.own_group = child.dies_with_us = child.stdin_null = true;
    child.keep_fds = {write_end.get()};
    if (!options.verbose) {
      log = UniqueFd(open(directory.file("hostnicd.log").c_str(),
                          O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
      child.output_fd = log.get();
    }
    pid_ = start_child(command, child);
    return pid_ > 0;
  }

  // Waits until hostnicd is ready; then returns nothing. If it ends before, returns its exit code,
  // or 1.
  std::optional<int> wait_ready() {
    pollfd watched{ready_.get(), POLLIN, 0};
    char byte = 0;
    const int ready = poll(&watched, 1, kReadyLimitMs);
    if (ready > 0 && read(ready_.get(), &byte, 1) == 1) return std::nullopt;
    if (ready == 0) {
      fail("lab", fmt::format("hostnicd is not ready after {} s", kReadyLimitMs / 1000));
      return 1;
    }
    const auto status = wait_child(pid_, kStopLimitMs);
    if (!status) return 1;
    pid_ = -1;
    return exit_code_of(*status) == 0 ? 1 : exit_code_of(*status);
  }

  // Stops hostnicd; returns its exit code, 0 if there was none left to stop.
  int stop() {
    if (pid_ <= 0) return 0;
    kill(pid_, SIGTERM);
    auto status = wait_child(pid_, kStopLimitMs);
    if (!status) {
      fail("lab", "hostnicd does not end, killing it");
      kill(pid_, SIGKILL);
      status = wait_child(pid_, kStopLimitMs);
    }
    pid_ = -1;
    return status ? exit_code_of(*status) : 1;
  }

  pid_t pid() const { return pid_; }
  void forget() { pid_ = -1; }

 private:
  pid_t pid_ = -1;
  UniqueFd ready_;
};

void show_log(const LabDirectory& directory) {
  std::ifstream log(directory.file("hostnicd.log"));
  const std::string text{std::istreambuf_iterator<char>(log), std::istreambuf_iterator<char>()};
  fputs(text.c_str(), stderr);
}

// These are global because wait_and_forward's callback has no argument of its own.
LabDaemon* running_daemon = nullptr;
const LabDirectory* running_directory = nullptr;

void child_ended(pid_t pid, int status) {
  if (running_daemon == nullptr || pid != running_daemon->pid()) return;
  running_daemon->forget();
  fail("lab",
       fmt::format("hostnicd ended while the command ran (exit code {}):", exit_code_of(status)));
  show_log(*running_directory);
}

}  // namespace

int run_lab(const LabOptions& options, const std::vector<std::string>& command) {
  auto program = find_hostnicd();
  if (!program) return fail("lab", program.error());
  auto preload = preload_value(getenv("LD_PRELOAD"), command);
  if (!preload) return fail("lab", preload.error());
  auto directory = LabDirectory::create();
  if (!directory) return fail("lab", directory.error());
  // The directory must be open to others where they may open the socket.
  for (const std::string& argument : options.daemon_arguments) {
    if (argument.starts_with("--socket-mode=")) chmod(directory->path().c_str(), 0711);
  }
  block_signals();
  LabDaemon daemon;
  if (!daemon.start(options, *directory, *program))
    return fail("lab", fmt::format("hostnicd: {}", strerror(errno)));
  if (const auto failed = daemon.wait_ready()) {
    show_log(*directory);
    return *failed;
  }
  running_daemon = &daemon;
  running_directory = &*directory;
  ChildOptions child;
  warn_if_not_preloaded("lab", command);
  child.environment = {{"LD_PRELOAD", *preload},
                       {"ASAN_OPTIONS", asan_options_value(getenv("ASAN_OPTIONS"))},
                       {"HOSTNIC_LAB", "1"},
                       {"HOSTNIC_SOCKET", directory->file("hostnicd.sock")}};
  child.unset = {"HOSTNIC_DEVICE"};
  // PATH gets our directory, so that COMMAND may say `hostnic run` where hostnic is not installed.
  const char* path = getenv("PATH");
  child.environment.emplace_back(
      "PATH", std::string(path == nullptr ? "/usr/bin:/bin" : path) + ":" + own_directory());
  const pid_t pid = start_child(command, child);
  if (pid < 0) return fail("lab", fmt::format("fork: {}", strerror(errno)));
  const int status = wait_and_forward(pid, child_ended);
  running_daemon = nullptr;
  if (const int code = daemon.stop(); code != 0) {
    fail("lab", fmt::format("hostnicd stopped with exit code {}:", code));
    show_log(*directory);
  }
  if (options.keep_log) {
    fmt::print(stderr, "hostnic lab: hostnicd's log is {}\n", directory->file("hostnicd.log"));
    directory->keep();
  }
  return exit_code_of(status);
}

}  // namespace hostnic::cli
