// SPDX-License-Identifier: BSD-3-Clause
// Transfers through a client's mem fd that may block: pages that a FUSE or network file system or a
// disk brings, memory of a client that nobody trusts to be anything else. The lcore never makes
// them: a thread of the client's does, one at a time, while the lcore waits a moment and otherwise
// goes on, and finds the result when the packet or descriptor comes again.
//
// The queue is bounded, so is the time that the lcore waits for one client, and what is late hurts
// the client alone. A transfer that will never end keeps its region referenced, as a packet does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "dataplane/memory/mem_fd.h"
#include "dataplane/memory/word_lock.h"
#include "protocol/hostif/segment.h"
#include "protocol/hostif/unique_fd.h"
#include "protocol/types.h"

namespace hostnic {

// Whom a transfer is for: an object (a queue pair's context or a part of it) and a PSN of its. The
// same transfer of the same user is a repetition.
struct TransferUser {
  const void* object = nullptr;
  uint32_t psn = 0;
};

class MemFdHelper {
 public:
  static constexpr size_t kMaxBytes = 4096;  // what one packet carries

  // Starts the thread. `mem_fd` is duplicated. Null: no descriptor or thread is left.
  static std::unique_ptr<MemFdHelper> create(int mem_fd);
  // Forgets what has not begun; does not wait for what has. The lcore must be done with this.
  ~MemFdHelper();
  MemFdHelper(const MemFdHelper&) = delete;
  MemFdHelper& operator=(const MemFdHelper&) = delete;

  // What a transfer is about, and what it needs while it lasts.
  struct Target {
    TransferUser user;
    VirtualAddress va = 0;        // where the client has the memory now
    VirtualAddress named_va = 0;  // as the region was registered: it stays when memory moves
    std::atomic<uint32_t>* references = nullptr;  // the region's packets
    MemoryGate* gate = nullptr;                   // see MemFdPass
  };
  // One transfer each, of at most kMaxBytes; nothing: not now, ask again. The lcore.
  std::optional<MemFdResult> read(const Target& target, std::span<std::byte> to);
  std::optional<MemFdResult> write(const Target& target, std::span<const std::byte> from);
  // Whether each page of the range can be read.
  std::optional<MemFdResult> probe(const Target& target, uint64_t length_bytes);
  std::optional<MemFdResult> change_word(const Target& target, const AtomicOperation& operation,
                                         uint64_t& before);

  // Says that memory of the client's has gone or moved: what was asked for before, and is made when
  // the gate is open again, may be about a place where something else is. It is put off. The lcore,
  // when it follows the change.
  void note_change();
  // Forgets what users in [begin, end) asked for, but for what has begun. The lcore.
  void forget(const void* begin, const void* end);
  // Whether something has begun for users in [begin, end) that has not ended. The lcore.
  bool busy_for(const void* begin, const void* end) const;
  // Whether any transfer has not ended. Any thread.
  bool busy() const;
  // Whether a transfer of any helper's is being made, those that are gone included: its thread may
  // wait in the kernel for ever, and can't be stopped. Any thread.
  static bool any_transfers();

 private:
  struct State;
  explicit MemFdHelper(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;  // the thread has another, which it may keep for ever
};

}  // namespace hostnic
