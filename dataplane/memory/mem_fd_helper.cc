// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/memory/mem_fd_helper.h"

#include <fcntl.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <system_error>
#include <thread>

#include "protocol/spin_pause.h"

namespace hostnic {
namespace {

// A packet may be gathered from kMaxSge places, each of which takes one.
constexpr uint32_t kSlots = 32;
static_assert(kSlots >= 2 * kMaxSge);
constexpr uint64_t kPageBytes = 4096;
// The lcore waits so long for a transfer, and for all of a client's together in that part of its
// time, of which so much may be saved up.
constexpr uint64_t kWaitNs = 30'000;
constexpr uint64_t kWaitShare = 8, kWaitSavedNs = 500'000;
// After so long the lcore lets others run while it waits, as the thread does before it sleeps.
constexpr uint64_t kAloneNs = 5'000;
constexpr int kYields = 16;
// A result that nobody comes for makes room after that time.
constexpr uint64_t kKeptNs = 5'000'000;

uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// Waiting for another thread makes sense only where there is a processor for it.
bool has_several_processors() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) != 0 || CPU_COUNT(&set) > 1;
}

constinit std::atomic<uint32_t> transfers{0};  // that are being made

enum class Operation : uint8_t { kRead, kWrite, kProbe, kWord };
enum SlotState : uint32_t { kFree, kPosted, kBusy, kDone };

}  // namespace

// The lcore fills a slot and stores kPosted; the thread takes it by kBusy and stores kDone; the
// lcore takes the result, and some time stores kFree or kPosted. What is posted, the lcore may take
// back.
struct MemFdHelper::State {
  struct RequestSlot {
    std::atomic<uint32_t> state{kFree};
    Operation operation = Operation::kRead;
    Target target;
    uint64_t length_bytes = 0;
    uint32_t changes = 0;  // of mappings, that the lcore had followed when it was posted
    AtomicOperation word;
    // The lcore's: nobody comes for the result; it was taken, and is kept for the case that another
    // part of the same packet was not there.
    bool abandoned = false, taken = false;
    // The thread's.
    bool put_off = false;  // nothing was done: the client's mappings are changing
    MemFdResult result = MemFdResult::kOk;
    uint64_t done_ns = 0;
    std::array<std::byte, kMaxBytes> bytes;

    bool is_for(const Target& other, Operation what, uint64_t length) const {
      return !abandoned && operation == what && length_bytes == length &&
             target.user.object == other.user.object && target.user.psn == other.user.psn &&
             target.named_va == other.named_va;
    }
    bool overlaps(VirtualAddress va, uint64_t length) const {
      return target.va < va + length && va < target.va + length_bytes;
    }
    bool is_of(const void* begin, const void* end) const {
      return !std::less<>()(target.user.object, begin) && std::less<>()(target.user.object, end);
    }
  };

  void serve();
  void transfer(RequestSlot& slot) const;
  MemFdResult probe(const RequestSlot& slot) const;
  MemFdResult change_word(RequestSlot& slot) const;
  RequestSlot* find(const Target& target, Operation operation, uint64_t length,
                    std::span<const std::byte> bytes);
  RequestSlot* post(const Target& target, Operation operation, uint64_t length,
                    std::span<const std::byte> bytes, const AtomicOperation& word);
  bool wait_for(const RequestSlot& slot);
  RequestSlot* finished(const Target& target, Operation operation, uint64_t length,
                        std::span<const std::byte> bytes = {}, const AtomicOperation& word = {});
  RequestSlot* unused();
  static void take_back(RequestSlot& slot);

  UniqueFd mem_fd;
  std::array<RequestSlot, kSlots> slots;
  // The slots in the order in which they were posted, and positions there.
  std::array<uint8_t, kSlots> order{};
  std::atomic<uint32_t> posted{0}, served{0};
  std::atomic<uint32_t> changes{0};
  std::atomic<bool> stop{false};
  // The lcore's.
  bool may_wait = has_several_processors();
  uint64_t wait_left_ns = 0, wait_counted_ns = 0;
};

// ---- the thread

void MemFdHelper::State::serve() {
  for (uint32_t at = 0; !stop.load(std::memory_order_acquire); ++at) {
    for (int i = 0; i < kYields && posted.load(std::memory_order_acquire) == at; ++i) sched_yield();
    while (posted.load(std::memory_order_acquire) == at) {
      posted.wait(at, std::memory_order_acquire);
      if (stop.load(std::memory_order_acquire)) return;
    }
    RequestSlot& slot = slots[order[at % kSlots]];
    uint32_t expected = kPosted;
    if (slot.state.compare_exchange_strong(expected, kBusy, std::memory_order_acquire)) {
      transfers.fetch_add(1, std::memory_order_relaxed);
      transfer(slot);
      transfers.fetch_sub(1, std::memory_order_relaxed);
      slot.done_ns = now_ns();
      if (slot.target.references != nullptr)
        slot.target.references->fetch_sub(1, std::memory_order_release);
      slot.state.store(kDone, std::memory_order_release);
    }
    served.store(at + 1, std::memory_order_release);
  }
}

void MemFdHelper::State::transfer(RequestSlot& slot) const {
  MemoryGate* const gate = slot.target.gate;
  if (gate != nullptr) {
    slot.put_off = !gate->enter(MemoryGate::kHelper);
    if (!slot.put_off && slot.changes != changes.load(std::memory_order_acquire)) {
      slot.put_off = true;
      gate->wanted.store(MemoryGate::kHelper, std::memory_order_release);
    }
  }
  const std::span<std::byte> bytes(slot.bytes.data(), std::min(slot.length_bytes, kMaxBytes));
  if (!slot.put_off) {
    switch (slot.operation) {
      case Operation::kRead:
        slot.result = read_client(mem_fd.get(), slot.target.va, bytes);
        break;
      case Operation::kWrite:
        slot.result = write_client(mem_fd.get(), slot.target.va, bytes);
        break;
      case Operation::kProbe:
        slot.result = probe(slot);
        break;
      case Operation::kWord:
        slot.result = change_word(slot);
        break;
    }
  }
  if (gate != nullptr) gate->leave();
}

MemFdResult MemFdHelper::State::probe(const RequestSlot& slot) const {
  const VirtualAddress end = slot.target.va + slot.length_bytes;
  std::byte byte{};
  for (VirtualAddress at = slot.target.va; at < end; at = (at | (kPageBytes - 1)) + 1) {
    const MemFdResult result = read_client(mem_fd.get(), at, {&byte, 1});
    if (result != MemFdResult::kOk) return result;
  }
  return MemFdResult::kOk;
}

// Leaves what the word contained in the slot's bytes.
MemFdResult MemFdHelper::State::change_word(RequestSlot& slot) const {
  const WordLock lock(slot.target.va);
  slot.put_off = !lock.held();
  if (slot.put_off) return MemFdResult::kOk;
  const std::span<std::byte, 8> bytes(slot.bytes.data(), 8);
  const MemFdResult read = read_client(mem_fd.get(), slot.target.va, bytes);
  if (read != MemFdResult::kOk) return read;
  uint64_t before = 0;
  std::memcpy(&before, bytes.data(), sizeof(before));
  const uint64_t after = result_of(slot.word, before);
  return write_client(mem_fd.get(), slot.target.va, std::as_bytes(std::span(&after, 1)));
}

// ---- the lcore

// The slot of an equal transfer that was asked for before.
MemFdHelper::State::RequestSlot* MemFdHelper::State::find(const Target& target, Operation operation,
                                                          uint64_t length,
                                                          std::span<const std::byte> bytes) {
  for (RequestSlot& slot : slots) {
    if (slot.state.load(std::memory_order_acquire) == kFree ||
        !slot.is_for(target, operation, length) ||
        (slot.taken && now_ns() - slot.done_ns > kKeptNs))
      continue;
    if (bytes.empty() || std::memcmp(slot.bytes.data(), bytes.data(), bytes.size()) == 0)
      return &slot;
  }
  return nullptr;
}

// A slot for another transfer; null: none can be had. A word that was changed must not be changed
// again: its result waits as long as its queue pair lives.
MemFdHelper::State::RequestSlot* MemFdHelper::State::unused() {
  RequestSlot *oldest = nullptr, *oldest_taken = nullptr;
  for (RequestSlot& slot : slots) {
    const uint32_t state = slot.state.load(std::memory_order_acquire);
    if (state == kFree || (state == kDone && slot.abandoned)) return &slot;
    if (state != kDone || (slot.operation == Operation::kWord && !slot.taken)) continue;
    RequestSlot*& older = slot.taken ? oldest_taken : oldest;
    if (older == nullptr || slot.done_ns < older->done_ns) older = &slot;
  }
  if (oldest_taken != nullptr) return oldest_taken;
  return oldest != nullptr && now_ns() - oldest->done_ns > kKeptNs ? oldest : nullptr;
}

// Returns null if there is no room.
MemFdHelper::State::RequestSlot* MemFdHelper::State::post(const Target& target, Operation operation,
                                                          uint64_t length,
                                                          std::span<const std::byte> bytes,
                                                          const AtomicOperation& word) {
  const uint32_t at = posted.load(std::memory_order_relaxed);
  // Bytes that were written before these are not there any more when their packet comes again.
  if (operation == Operation::kWrite || operation == Operation::kWord) {
    for (RequestSlot& other : slots)
      if (other.state.load(std::memory_order_relaxed) != kFree &&
          other.operation == Operation::kWrite && other.overlaps(target.va, length))
        other.abandoned = true;
  }
  RequestSlot* const chosen =
      at - served.load(std::memory_order_acquire) < kSlots ? unused() : nullptr;
  if (chosen == nullptr) return nullptr;
  RequestSlot& slot = *chosen;
  slot.operation = operation;
  slot.target = target;
  slot.length_bytes = length;
  slot.changes = changes.load(std::memory_order_relaxed);
  slot.word = word;
  slot.abandoned = slot.taken = slot.put_off = false;
  if (!bytes.empty()) std::memcpy(slot.bytes.data(), bytes.data(), bytes.size());
  if (target.references != nullptr) target.references->fetch_add(1, std::memory_order_relaxed);
  slot.state.store(kPosted, std::memory_order_release);
  order[at % kSlots] = static_cast<uint8_t>(chosen - slots.data());
  posted.store(at + 1, std::memory_order_release);
  posted.notify_one();
  return &slot;
}

// Waits a moment, if the client has not used up what is waited for it; returns whether it is done.
bool MemFdHelper::State::wait_for(const RequestSlot& slot) {
  const uint64_t begin = now_ns();
  wait_left_ns = std::min(wait_left_ns + (begin - wait_counted_ns) / kWaitShare, kWaitSavedNs);
  wait_counted_ns = begin;
  const uint64_t most = may_wait ? std::min(wait_left_ns, kWaitNs) : 0;
  uint64_t waited = 0;
  bool done = false;
  while (!(done = slot.state.load(std::memory_order_acquire) == kDone) && waited < most) {
    // The thread may be waiting for this very processor.
    if (waited < kAloneNs)
      spin_pause();
    else
      sched_yield();
    waited = now_ns() - begin;
  }
  // What others did with the processor meanwhile is not counted.
  wait_left_ns -= std::min({waited, wait_left_ns, kWaitNs});
  return done;
}

// The slot of the transfer if it has been made; else it will be, if there is room.
MemFdHelper::State::RequestSlot* MemFdHelper::State::finished(const Target& target,
                                                              Operation operation, uint64_t length,
                                                              std::span<const std::byte> bytes,
                                                              const AtomicOperation& word) {
  RequestSlot* slot = find(target, operation, length, bytes);
  if (slot != nullptr) {
    if (slot->state.load(std::memory_order_acquire) != kDone) return nullptr;
  } else {
    slot = post(target, operation, length, bytes, word);
    if (slot == nullptr || !wait_for(*slot)) return nullptr;
  }
  slot->taken = true;
  if (!slot->put_off && operation != Operation::kWord) return slot;
  slot->state.store(kFree, std::memory_order_relaxed);
  return slot->put_off ? nullptr : slot;
}

void MemFdHelper::State::take_back(RequestSlot& slot) {
  uint32_t expected = kPosted;
  if (!slot.state.compare_exchange_strong(expected, kFree, std::memory_order_acquire)) {
    slot.abandoned = true;
    return;
  }
  if (slot.target.references != nullptr)
    slot.target.references->fetch_sub(1, std::memory_order_release);
}

std::optional<MemFdResult> MemFdHelper::read(const Target& target, std::span<std::byte> to) {
  if (to.size() > kMaxBytes) return MemFdResult::kFault;
  const State::RequestSlot* slot = state_->finished(target, Operation::kRead, to.size());
  if (slot == nullptr) return std::nullopt;
  std::memcpy(to.data(), slot->bytes.data(), to.size());
  return slot->result;
}

std::optional<MemFdResult> MemFdHelper::write(const Target& target,
                                              std::span<const std::byte> from) {
  if (from.size() > kMaxBytes) return MemFdResult::kFault;
  const State::RequestSlot* slot = state_->finished(target, Operation::kWrite, from.size(), from);
  return slot == nullptr ? std::nullopt : std::optional(slot->result);
}

std::optional<MemFdResult> MemFdHelper::probe(const Target& target, uint64_t length_bytes) {
  const State::RequestSlot* slot = state_->finished(target, Operation::kProbe, length_bytes);
  return slot == nullptr ? std::nullopt : std::optional(slot->result);
}

std::optional<MemFdResult> MemFdHelper::change_word(const Target& target,
                                                    const AtomicOperation& operation,
                                                    uint64_t& before) {
  const State::RequestSlot* slot =
      state_->finished(target, Operation::kWord, sizeof(before), {}, operation);
  if (slot == nullptr) return std::nullopt;
  std::memcpy(&before, slot->bytes.data(), sizeof(before));
  return slot->result;
}

void MemFdHelper::note_change() { state_->changes.fetch_add(1, std::memory_order_release); }

void MemFdHelper::forget(const void* begin, const void* end) {
  for (State::RequestSlot& slot : state_->slots)
    if (slot.state.load(std::memory_order_acquire) != kFree && slot.is_of(begin, end))
      State::take_back(slot);
}

bool MemFdHelper::busy_for(const void* begin, const void* end) const {
  return std::ranges::any_of(state_->slots, [&](const State::RequestSlot& slot) {
    const uint32_t state = slot.state.load(std::memory_order_acquire);
    return (state == kPosted || state == kBusy) && slot.is_of(begin, end);
  });
}

bool MemFdHelper::busy() const {
  return std::ranges::any_of(state_->slots, [](const State::RequestSlot& slot) {
    const uint32_t state = slot.state.load(std::memory_order_acquire);
    return state == kPosted || state == kBusy;
  });
}

bool MemFdHelper::any_transfers() { return transfers.load(std::memory_order_relaxed) != 0; }

// ---- begin and end

std::unique_ptr<MemFdHelper> MemFdHelper::create(int mem_fd) {
  auto state = std::make_shared<State>();
  state->mem_fd = UniqueFd(fcntl(mem_fd, F_DUPFD_CLOEXEC, 0));
  if (!state->mem_fd) return nullptr;
  try {
    // Nobody can wait for this thread: what it waits for may never come.
    std::thread([state] { state->serve(); }).detach();
  } catch (const std::system_error&) {
    return nullptr;
  }
  return std::unique_ptr<MemFdHelper>(new MemFdHelper(std::move(state)));
}

MemFdHelper::~MemFdHelper() {
  state_->stop.store(true, std::memory_order_release);
  for (State::RequestSlot& slot : state_->slots)
    if (slot.state.load(std::memory_order_acquire) == kPosted) State::take_back(slot);
  state_->posted.fetch_add(1, std::memory_order_release);
  state_->posted.notify_one();
}

}  // namespace hostnic
