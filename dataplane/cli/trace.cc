// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <new>
#include <thread>

#include "dataplane/cli/locate.h"
#include "dataplane/cli/preload_obstacle.h"
#include "dataplane/cli/process.h"
#include "dataplane/cli/trace_lines.h"
#include "protocol/hostif/trace_ring.h"
#include "protocol/hostif/unique_fd.h"

namespace hostnic::cli {
namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;
// A record that its writer has begun and does not end: it was killed, or is stopped.
constexpr uint64_t kBrokenRecordNs = 10 * kSecondNs;
constexpr uint64_t kBrokenRecordAtEndNs = kSecondNs / 5;
constexpr uint64_t kLookNs = kSecondNs;
constexpr long kIdlePauseNs = 2'000'000;

uint64_t now_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * kSecondNs + static_cast<uint64_t>(now.tv_nsec);
}

void pause_a_little() {
  const timespec pause{0, kIdlePauseNs};
  nanosleep(&pause, nullptr);
}

// Writes whole lines, several at once where they come fast: as many as a pipe takes in one piece.
class LineWriter {
 public:
  explicit LineWriter(int fd) : fd_(fd) {}
  void add(const std::string& line) {
    if (buffer_.size() + line.size() > kPieceBytes) flush();
    buffer_ += line;
  }
  void flush() {
    for (size_t at = 0; at < buffer_.size() && !failed_;) {
      const ssize_t written = write(fd_, buffer_.data() + at, buffer_.size() - at);
      if (written < 0 && errno == EINTR) continue;
      failed_ = written <= 0;
      if (!failed_) at += static_cast<size_t>(written);
    }
    buffer_.clear();
  }
  bool failed() const { return failed_; }

 private:
  static constexpr size_t kPieceBytes = 4096;  // PIPE_BUF
  int fd_;
  bool failed_ = false;
  std::string buffer_;
};

class Reader {
 public:
  Reader(TraceRing& ring, int output, bool summary)
      : ring_(ring), lines_(output), summary_only_(summary) {}

  void run() {
    while (!stop_.load()) {
      const bool something = read_all(kBrokenRecordNs);
      if (now_ns(CLOCK_MONOTONIC) - last_look_ns_ > kLookNs) look_at_threads();
      if (!something) {
        lines_.flush();
        pause_a_little();
      }
    }
    // Whoever still runs is not traced any more.
    const uint64_t ended_ns = now_ns(CLOCK_MONOTONIC);
    ring_.closed.store(1);
    while (ring_.head.load() != ring_.tail.load() && now_ns(CLOCK_MONOTONIC) - ended_ns < kSecondNs)
      if (!read_all(kBrokenRecordAtEndNs)) pause_a_little();
    for (TraceThread& thread : ring_.threads)
      if (thread.tid.load() != 0) tell_end_of(thread);
    if (summary_only_) lines_.add(summary_.text());
    lines_.flush();
  }
  void stop() { stop_.store(true); }
  bool failed() const { return lines_.failed(); }

 private:
  void tell(const TracedCall& call) {
    if (summary_only_)
      summary_.add(call);
    else
      lines_.add(trace_line(call));
  }

  // Reads what is there; returns whether there was anything. A record that stays incomplete for so
  // long is given up.
  bool read_all(uint64_t patience_ns) {
    bool something = false;
    for (uint64_t head = ring_.head.load();; ++head) {
      TraceRecord& record = ring_.records[head % kTraceRecords];
      if (record.ready.load(std::memory_order_acquire) != head + 1) {
        if (!given_up(head, patience_ns)) return something;
        ring_.lost.fetch_add(1);
      } else {
        tell(copy_of(record));
      }
      ring_.head.store(head + 1, std::memory_order_release);
      something = true;
    }
  }

  bool given_up(uint64_t head, uint64_t patience_ns) {
    if (ring_.tail.load() == head) return false;
    const uint64_t now = now_ns(CLOCK_MONOTONIC);
    if (broken_ != head + 1) {
      broken_ = head + 1;
      broken_since_ns_ = now;
    }
    return now - broken_since_ns_ > patience_ns;
  }

  void look_at_threads() {
    last_look_ns_ = now_ns(CLOCK_MONOTONIC);
    for (uint32_t i = 0; i < kTraceThreads; ++i) {
      TraceThread& thread = ring_.threads[i];
      const int32_t pid = thread.pid.load();
      if (thread.tid.load() == 0 || pid <= 0) continue;
      if (kill(pid, 0) != 0 && errno == ESRCH) {
        tell_end_of(thread);
        thread.pid.store(0);
        thread.tid.store(0);
      } else if (!summary_only_) {
        tell_if_long(thread, told_since_ns_[i]);
      }
    }
  }

  TracedCall current_call(const TraceThread& thread, uint64_t since_ns) const {
    TracedCall call;
    const uint64_t now = now_ns(CLOCK_MONOTONIC);
    call.duration_ns = now > since_ns ? now - since_ns : 0;
    call.start_ns = now_ns(CLOCK_REALTIME) - call.duration_ns;
    call.count = 1;
    call.pid = thread.pid.load();
    call.tid = thread.tid.load();
    call.outcome = TraceOutcome::kUnfinished;
    call.name.assign(thread.call, strnlen(thread.call, sizeof(thread.call)));
    return call;
  }

  // Says once of a call that takes long that it has begun.
  void tell_if_long(const TraceThread& thread, uint64_t& told_since_ns) {
    const uint64_t since_ns = thread.since_ns.load(std::memory_order_acquire);
    if (since_ns == 0 || since_ns == told_since_ns) return;
    const TracedCall call = current_call(thread, since_ns);
    if (call.duration_ns < kLookNs || thread.since_ns.load() != since_ns) return;
    told_since_ns = since_ns;
    tell(call);
  }

  void tell_end_of(const TraceThread& thread) {
    const uint64_t difference_ns = now_ns(CLOCK_REALTIME) - now_ns(CLOCK_MONOTONIC);
    for (const TracePolls& polls : thread.polls)
      if (polls.count.load() != 0)
        tell(copy_of(polls, thread.pid.load(), thread.tid.load(), difference_ns));
    const uint64_t since_ns = thread.since_ns.load();
    if (since_ns != 0 && !summary_only_) tell(current_call(thread, since_ns));
  }

  TraceRing& ring_;
  LineWriter lines_;
  const bool summary_only_;
  TraceSummary summary_;
  std::atomic<bool> stop_{false};
  uint64_t broken_ = 0, broken_since_ns_ = 0, last_look_ns_ = 0;
  uint64_t told_since_ns_[kTraceThreads] = {};
};

void no_other_child(pid_t, int) {}

}  // namespace

int run_trace(const TraceOptions& options, const std::vector<std::string>& command) {
  auto library = find_calls_library();
  if (!library) return fail("trace", library.error());
  UniqueFd file;
  if (!options.output.empty()) {
    file = UniqueFd(open(options.output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!file) return fail("trace", fmt::format("{}: {}", options.output, strerror(errno)));
  }
  // Not inherited: a program that closes all descriptors loses nothing.
  const UniqueFd memory(memfd_create("hostnic-trace", MFD_CLOEXEC));
  if (!memory || ftruncate(memory.get(), sizeof(TraceRing)) != 0)
    return fail("trace", fmt::format("memory for {} records: {}", kTraceRecords, strerror(errno)));
  void* mapped =
      mmap(nullptr, sizeof(TraceRing), PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (mapped == MAP_FAILED) return fail("trace", fmt::format("mmap: {}", strerror(errno)));
  auto* ring = new (mapped) TraceRing;
  ring->reader_pid = getpid();

  block_signals();
  warn_if_not_preloaded("trace", command);
  ChildOptions child;
  const char* before = getenv("LD_PRELOAD");
  child.environment = {{"LD_PRELOAD", preload_in_front(before, *library)},
                       {"ASAN_OPTIONS", asan_options_value(getenv("ASAN_OPTIONS"))},
                       {kTraceVariable, fmt::format("/proc/{}/fd/{}", getpid(), memory.get())}};
  const pid_t pid = start_child(command, child);
  if (pid < 0) return fail("trace", fmt::format("fork: {}", strerror(errno)));
  auto reader = std::make_unique<Reader>(*ring, file ? file.get() : STDERR_FILENO, options.summary);
  std::thread thread([&] { reader->run(); });
  const int status = wait_and_forward(pid, no_other_child);
  reader->stop();
  thread.join();
  if (const uint64_t lost = ring->lost.load(); lost != 0)
    fail("trace", fmt::format("{} calls are missing: programs were killed while they wrote", lost));
  if (reader->failed())
    fail("trace", fmt::format("{}: not all could be written",
                              options.output.empty() ? "stderr" : options.output));
  if (ring->seen.load() == 0)
    fmt::print(stderr, "hostnic trace: no call of verbs or librdmacm was seen\n");
  return exit_code_of(status);
}

}  // namespace hostnic::cli
