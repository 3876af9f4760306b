// SPDX-License-Identifier: BSD-3-Clause
// Where the time of messages goes: moments of a trace (dataplane/nic/qp/message_tap.h says what
// they are) become messages with the time of each step, and these become medians and the slowest
// ones. Pure. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "protocol/hostif/descriptors.h"
#include "protocol/psn.h"

namespace hostnic::cli {

enum class Step : uint8_t { kPosted, kSent, kArrived, kPlaced, kAcknowledged, kReported, kPolled };
inline constexpr size_t kSteps = 7;
const char* name_of(Step step);

// Something that a trace says, with the values that this kind of moment has.
struct TracedMoment {
  enum class Kind : uint8_t {
    kPosted,
    kSent,
    kArrived,
    kPlaced,
    kPlacedAlone,
    kAcknowledged,
    kAnswered,
    kReported,
    kPolled
  };
  Kind kind{};
  uint64_t at = 0;
  uint32_t nic = 0, qpn = 0;
  uint32_t until = 0, answered = 0;
  // Only kPosted and kPolled have these.
  uint32_t client = 0, sequence = 0, number = 0;
  uint64_t wr_id = 0;
  uint32_t status = 0;
  uint32_t first_psn = 0, psns = 0, first_answer = 0, answers = 0, length_bytes = 0;
  SendOp op{};
  QpType type{};
  bool signalled = false;
};

struct TracedMessage {
  TracedMoment post;
  std::array<std::optional<uint64_t>, kSteps> at;
  uint32_t arrived_psn = 0;
  uint32_t status = 0;  // of its completion
  bool is_cut = false;  // its connection began anew, or ended, before it was done

  bool is_read() const { return post.op >= SendOp::kRead && post.op <= SendOp::kFetchAdd; }
  bool is_reliable() const { return post.type == QpType::kRc; }
  Psn end() const { return Psn(post.first_psn) + post.psns; }
  Psn answers_end() const { return Psn(post.first_answer) + post.answers; }
  std::optional<uint64_t> at_step(Step step) const { return at[static_cast<size_t>(step)]; }
  // The first step that it must have had when it is done, and has not; nothing: it is complete. Of
  // UC and UD those at the peer may be missing.
  std::optional<Step> missing_step(bool peer_is_traced) const;
  // Whether the steps that it has had came in their order.
  bool is_in_order() const;
};

// From one step to another: how long that took.
struct Segment {
  Step from{}, to{};
  uint64_t messages = 0;
  uint64_t median_ns = 0, p99_ns = 0, max_ns = 0;
};

class MessageTimes {
 public:
  static constexpr size_t kSlowest = 10;

  explicit MessageTimes(uint64_t frequency_hz) : frequency_hz_(frequency_hz) {}
  // Moments in any order.
  void add(const TracedMoment& moment) { moments_.push_back(moment); }
  // Puts messages together, of all that was added. `missed` events are known not to be in the
  // trace.
  void finish(uint64_t missed);

  struct Counts {
    uint64_t messages = 0, queue_pairs = 0;
    uint64_t complete = 0;  // all their steps are known,
    uint64_t in_order = 0;  // and came one after the other
    uint64_t failed = 0;    // their completion was an error
    uint64_t cut = 0;       // their connection ended, or began anew, before they were done
    std::array<uint64_t, kSteps> lacking{};  // of the others, by the first step that is missing
    uint64_t unplaced = 0;                   // UC, UD: done here, and not placed at the peer
    uint64_t events = 0, missed = 0;
  };
  const Counts& counts() const { return counts_; }
  const std::vector<TracedMessage>& messages() const { return messages_; }
  // The steps of complete messages, and last from the first to the last.
  const std::vector<Segment>& segments() const { return segments_; }

  std::string to_text() const;
  std::string to_json() const;

 private:
  // Messages of one queue pair, from the first to the newest; and up to which of them each step was
  // said.
  struct Requester {
    std::vector<size_t> messages;  // in messages_
    size_t begin = 0;              // those before are of a connection that is no more
    std::array<size_t, kSteps> next{};
    size_t next_answer = 0;
    bool peer_is_traced = false;
  };
  using Key = std::pair<uint32_t, uint32_t>;  // nic, qpn

  void post(const TracedMoment& moment);
  void apply(const TracedMoment& moment);
  void arrive(Requester& requester, const TracedMoment& moment);
  void poll(Requester& requester, const TracedMoment& moment);
  void acknowledge(Requester& requester, const TracedMoment& moment);
  TracedMessage* find_by_psn(Requester& requester, Psn psn);
  // Says a step of all messages, from the first that it was not said of, for which is_so(message).
  template <class IsSo>
  void pass(Requester& requester, Step step, uint64_t at, const IsSo& is_so);
  uint64_t missing_of_programs() const;
  void count();
  void measure();
  uint64_t ns(uint64_t ticks) const;
  bool is_counted(const TracedMessage& message) const;

  const uint64_t frequency_hz_;
  std::vector<TracedMoment> moments_;
  std::vector<TracedMessage> messages_;
  std::map<Key, Requester> requesters_;
  Counts counts_;
  std::vector<Segment> segments_;
  std::vector<size_t> slowest_;
};

}  // namespace hostnic::cli
