// SPDX-License-Identifier: BSD-3-Clause
// What a responder remembers of the answers that it has given to READs, so that a range which the
// peer pulls again says what it said the first time, or is refused (docs/transport.md rule 18).
//
// The bytes themselves are in the memory still, unless somebody has written there: a digest of each
// answer tells whether they are. So no answer is kept, nothing is evicted while it may be needed,
// and a region that is deregistered meanwhile is as gone for a repeated answer as for a first one.
//
// The NIC's lcore.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "dataplane/memory/sigbus.h"
#include "dataplane/nic/packet/digest.h"
#include "dataplane/nic/packet/digest_table.h"
#include "protocol/psn.h"
#include "protocol/types.h"

namespace hostnic {

class DigestTables;

// The READs of one queue pair's peer in one epoch: how far they have been read, and digests of what
// was read if the queue pair has a table.
class ReadOrder {
 public:
  struct Read {
    uint32_t number = 0;
    uint32_t rkey = 0;
    VirtualAddress va = 0;
    uint32_t length_bytes = 0;
    Psn first;  // of its answers
  };
  // Whether an answer to a later READ has been read.
  bool has_read_later(uint32_t read_number) const {
    return any_ && serial_distance(read_number, newest_.number) > 0;
  }
  // The READ with the highest number that has been read; null: none.
  const Read* newest() const { return any_ ? &newest_ : nullptr; }
  // Whether the answer with this PSN, or a later one, has been read, so that whoever asks for it
  // asks again.
  bool is_repeated(Psn psn) const { return any_ && before(psn, end_); }
  // Notes that the answers from `from` to `end` have been read, for this READ.
  void note_read(const Read& read, Psn from, Psn end) {
    if (!any_ || serial_distance(newest_.number, read.number) > 0) newest_ = read;
    if (!any_) end_ = from;
    if (before(end_, end)) {
      if (before(end_, from)) forget_digests(end_, from);
      end_ = end;
    }
    any_ = true;
  }

  // Whether answers have digests now; where these are: nothing is known there of an answer that was
  // never read, or read before the queue pair had a table.
  bool has_digests() const { return table_ != nullptr; }
  DigestTable* table() const { return table_; }

 private:
  friend class DigestTables;
  // Notes that the answers from `from` to `end`, which others have overtaken, were not read.
  void forget_digests(Psn from, Psn end) {
    if (table_ != nullptr) table_->forget(from, static_cast<uint32_t>(distance(from, end)));
  }

  Read newest_;
  bool any_ = false;         // something has been read in this epoch
  Psn end_;                  // of the answers that have been read
  uint32_t unrepeated_ = 0;  // answers since one was asked for again
  DigestTable* table_ = nullptr;
};

// The tables of a NIC's queue pairs: fewer than these, because only those whose answers get lost
// need one. All memory is allocated at start; it belongs to the process, and another NIC takes it
// when no answer refers to it any more.
class DigestTables {
 public:
  // A table has room for `window` answers, a power of two: as many as a peer with the same window
  // pulls ahead of one that it misses. `seed` is that of the NIC's random numbers.
  DigestTables(uint32_t window, uint64_t seed);
  ~DigestTables();
  DigestTables(const DigestTables&) = delete;
  DigestTables& operator=(const DigestTables&) = delete;

  // Gives a queue pair a table, whose answers `answers` counts. Where none is free it is taken from
  // who has had one longest: that peer's repeated pulls are refused until it gets another. A table
  // that answers on their way refer to is passed over.
  void give(ReadOrder& order, const PacketCount* answers);
  // Takes the table away.
  void take(ReadOrder& order);
  // Begins an epoch: nothing has been read in it.
  void begin_epoch(ReadOrder& order);
  // Begins a connection.
  void begin_connection(ReadOrder& order) {
    take(order);
    order = {};
  }
  // Notes that answers are asked for again.
  void note_repeated(ReadOrder& order, const PacketCount* answers) {
    if (order.has_digests()) {
      order.unrepeated_ = 0;
    } else {
      give(order, answers);
    }
  }
  // Notes answers that have left and have digests, or will. After many of which none was asked for
  // again the queue pair can do without.
  void note_answered(ReadOrder& order, uint32_t answers) {
    order.unrepeated_ += answers;
    if (order.unrepeated_ >= kUnrepeated) take(order);
  }
  uint64_t digest(std::span<const std::byte> bytes) const { return digest_of(bytes, set_->secret); }
  // Copies out of memory that programs write; returns the digest of the copy.
  uint64_t copy(std::byte* to, std::span<const std::byte> memory) const {
    const uint64_t digest = copy_and_digest(to, memory, set_->secret);
    copy_is_void(memory.data(), memory.size());
    return digest;
  }
  uint32_t used() const { return used_; }
  uint32_t window() const { return window_; }

  static constexpr uint32_t kTables = 128;
  static constexpr uint32_t kUnrepeated = 8192;

 private:
  struct Set {
    Set(uint32_t window, uint64_t seed);
    bool any_referred_to() const;
    DigestSecret secret;
    std::vector<DigestTable> tables;
  };
  struct Pool;
  static Pool& pool();

  const uint32_t window_;
  std::unique_ptr<Set> set_;
  std::vector<ReadOrder*> owners_;  // of each table; null: free
  uint32_t next_ = 0, used_ = 0;
};

}  // namespace hostnic
