// SPDX-License-Identifier: BSD-3-Clause
// Children: each has its own copy of what is private, as it was at the moment of the fork.
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "tests/apps/twin/executor.h"

extern char** environ;

namespace hostnic::twin {
namespace {

constexpr size_t kMostChildren = 6;
constexpr double kChildS = 15;
constexpr unsigned kParentStores = 4;

// Past whatever intercepts fork.
pid_t bare_fork() { return static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)); }

}  // namespace

// The parent's memory changes while the child looks at its own.
void Executor::store_some_private(unsigned times) {
  const std::vector<Run> runs = model.runs(
      [](const Page& page) { return !page.shared && page.can_write() && !is_busy(page); });
  if (runs.empty()) return;
  Rng rng(random(4));
  for (unsigned turn = 0; turn < times; ++turn) {
    const Run& run = runs[rng.below(runs.size())];
    Place place;
    place.length = 1 + rng.below(std::min<size_t>(run.pages * kPage, 20'000));
    place.address = run.address() + rng.below(run.pages * kPage - place.length + 1);
    const std::vector<uint8_t> bytes = content(place.length, rng.next() | 1);
    std::memcpy(as_pointer(place.address), bytes.data(), bytes.size());
    wrote(place, bytes.data());
  }
}

// Compares what it has with the model, which it has got a copy of as well, writes, and compares
// again. `late`: what is shared may have changed since.
void Executor::child(bool late, unsigned delay_ms, bool fork_again) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const int number : {SIGSEGV, SIGBUS, SIGALRM}) signal(number, SIG_DFL);
  line_ += fmt::format("\n     | in the child{}: ", fork_again ? "" : "'s child or the child");
  alarm(static_cast<unsigned>(kChildS) + 5);
  if (delay_ms != 0) usleep(delay_ms * 1000);
  for (auto& [number, page] : model.pages) {
    unsigned char resident = 0;
    const bool mapped = mincore(as_pointer(number * kPage), kPage, &resident) == 0;
    if (page.dont_fork) {
      if (mapped) fail(fmt::format("{:#x} is there, in spite of MADV_DONTFORK", number * kPage));
      continue;
    }
    if (!mapped) fail(fmt::format("{:#x} is not mapped", number * kPage));
    // Huge pages may be too few for two: the child gets none then, and SIGBUS.
    if (page.beyond_end() || is_busy(page) || (page.shared && late) || page.huge) continue;
    if (!page.can_read() && mprotect(as_pointer(number * kPage), kPage, PROT_READ) != 0)
      fail(fmt::format("mprotect of {:#x}: {}", number * kPage, strerror(errno)));
    page.prot |= PROT_READ;
    if (page.wipe_on_fork) {
      const std::vector<uint8_t> zeros(kPage);
      const uint8_t* got = as_bytes(number * kPage);
      if (std::memcmp(got, zeros.data(), kPage) != 0)
        differs(number * kPage, got, zeros.data(), kPage);
      continue;
    }
    check_page(number, page);
  }
  for (const BlockRef& block : model.blocks) check_block(*block);
  if (fork_again) {
    const pid_t grandchild = fork();
    // What is wiped once is the model's only until then.
    if (grandchild == 0) {
      for (auto& [number, page] : model.pages) {
        if (page.wipe_on_fork) page.own = std::make_shared<Frame>();
        page.wipe_on_fork = false;
      }
      std::erase_if(model.pages, [](const auto& each) { return each.second.dont_fork; });
      child(late, 0, false);
    }
    int status = 0;
    if (grandchild < 0 || waitpid(grandchild, &status, 0) != grandchild || status != 0)
      fail(fmt::format("the child's child ended with status {:#x}", status));
  }
  std::erase_if(model.pages, [](const auto& each) {
    return each.second.dont_fork || each.second.wipe_on_fork || each.second.prot == PROT_READ ||
           each.second.huge;
  });
  store_some_private(3);
  for (const auto& [number, page] : model.pages)
    if (!page.shared) check_page(number, page);
  _exit(0);
}

void Executor::fork_child(bool late, bool raw) {
  if (children_.size() >= kMostChildren) return skip();
  const bool again = random(1) % 5 == 0;
  const unsigned delay_ms = !late                 ? 0
                            : random(2) % 20 == 0 ? 1500
                                                  : static_cast<unsigned>(10 + random(2) % 150);
  // The signal area's word is not of the model.
  if (delay_ms != 0) say(" looks after {} ms", delay_ms);
  const pid_t pid = timed([&] { return raw ? bare_fork() : fork(); });
  if (pid == 0) child(late, delay_ms, again);
  expect(pid > 0, 0, "fork");
  say(" pid {}", pid);
  store_some_private(kParentStores);
  if (late)
    children_.push_back(pid);
  else
    reap_one(pid);
}

// A child that gets no processor for a while, from the moment on at which it exists.
void Executor::fork_stopped() {
  if (peer_ == nullptr || stream_ || children_.size() >= kMostChildren) return skip();
  Command command;
  command.order = Order::kStopChild;
  command.a = static_cast<uint64_t>(getpid());
  command.b = random(2) % 40 == 0 ? 11'000 : 100 + random(2) % 300;
  say(" for {} ms", command.b);
  peer_->tell(command);
  Reply reply;
  // The peer looks from now on.
  if (!peer_->answer(reply)) fail("the peer does not answer");
  const pid_t pid = timed([&] { return fork(); });
  if (pid == 0) child(true, 0, false);
  expect(pid > 0, 0, "fork");
  say(" pid {}", pid);
  store_some_private(kParentStores);
  if (!peer_->answer(reply)) fail("the peer does not answer");
  reap_one(pid);
}

void Executor::reap_one(pid_t pid) {
  const double end = now_s() + kChildS;
  int status = 0;
  for (;;) {
    const pid_t ended = waitpid(pid, &status, WNOHANG);
    if (ended == pid) break;
    if (ended < 0 && errno != EINTR) fail(fmt::format("waitpid: {}", strerror(errno)));
    if (now_s() > end) {
      kill(pid, SIGKILL);
      waitpid(pid, &status, 0);
      fail(fmt::format("child {} has not ended in {} s", pid, kChildS));
    }
    usleep(200);
  }
  if (WIFSIGNALED(status)) fail(fmt::format("child {} ended by signal {}", pid, WTERMSIG(status)));
  if (status != 0) fail(fmt::format("child {} ended with status {}", pid, WEXITSTATUS(status)));
}

void Executor::reap() {
  if (children_.empty()) return skip();
  const std::vector<pid_t> all = std::exchange(children_, {});
  for (const pid_t each : all) reap_one(each);
}

void Executor::start_program(bool by_vfork) {
  char program[] = "/bin/true";
  char* arguments[] = {program, nullptr};
  // Nothing of hostnic's in it: that takes its time, and is no matter of memory.
  std::vector<char*> environment;
  for (char** each = environ; *each != nullptr; ++each)
    if (std::strncmp(*each, "LD_PRELOAD=", 11) != 0) environment.push_back(*each);
  environment.push_back(nullptr);
  pid_t pid = 0;
  const int error = timed([&]() -> int {
    if (!by_vfork)
      return posix_spawn(&pid, program, nullptr, nullptr, arguments, environment.data());
    pid = vfork();
    if (pid == 0) {
      execve(program, arguments, environment.data());
      _exit(127);
    }
    return pid < 0 ? errno : 0;
  });
  if (error != 0) fail(fmt::format("{}: {}", by_vfork ? "vfork" : "posix_spawn", strerror(error)));
  reap_one(pid);
}

}  // namespace hostnic::twin
