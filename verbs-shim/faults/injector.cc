// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/faults/injector.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

#include "protocol/hostif/fault_board.h"

namespace hostnic::faults {
namespace {

constexpr uint64_t kMostLinesOfRule = 8;

// The rules of the board come first, then those that the program has armed itself.
constexpr size_t kMostRules = 2 * kMaxFaults;

struct Rule {
  FaultRule fault;
  FaultBoardRule* board = nullptr;  // null: the program's own
  char text[kMaxFaultBytes + 1] = {};
  uint64_t stream = 0;
  std::atomic<bool> disarmed{false};
  std::atomic<uint64_t> met{0}, fired{0};  // in this process
};

FaultBoard* the_board = nullptr;
Rule* the_rules = nullptr;
// Rules are added, and never removed: who looks takes no lock.
std::atomic<size_t> rule_count{0};
std::atomic<size_t> board_rules{0};  // that have been taken from the board
// The rules that the program has armed itself, by their places.
size_t own_places[kMaxFaults];
std::atomic<size_t> own_rules{0};
std::atomic<bool> late_completions{false};  // some rule is of that kind
std::atomic_flag arming = ATOMIC_FLAG_INIT;
FaultPlace the_place;
std::atomic<uint64_t> begun_ns{0};
// Whether the rules have their streams.
enum : uint32_t { kUnnumbered, kNumbering, kNumbered };
std::atomic<uint32_t> numbered{kUnnumbered};
uint32_t own_process = 0;  // as streams have it; from then on

uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// The number that MPI and its like give a process, by whichever variable they say it.
std::optional<uint32_t> rank_of_process() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK",
                           "SLURM_PROCID", "RANK"}) {
    const char* text = getenv(name);
    char* end = nullptr;
    if (text == nullptr || *text == '\0') continue;
    const unsigned long rank = strtoul(text, &end, 10);
    if (*end == '\0' && rank <= UINT32_MAX) return static_cast<uint32_t>(rank);
  }
  return std::nullopt;
}

uint64_t stream_of_rule(size_t place) {
  const std::string_view text = the_rules[place].text;
  const auto same = std::count_if(the_rules, the_rules + place,
                                  [&](const Rule& other) { return text == other.text; });
  return stream_of(the_board->seed, own_process, text, static_cast<size_t>(same));
}

// Programs that make no call of verbs have no number, so that a shell between does not change what
// a seed means.
void number_streams() {
  uint32_t none = kUnnumbered;
  if (numbered.load(std::memory_order_acquire) == kNumbered) return;
  if (!numbered.compare_exchange_strong(none, kNumbering)) {
    while (numbered.load(std::memory_order_acquire) != kNumbered) sched_yield();
    return;
  }
  const uint32_t started = the_board->processes.fetch_add(1, std::memory_order_relaxed);
  own_process = the_place.rank.value_or(started);
  for (size_t i = 0; i < rule_count; ++i) the_rules[i].stream = stream_of_rule(i);
  numbered.store(kNumbered, std::memory_order_release);
}

void child_begins() {
  arming.clear();
  for (size_t i = 0; i < rule_count; ++i) {
    the_rules[i].met.store(0, std::memory_order_relaxed);
    the_rules[i].fired.store(0, std::memory_order_relaxed);
  }
  begun_ns.store(0, std::memory_order_relaxed);
  numbered.store(kUnnumbered, std::memory_order_relaxed);
}

FaultBoard* map_board(const char* path) {
  const auto fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC));
  if (fd < 0) return nullptr;
  struct stat file {};
  FaultBoard* board = nullptr;
  if (fstat(fd, &file) == 0 && static_cast<size_t>(file.st_size) >= sizeof(FaultBoard)) {
    const long mapped =
        syscall(SYS_mmap, nullptr, sizeof(FaultBoard), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped != -1)
      board = reinterpret_cast<FaultBoard*>(mapped);  // NOLINT(performance-no-int-to-ptr)
  }
  syscall(SYS_close, fd);
  const bool good = board != nullptr && board->magic == kFaultMagic &&
                    board->version == kFaultVersion && board->rules <= kMaxFaults;
  return good ? board : nullptr;
}

// Puts one rule behind the others; false: it is none, or there is no room.
bool add_rule(std::string_view text, FaultBoardRule* board) {
  auto parsed = parse_faults(text);
  const size_t place = rule_count.load(std::memory_order_relaxed);
  if (!parsed || parsed->size() != 1 || place == kMostRules) return false;
  Rule& rule = the_rules[place];
  rule.fault = std::move(parsed->front());
  rule.board = board;
  snprintf(rule.text, sizeof(rule.text), "%s", to_string(rule.fault).c_str());
  rule.stream = stream_of_rule(place);
  rule_count.store(place + 1, std::memory_order_release);
  if (rule.fault.subject == Subject::kCompletion &&
      (rule.fault.delay_ns != 0 || rule.fault.is_behind()))
    late_completions.store(true, std::memory_order_relaxed);
  return true;
}

bool add_rule_of(FaultBoardRule& rule) {
  return add_rule({rule.text, strnlen(rule.text, kMaxFaultBytes)}, &rule);
}

bool read_rules(FaultBoard& board) {
  the_rules = new Rule[kMostRules];
  const size_t count = board.rules.load(std::memory_order_acquire);
  for (size_t i = 0; i < count; ++i)
    if (!add_rule_of(board.rule[i])) return false;
  board_rules.store(count, std::memory_order_relaxed);
  return true;
}

// Takes the rules that were added since.
void take_new_rules() {
  if (the_board->rules.load(std::memory_order_relaxed) <=
      board_rules.load(std::memory_order_relaxed))
    return;
  while (arming.test_and_set(std::memory_order_acquire)) sched_yield();
  const size_t count =
      std::min<size_t>(the_board->rules.load(std::memory_order_acquire), kMaxFaults);
  // Nonsense is left out: whoever adds a rule has checked it.
  for (size_t i = board_rules; i < count; ++i) add_rule_of(the_board->rule[i]);
  board_rules.store(std::max<size_t>(count, board_rules), std::memory_order_relaxed);
  arming.clear(std::memory_order_release);
}

bool is_removed(const Rule& rule) {
  return rule.disarmed.load(std::memory_order_relaxed) ||
         (rule.board != nullptr && rule.board->removed.load(std::memory_order_relaxed) != 0);
}

// A program that cannot have the rules must not run as if it had passed them.
[[noreturn]] void refuse(const char* path) {
  fprintf(stderr, "hostnic fault: %s: no rules can be read from it\n", path);
  _exit(1);
}

[[gnu::constructor]] void attach() {
  const char* path = getenv(kFaultBoardVariable);
  if (path == nullptr || *path == '\0') return;
  const int saved_errno = errno;
  FaultBoard* board = map_board(path);
  if (board == nullptr) refuse(path);
  the_board = board;
  if (!read_rules(*board) || pthread_atfork(nullptr, nullptr, child_begins) != 0) refuse(path);
  the_place = {program_invocation_short_name, rank_of_process()};
  errno = saved_errno;
}

void count_met(const Rule& rule) {
  if (rule.board != nullptr) rule.board->met.fetch_add(1, std::memory_order_relaxed);
}
void count_fired(const Rule& rule) {
  if (rule.board != nullptr) rule.board->fired.fetch_add(1, std::memory_order_relaxed);
}

void say(Rule& rule, const FaultOccasion& occasion, uint64_t number) {
  if (rule.fired.fetch_add(1, std::memory_order_relaxed) >= kMostLinesOfRule) return;
  char line[kMaxFaultBytes + 160];
  const std::string_view what = occasion.subject == Subject::kCall         ? occasion.call
                                : occasion.subject == Subject::kPost       ? "request"
                                : occasion.subject == Subject::kCompletion ? "completion"
                                                                           : "event";
  const int size = snprintf(line, sizeof(line), "hostnic fault[%d]: %.*s: match %lu of: %s\n",
                            static_cast<int>(getpid()), static_cast<int>(what.size()), what.data(),
                            number, rule.text);
  if (size > 0) syscall(SYS_write, STDERR_FILENO, line, static_cast<size_t>(size));
}

}  // namespace

bool is_on() { return the_board != nullptr; }

bool has_rules_of(Subject subject) {
  take_new_rules();
  for (size_t i = 0; i < rule_count; ++i)
    if (the_rules[i].fault.subject == subject) return true;
  return false;
}

bool has_late_completions() {
  take_new_rules();
  return late_completions.load(std::memory_order_relaxed);
}

void begin_time() {
  uint64_t none = 0;
  begun_ns.compare_exchange_strong(none, now_ns(), std::memory_order_relaxed);
}

Decision decide(FaultOccasion& occasion) {
  const int saved_errno = errno;
  take_new_rules();
  number_streams();
  const uint64_t begun = begun_ns.load(std::memory_order_relaxed);
  occasion.now_ns = begun == 0 ? 0 : now_ns() - begun;
  Decision decision;
  for (size_t i = 0; i < rule_count && decision.taken == nullptr; ++i) {
    Rule& rule = the_rules[i];
    if (is_removed(rule) || !matches(rule.fault, occasion, the_place)) continue;
    count_met(rule);
    const uint64_t number = rule.met.fetch_add(1, std::memory_order_relaxed) + 1;
    if (!hits(rule.fault, number, rule.stream)) continue;
    count_fired(rule);
    say(rule, occasion, number);
    if (!rule.fault.is_behind())
      decision.delay_ns += rule.fault.delay_ns;
    else if (decision.behind == nullptr)
      decision.behind = &rule.fault;
    if (rule.fault.error != 0 || rule.fault.status != 0 || rule.fault.becomes)
      decision.taken = &rule.fault;
  }
  errno = saved_errno;
  return decision;
}

const FaultRule* next_event_rule(size_t& index, std::string_view device) {
  while (index < rule_count) {
    const FaultRule& fault = the_rules[index++].fault;
    if (!fault.makes_event()) continue;
    FaultOccasion occasion;
    occasion.subject = Subject::kEvent;
    occasion.event = fault.event;
    occasion.device = device;
    occasion.qpn = fault.qpn.value_or(0);
    occasion.qp_ordinal = fault.qp_ordinal.value_or(0);
    occasion.cq_ordinal = fault.cq_ordinal;
    occasion.srq_ordinal = fault.srq_ordinal;
    occasion.now_ns = fault.after_ns;
    if (matches(fault, occasion, the_place)) return &fault;
  }
  return nullptr;
}

bool has_late_events(std::string_view device) {
  for (size_t i = 0; i < rule_count; ++i) {
    const FaultRule& fault = the_rules[i].fault;
    if (fault.subject == Subject::kEvent && !fault.makes_event() &&
        (fault.device.empty() || fault.device == device))
      return true;
  }
  return false;
}

void count_event(const FaultRule& fault) {
  for (size_t i = 0; i < rule_count; ++i) {
    Rule& rule = the_rules[i];
    if (&rule.fault != &fault) continue;
    count_met(rule);
    count_fired(rule);
    FaultOccasion occasion;
    occasion.subject = Subject::kEvent;
    say(rule, occasion, rule.met.fetch_add(1, std::memory_order_relaxed) + 1);
  }
}

void wait_ns(uint64_t duration_ns) {
  const int saved_errno = errno;
  timespec left{static_cast<time_t>(duration_ns / 1'000'000'000),
                static_cast<long>(duration_ns % 1'000'000'000)};
  while (syscall(SYS_nanosleep, &left, &left) != 0 && errno == EINTR) {
  }
  errno = saved_errno;
}

namespace {

// What hostnic-fault.h finds by dlsym.
int arm(const char* text) {
  if (the_board == nullptr) return -ENOSYS;
  if (text == nullptr) return -EINVAL;
  number_streams();
  while (arming.test_and_set(std::memory_order_acquire)) sched_yield();
  const size_t place = rule_count.load(std::memory_order_relaxed);
  const size_t number = own_rules.load(std::memory_order_relaxed);
  const bool has_room = number < kMaxFaults;
  const bool added = has_room && add_rule(text, nullptr);
  if (added) {
    own_places[number] = place;
    own_rules.store(number + 1, std::memory_order_release);
  }
  arming.clear(std::memory_order_release);
  if (added) return static_cast<int>(number);
  return has_room ? -EINVAL : -ENOSPC;
}

// Null: the program has armed no such rule.
Rule* armed_rule(int id) {
  if (the_board == nullptr || id < 0) return nullptr;
  const auto number = static_cast<size_t>(id);
  if (number >= own_rules.load(std::memory_order_acquire)) return nullptr;
  return &the_rules[own_places[number]];
}

}  // namespace

}  // namespace hostnic::faults

extern "C" [[gnu::visibility("default")]] int hostnic_fault_library_arm(const char* rule) {
  return hostnic::faults::arm(rule);
}

extern "C" [[gnu::visibility("default")]] long hostnic_fault_library_fired(int id) {
  const auto* const rule = hostnic::faults::armed_rule(id);
  return rule == nullptr ? -EINVAL : static_cast<long>(rule->fired.load());
}

extern "C" [[gnu::visibility("default")]] int hostnic_fault_library_disarm(int id) {
  auto* const rule = hostnic::faults::armed_rule(id);
  if (rule == nullptr) return -EINVAL;
  rule->disarmed.store(true);
  return 0;
}
