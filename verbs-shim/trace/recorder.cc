// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/trace/recorder.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "protocol/faults/fault_words.h"

namespace hostnic::trace {
namespace {

// A thread that polls without result says so once in a while.
constexpr uint64_t kLongestSilenceNs = 1'000'000'000;
constexpr uint64_t kFullPauseNs = 100'000;
constexpr uint64_t kLookForReaderNs = 1'000'000'000;

TraceRing* the_ring = nullptr;
pthread_key_t thread_key;
int32_t own_pid = 0;

[[gnu::tls_model("initial-exec")]] thread_local TraceThread* own_thread = nullptr;
[[gnu::tls_model("initial-exec")]] thread_local uint16_t own_depth = 0;

uint64_t now_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// No cancellation point, as clock_nanosleep() is.
void pause_ns(uint64_t pause) {
  const timespec time{0, static_cast<long>(pause)};
  syscall(SYS_nanosleep, &time, nullptr);
}

bool reader_lives() { return syscall(SYS_kill, the_ring->reader_pid, 0) == 0 || errno != ESRCH; }

// Waits where the ring is full. Returns null if nobody reads any more.
TraceRecord* claim(uint64_t& number) {
  uint64_t waited_ns = 0;
  number = the_ring->tail.load(std::memory_order_relaxed);
  while (the_ring->closed.load(std::memory_order_relaxed) == 0) {
    if (number - the_ring->head.load(std::memory_order_acquire) < kTraceRecords) {
      if (the_ring->tail.compare_exchange_weak(number, number + 1))
        return &the_ring->records[number % kTraceRecords];
      continue;
    }
    pause_ns(kFullPauseNs);
    waited_ns += kFullPauseNs;
    if (waited_ns % kLookForReaderNs == 0 && !reader_lives())
      the_ring->closed.store(1, std::memory_order_relaxed);
    number = the_ring->tail.load(std::memory_order_relaxed);
  }
  return nullptr;
}

struct Line {
  const char* name;
  uint64_t end_ns, duration_ns, count;
  uint16_t depth;
  TraceOutcome outcome;
};

void write(const TraceThread* thread, const Line& line, const Text& text) {
  uint64_t number = 0;
  TraceRecord* record = claim(number);
  if (record == nullptr) return;
  const uint64_t ago_ns = now_ns(CLOCK_MONOTONIC) - line.end_ns + line.duration_ns;
  record->start_ns = now_ns(CLOCK_REALTIME) - ago_ns;
  record->duration_ns = line.duration_ns;
  record->count = line.count;
  record->pid = own_pid;
  record->tid = thread->tid.load(std::memory_order_relaxed);
  record->depth = line.depth;
  record->outcome = line.outcome;
  strncpy(record->name, line.name, sizeof(record->name) - 1);
  record->text_bytes = text.size();
  memcpy(record->text, text.bytes(), text.size());
  record->ready.store(number + 1, std::memory_order_release);
}

void tell(TraceThread* thread, TracePolls& polls) {
  const uint64_t count = polls.count.exchange(0, std::memory_order_relaxed);
  if (count == 0) return;
  Text text;
  if (polls.extended != 0)
    text.add("(cq 0x%lx) = ENOENT", polls.queue);
  else
    text.add("(cq 0x%lx, %lu) = 0", polls.queue, polls.entries);
  const Line line{polls.extended != 0 ? "ibv_start_poll" : "ibv_poll_cq",
                  polls.start_ns + polls.duration_ns,
                  polls.duration_ns,
                  count,
                  /*depth=*/uint16_t{0},
                  TraceOutcome::kSuccess};
  write(thread, line, text);
}

void tell_polls(TraceThread* thread) {
  for (TracePolls& polls : thread->polls) tell(thread, polls);
}

// A thread that is more than the reader looks at has its record for itself.
TraceThread* claim_thread() {
  const auto tid = static_cast<int32_t>(syscall(SYS_gettid));
  for (uint32_t i = 0; i < kTraceThreads; ++i) {
    TraceThread& thread = the_ring->threads[(static_cast<uint32_t>(tid) + i) % kTraceThreads];
    int32_t free = 0;
    if (!thread.tid.compare_exchange_strong(free, tid)) continue;
    thread.since_ns.store(0, std::memory_order_relaxed);
    for (TracePolls& polls : thread.polls) polls.count.store(0, std::memory_order_relaxed);
    thread.pid.store(own_pid, std::memory_order_release);
    return &thread;
  }
  auto* alone = static_cast<TraceThread*>(calloc(1, sizeof(TraceThread)));
  if (alone != nullptr) alone->tid.store(tid, std::memory_order_relaxed);
  return alone;
}

TraceThread* this_thread() {
  if (own_thread != nullptr) return own_thread;
  own_thread = claim_thread();
  if (own_thread == nullptr) return nullptr;
  the_ring->seen.store(1, std::memory_order_relaxed);
  pthread_setspecific(thread_key, own_thread);
  return own_thread;
}

void thread_ends(void* data) {
  auto* thread = static_cast<TraceThread*>(data);
  tell_polls(thread);
  own_thread = nullptr;
  const bool shared = thread >= the_ring->threads && thread < the_ring->threads + kTraceThreads;
  if (!shared) {
    free(thread);
    return;
  }
  thread->since_ns.store(0, std::memory_order_relaxed);
  thread->pid.store(0, std::memory_order_relaxed);
  thread->tid.store(0, std::memory_order_release);
}

// The parent's thread keeps its place.
void child_begins() {
  own_pid = static_cast<int32_t>(getpid());
  own_thread = nullptr;
  own_depth = 0;
}

// Reached by system calls, so that no hook of another library sees it.
[[gnu::constructor]] void attach() {
  const char* path = getenv(kTraceVariable);
  if (path == nullptr || *path == '\0') return;
  const int saved_errno = errno;
  const auto fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC));
  if (fd < 0) {
    errno = saved_errno;
    return;
  }
  struct stat file {};
  if (fstat(fd, &file) == 0 && static_cast<size_t>(file.st_size) >= sizeof(TraceRing)) {
    const long mapped =
        syscall(SYS_mmap, nullptr, sizeof(TraceRing), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    auto* ring = reinterpret_cast<TraceRing*>(mapped);  // NOLINT(performance-no-int-to-ptr)
    if (mapped != -1 && ring->magic == kTraceMagic && ring->version == kTraceVersion &&
        pthread_key_create(&thread_key, thread_ends) == 0 &&
        pthread_atfork(nullptr, nullptr, child_begins) == 0) {
      own_pid = static_cast<int32_t>(getpid());
      the_ring = ring;
    }
  }
  syscall(SYS_close, fd);
  errno = saved_errno;
}

// The main thread has no thread_ends() where the program returns from main().
[[gnu::destructor]] void detach() {
  if (is_on() && own_thread != nullptr) tell_polls(own_thread);
}

}  // namespace

const char* errno_name(int error) {
  const std::string_view name = faults::name_of(faults::errno_names(), error);
  return name.empty() ? nullptr : name.data();  // a literal, which ends in 0
}

bool is_on() {
  return the_ring != nullptr && the_ring->closed.load(std::memory_order_relaxed) == 0;
}

Call::Call(const char* name) : name_(name), saved_errno_(errno), on_(is_on()) {
  if (on_) text_.add("(");
}

void Call::begins() {
  if (!on_) return;
  text_.begin_result();
  text_.add(")");
  depth_ = own_depth++;
  start_ns_ = now_ns(CLOCK_MONOTONIC);
  TraceThread* thread = this_thread();
  if (thread != nullptr && depth_ == 0) {
    snprintf(thread->call, sizeof(thread->call), "%s%.*s", name_, static_cast<int>(text_.size()),
             text_.bytes());
    thread->since_ns.store(start_ns_, std::memory_order_release);
  }
  errno = saved_errno_;
}

void Call::returns() {
  saved_errno_ = errno;
  end_ns_ = now_ns(CLOCK_MONOTONIC);
  own_depth = depth_;
}

void Call::begin_result() {
  returns();
  text_.add(" = ");
}

void Call::finish(TraceOutcome outcome) {
  if (TraceThread* thread = this_thread(); thread != nullptr) {
    if (depth_ == 0) thread->since_ns.store(0, std::memory_order_release);
    tell_polls(thread);
    write(thread, {name_, end_ns_, end_ns_ - start_ns_, 1, depth_, outcome}, text_);
  }
  errno = saved_errno_;
}

void Call::add_error(const char* before, int error) {
  char buffer[96];
  const char* name = errno_name(error);
  if (name != nullptr)
    text_.add("%s%s (%s)", before, name, strerror_r(error, buffer, sizeof(buffer)));
  else
    text_.add("%s%d (%s)", before, error, strerror_r(error, buffer, sizeof(buffer)));
}

int Call::ends(int result) {
  if (!on_) return result;
  begin_result();
  if (result == 0)
    text_.add("0");
  else
    add_error(result == -1 ? "-1 " : "", result == -1 ? saved_errno_ : std::abs(result));
  finish(result == 0 ? TraceOutcome::kSuccess : TraceOutcome::kFailure);
  return result;
}

int Call::ends_with_count(int result) {
  if (!on_) return result;
  begin_result();
  if (result >= 0)
    text_.add("%d", result);
  else
    add_error("", result == -1 ? saved_errno_ : -result);
  finish(result >= 0 ? TraceOutcome::kSuccess : TraceOutcome::kFailure);
  return result;
}

void Call::ends_without_result() {
  if (!on_) return;
  returns();
  finish(TraceOutcome::kSuccess);
}

void Call::ends_as_empty_poll(const void* queue, int entries, bool extended) {
  if (!on_) return;
  returns();
  TraceThread* thread = this_thread();
  if (thread == nullptr) return;
  if (depth_ == 0) thread->since_ns.store(0, std::memory_order_release);
  const auto address = reinterpret_cast<uint64_t>(queue);
  TracePolls* place = nullptr;
  for (TracePolls& polls : thread->polls) {
    const bool used = polls.count.load(std::memory_order_relaxed) != 0;
    if (used && polls.queue == address && polls.entries == static_cast<uint64_t>(entries)) {
      place = &polls;
      break;
    }
    if (!used && place == nullptr) place = &polls;
  }
  if (place == nullptr) {
    place = &thread->polls[0];
    tell(thread, *place);
  }
  if (place->count.load(std::memory_order_relaxed) == 0) {
    place->queue = address;
    place->entries = static_cast<uint64_t>(entries);
    place->start_ns = start_ns_;
    place->duration_ns = 0;
    place->extended = extended ? 1 : 0;
  }
  place->duration_ns += end_ns_ - start_ns_;
  place->count.fetch_add(1, std::memory_order_relaxed);
  if (end_ns_ - place->start_ns > kLongestSilenceNs) tell(thread, *place);
  errno = saved_errno_;
}

}  // namespace hostnic::trace
