// SPDX-License-Identifier: BSD-3-Clause
// The stage that does to packets what a spec says. One per NIC and direction.
//
// The owner pushes every packet of that direction in (or has it pass, if nothing becomes of it), in
// arrival order, and pops what is due. All
// random decisions are made in push() and depend on the seed and on the sequence of PacketInfos
// alone; only time windows, rate limits and queue overflow look at the clock. The clock is the
// caller's: CLOCK_MONOTONIC or virtual time.
//
// Buffer ownership: push() takes the packet, pop() and drain() give it back, everything else goes
// to PacketOps::release, unless it is null. Each packet pushed and each copy made leaves exactly
// once:
//   seen + duplicated == passed + popped + dropped + rate_dropped + queue_dropped + queued().
//
// Threads: one, the owner's.
// Nothing is allocated after construction.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "protocol/impair/packet_info.h"
#include "protocol/impair/release_heap.h"
#include "protocol/impair/rule_state.h"
#include "protocol/impair/spec.h"

namespace hostnic::impair {

// The operations on packet buffers that the stage needs. The object is not owned by the stage and
// outlives it. A packet is null where it lies in a bundle and has no buffer of its own
// (bundle_passage.h): clone() and detach() make it one, and there is nothing to release.
class PacketOps {
 public:
  // Returns a second buffer with the same packet, or null if there is none to have (then it is not
  // duplicated). It may share bytes with the original.
  virtual void* clone(void* packet) = 0;
  // Called before a packet is held back, corrupted or marked: returns it in a buffer whose bytes
  // nobody else shares or may change (docs/transport.md rule 31), which may be `packet` itself.
  // Returns null if there is no room: `packet` has then been released, and the stage counts it as
  // queue_dropped.
  virtual void* detach(void* packet) { return packet; }
  // Changes one byte, that number `byte_selector` modulo the packet's length chooses, by XOR with
  // `xor_mask`, which is not 0. What can't be protected by the ICRC is the implementer's to
  // exclude.
  virtual void corrupt(void* packet, uint32_t byte_selector, uint8_t xor_mask) = 0;
  // Marks a packet as having met congestion (ECN, RFC 3168). Returns false if its sender does not
  // allow that.
  virtual bool mark(void* packet) = 0;
  virtual void release(void* packet) = 0;
  // Says that a packet is delayed or to be overtaken. It has a buffer.
  virtual void held_back([[maybe_unused]] void* packet) {}

 protected:
  ~PacketOps() = default;
};

struct Counters {
  uint64_t seen = 0;        // packets pushed
  uint64_t dropped = 0;     // dropped by drop rules
  uint64_t duplicated = 0;  // copies made
  uint64_t reordered = 0;   // delayed until overtaken, by distance or by time
  uint64_t delayed = 0;     // delayed by delay rules and rate limits
  uint64_t corrupted = 0;
  uint64_t marked = 0;
  uint64_t rate_dropped = 0;      // packets that found a rate limit's queue full
  uint64_t queue_dropped = 0;     // packets that found the stage full, or no buffer to wait in
  uint64_t script_forgotten = 0;  // notes of scripted rules that were displaced: see script_table.h

  // Calls visit(name, value) for each counter.
  template <class Visit>
  void for_each(Visit&& visit) const {
    visit("seen", seen);
    visit("dropped", dropped);
    visit("duplicated", duplicated);
    visit("reordered", reordered);
    visit("delayed", delayed);
    visit("corrupted", corrupted);
    visit("marked", marked);
    visit("rate_dropped", rate_dropped);
    visit("queue_dropped", queue_dropped);
    visit("script_forgotten", script_forgotten);
  }
};

// Derives a seed for one NIC and direction from the user's one seed.
uint64_t derive_seed(uint64_t seed, uint32_t nic_index, Direction direction);

// A packet that the stage let go of: the one pushed last, or a copy of it.
struct Loss {
  enum class Reason : uint8_t { kRule, kRate, kQueue };
  Reason reason = Reason::kRule;
  uint8_t rule = 0;  // the place of the rule that did it, from 1; 0: none did
  bool is_copy = false;
};

class ImpairmentStage {
 public:
  static constexpr size_t kDefaultCapacity = 16384;

  // Makes a stage where at most `capacity` packets wait at a time, at least 1; more are dropped. At
  // most kMaxRules rules are applied, which parse_spec guarantees.
  ImpairmentStage(const Spec& spec, uint64_t seed, PacketOps& ops,
                  size_t capacity = kDefaultCapacity);
  // Releases the packets that still wait.
  ~ImpairmentStage();
  ImpairmentStage(const ImpairmentStage&) = delete;
  ImpairmentStage& operator=(const ImpairmentStage&) = delete;

  // Takes a packet at `now`; a time earlier than a previous call's is taken for that one's.
  void push(void* packet, const PacketInfo& info, TimeNs now);

  // As push(), but returns true if the packet is to go on at once and unchanged, in which case it
  // is still the caller's: what a later pop() returns comes after it. That is so for most packets
  // of most specs. `describe()`, the PacketInfo, is called only if it matters. A null packet gets a
  // buffer if it is not to go on at once and unchanged.
  template <class Describe>
  [[nodiscard]] bool pass(void* packet, TimeNs now, Describe&& describe) {
    if (plain_loss_ && queued_ == 0) return pass_plain_loss(packet, now);
    return run(packet, describe(), now, /*may_pass=*/true);
  }

  // Whether any rule looks at more of a packet than PacketInfo::bytes. If not, the rest of
  // PacketInfo may be left out.
  bool looks_at_packets() const { return looks_at_packets_; }

  // Takes out packets that are due at `now`, in the order in which the network delivers them;
  // returns how many. More may be due if `out` came back full.
  size_t pop(std::span<void*> out, TimeNs now);

  // Whether a packet that is due waits for pop(): what comes next waits behind it.
  bool has_due(TimeNs now) const { return !timed_.empty() && timed_.first_ns() <= now; }

  // The time when pop() has something next: possibly in the past, kForever if never without a push.
  TimeNs next_deadline_ns() const;

  // Whether there is nothing to do and no packet waits: the caller may pass packets by.
  bool idle() const { return rules_.empty() && queued_ == 0; }

  // Takes out every packet that waits, due or not, nearest deadline first; call until it returns 0.
  // This is for changing the spec: build a new stage, drain the old one, deliver what came out.
  size_t drain(std::span<void*> out);

  // For those who tell people: the packets that the last push() or pass() lost, and, when PacketOps
  // are called, the rule that does it, from 1.
  std::span<const Loss> losses() const { return {losses_.data(), loss_count_}; }
  uint8_t rule_at_work() const { return rule_at_work_; }

  size_t queued() const { return queued_; }
  Counters counters() const;
  void clear_counters();

 private:
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

  // The plan for one packet, while the rules are applied to it.
  struct Plan {
    void* packet = nullptr;
    TimeNs release_ns = 0;          // time along the ordered path: delay and rate
    uint64_t reorder_delay_ns = 0;  // added for this packet alone
    uint32_t hold_rule = kNone;     // rule by which the packet is to be overtaken by distance
    uint32_t passes_rules = 0;      // bit set of distance rules that this packet counts for
    uint8_t by_rule = 0;            // the last rule that holds it back, from 1
    bool is_copy = false, delayed = false;
    bool may_pass = false;  // unchanged so far, and pass() asks
  };
  // A duplicate on its way through the rules behind the one that made it.
  struct Copy {
    Plan plan;
    size_t next_rule;
  };
  // A packet that waits to be overtaken by distance, in a list per rule in order of arrival.
  struct Held {
    void* packet;
    TimeNs arrival_ns, release_ns;
    uint64_t release_at_count;  // value of the rule's `passed` at which it goes on
    uint32_t next;
  };
  struct HoldList {
    uint32_t first = kNone, last = kNone;
    uint64_t passed = 0;  // matching packets that went by without waiting
    TimeNs last_passed_ns = 0;
  };
  bool pass_plain_loss(void* packet, TimeNs now) {
    begin_packet(now);
    RuleState& rule = rules_.front();
    if (!rule.random().chance(rule.rule().trigger.probability_ppb)) return true;
    if (packet != nullptr) ops_.release(packet);
    ++counters_.dropped;
    losses_[loss_count_++] = {.reason = Loss::Reason::kRule, .rule = 1};
    return false;
  }
  void begin_packet(TimeNs now) {
    last_now_ns_ = now > last_now_ns_ ? now : last_now_ns_;
    if (packet_number_++ == 0) first_packet_ns_ = last_now_ns_;
    ++counters_.seen;
    loss_count_ = 0;
  }
  bool run(void* packet, const PacketInfo& info, TimeNs now, bool may_pass);
  bool run_rules(Plan plan, const PacketInfo& info, TimeNs now, size_t first_rule);
  bool apply_rule(size_t index, Plan& plan, const PacketInfo& info, TimeNs now);
  void apply_duplicate(size_t index, const Plan& plan);
  bool apply_rate(RuleState& state, Plan& plan, const PacketInfo& info, TimeNs now);
  void apply_delay(RuleState& state, Plan& plan, bool triggered);
  void apply_reorder(size_t index, Plan& plan, bool triggered);
  bool apply_corrupt(RuleState& state, Plan& plan);
  bool apply_mark(Plan& plan);
  bool detach(Plan& plan);
  void drop(Plan& plan, Loss::Reason reason, uint64_t& counter);
  void note_loss(const Plan& plan, Loss::Reason reason);
  void finish(Plan& plan, TimeNs now);
  bool goes_on(const Plan& plan, TimeNs now) const;
  void hold(const Plan& plan, TimeNs now);
  void note_passed(uint32_t rules, TimeNs release_ns, TimeNs now);
  void release_front(HoldList& list, TimeNs not_before_ns);
  TimeNs flush_deadline_ns(size_t rule) const;
  void flush_held(TimeNs now);
  void* take_first_timed();

  PacketOps& ops_;
  size_t capacity_;
  std::vector<RuleState> rules_;
  bool looks_at_packets_ = false;
  bool plain_loss_ = false;      // the spec is one rule, "drop P%": what most users ask for
  std::vector<HoldList> holds_;  // one per rule
  std::vector<Held> held_;       // pool of entries
  uint32_t free_held_ = kNone;
  size_t held_count_ = 0;
  ReleaseHeap timed_;
  size_t queued_ = 0;
  std::array<Copy, kMaxRules> copies_;  // copies of the packet being pushed; they are not copied
                                        // again
  size_t copy_count_ = 0;
  std::array<Loss, kMaxRules + 1> losses_;
  size_t loss_count_ = 0;
  uint8_t rule_at_work_ = 0;
  uint64_t packet_number_ = 0;
  TimeNs first_packet_ns_ = 0, last_now_ns_ = 0;
  Counters counters_;  // all but script_forgotten, which the rules count
  uint64_t forgotten_before_clear_ = 0;
};

}  // namespace hostnic::impair
