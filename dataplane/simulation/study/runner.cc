// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/simulation/study/runner.h"

#include <errno.h>
#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <new>
#include <type_traits>

#include "dataplane/simulation/resources.h"
#include "dataplane/simulation/small_eal.h"

namespace hostnic::study {
namespace {

constexpr useconds_t kLookUs = 20'000;

static_assert(std::is_trivially_copyable_v<Result>);

// The memory that all processes share: who takes which cell, and what came of it.
struct Progress {
  std::atomic<uint32_t> next{0}, done{0};
};

class SharedResults {
 public:
  explicit SharedResults(size_t count) : bytes_(sizeof(Progress) + count * sizeof(Result)) {
    memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) memory_ = nullptr;
    if (memory_ != nullptr) new (memory_) Progress;
  }
  ~SharedResults() {
    if (memory_ != nullptr) munmap(memory_, bytes_);
  }
  SharedResults(const SharedResults&) = delete;
  SharedResults& operator=(const SharedResults&) = delete;

  bool works() const { return memory_ != nullptr; }
  Progress& progress() { return *static_cast<Progress*>(memory_); }
  Result* results() {
    return reinterpret_cast<Result*>(static_cast<std::byte*>(memory_) + sizeof(Progress));
  }

 private:
  size_t bytes_;
  void* memory_;
};

// Works until no cell is left. Returns the exit code.
int work(const std::vector<Cell>& cells, SharedResults& shared) {
  const SmallEal eal("simulate");
  if (!eal) return 1;
  Progress& progress = shared.progress();
  try {
    for (size_t i = progress.next.fetch_add(1); i < cells.size(); i = progress.next.fetch_add(1)) {
      shared.results()[i] = run(cells[i]);
      progress.done.fetch_add(1);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    std::fflush(stderr);
    return 1;
  }
  sim::free_unused();
  return 0;
}

class Workers {
 public:
  ~Workers() {
    for (const pid_t pid : pids_) kill(pid, SIGKILL);
    while (!pids_.empty()) wait_for(pids_.back(), 0);
  }

  bool start(const std::vector<Cell>& cells, SharedResults& shared) {
    std::fflush(nullptr);
    const pid_t pid = fork();
    if (pid < 0) return false;
    if (pid > 0) {
      pids_.push_back(pid);
      return true;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(work(cells, shared));
  }
  // Takes note of those that have ended. Returns false if one of them failed.
  bool look() {
    bool good = true;
    for (const pid_t pid : std::vector<pid_t>(pids_)) good = wait_for(pid, WNOHANG) && good;
    return good;
  }
  bool any() const { return !pids_.empty(); }

 private:
  bool wait_for(pid_t pid, int options) {
    int status = 0;
    const pid_t ended = waitpid(pid, &status, options);
    if (ended == 0 || (ended < 0 && errno == EINTR)) return true;
    std::erase(pids_, pid);
    return ended == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

  std::vector<pid_t> pids_;
};

}  // namespace

Expected<std::vector<Result>, std::string> run_all(
    const std::vector<Cell>& cells, uint32_t jobs,
    const std::function<void(size_t done)>& progress) {
  SharedResults shared(cells.size());
  if (!shared.works()) return Unexpected(fmt::format("memory for results: {}", strerror(errno)));
  {
    Workers workers;
    for (size_t i = 0; i < std::min<size_t>(jobs, cells.size()); ++i)
      if (!workers.start(cells, shared))
        return Unexpected(fmt::format("fork: {}", strerror(errno)));
    while (workers.any()) {
      if (!workers.look()) return Unexpected(std::string("a simulation failed"));
      progress(shared.progress().done.load());
      if (workers.any()) usleep(kLookUs);
    }
  }
  return std::vector<Result>(shared.results(), shared.results() + cells.size());
}

}  // namespace hostnic::study
