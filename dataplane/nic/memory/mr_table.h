// SPDX-License-Identifier: BSD-3-Clause
// Memory regions of all clients of one hostnicd, by key. The control thread adds and removes;
// lcores look up.
//
// Read-copy-update: an entry is filled, then its key stored with release; invalidate() zeroes the
// key, after which the control thread waits until every lcore passed a quiescent point (a task run
// on it) and mbufs_out is 0, and only then reclaims the entry and unmaps the memory
// (docs/transport.md rules 12, 31, 32).
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "dataplane/memory/client_memory.h"
#include "dataplane/nic/memory/random_source.h"
#include "protocol/hostif/memory_region.h"
#include "protocol/hostif/segment.h"
#include "protocol/types.h"

namespace hostnic {

class MemFdHelper;

struct MemoryRegionEntry {
  std::atomic<uint32_t> key{0};
  std::atomic<bool> cut_off{
      false};                // the key is out of use, as cut_off() says, and not invalidated
  uint32_t pending_key = 0;  // the key until the entry is reclaimed; control thread
  uint32_t client_id = 0;
  uint32_t pd = 0;
  uint32_t access = 0;  // AccessFlag
  uint64_t iova = 0;    // first address that users of the key name
  uint64_t length_bytes = 0;
  uint64_t va_delta = 0;  // add to an iova to get the address in the client's memory (modulo 2^64)
  int mem_fd = -1;
  std::atomic<bool>* client_gone =
      nullptr;  // set when a mem fd transfer finds the client's address space gone
  // The client's gate, if a piece is reached through the mem fd and the region is not on demand;
  // else null.
  MemoryGate* gate = nullptr;
  MemoryGate* client_gate = nullptr;
  MemFdHelper* helper = nullptr;    // makes the transfers through the mem fd, where they may block
  const TimeNs* turn_ns = nullptr;  // the time of its NIC's turn; null: time stands still
  uint64_t fault_since_ns = 0;      // when a transfer first found nothing at fault_va; 0: none did
  uint64_t fault_va = 0;
  bool partly_gone = false;                // some pieces have been unmapped
  std::vector<MappedPiece> pieces;         // sorted by va
  std::atomic<uint32_t> mbufs_out{0};      // packets whose payload lies in this memory
  std::atomic<uint32_t> windows_bound{0};  // the client may not deregister the region while this is
                                           // not 0
};

class MrTable {
 public:
  // Makes a table for `capacity` regions at most, up to 2^19. A key is an index, of as many bits as
  // the table needs, before a random tag, whose lowest bit is kSoleAddressBit; the top bit is
  // windows' (descriptors.h).
  // With a seed the keys are the same ones each time; 0: nobody can guess them.
  explicit MrTable(uint32_t capacity, uint64_t seed = 1);

  struct Init {
    uint32_t client_id = 0;
    uint32_t pd = 0;
    uint32_t access = 0;
    uint64_t va = 0, iova = 0, length_bytes = 0;
    bool sole_addresses = false;  // as kSoleAddressBit says
    int mem_fd = -1;
    std::atomic<bool>* client_gone = nullptr;
    MemoryGate* gate = nullptr;
    MemFdHelper* helper = nullptr;    // null: transfers through the mem fd don't block
    const TimeNs* turn_ns = nullptr;  // of the NIC that looks at the region, which outlives it
    std::vector<MappedPiece> pieces;
  };
  // Called by the control thread. Returns the key (lkey == rkey), or 0 when the table is full.
  uint32_t add(Init init);
  // Makes the key unknown to find(); called by the control thread. Returns false if the client has
  // no such key.
  bool invalidate(uint32_t key, uint32_t client_id);
  // Makes the keys of a client's regions unknown to find() where the mapping of some of their
  // memory has been replaced (sigbus.h). They are deregistered, or made to mean other regions, like
  // others. Returns how many. Called on the only lcore that looks at this client's.
  uint32_t cut_off(uint32_t client_id);
  // Makes an invalidated key known to find() again, unchanged, unless its memory is cut off; called
  // by the control thread.
  void restore(uint32_t key);
  // Makes the key mean another region of its client's from now on; called by the control thread,
  // after invalidation and quiescence. The key becomes another one only if it said that its
  // addresses are sole ones, and they no longer are. Returns the pieces to unmap.
  std::vector<MappedPiece> replace(uint32_t& key, Init init);
  // Frees the key; called by the control thread, after quiescence. Returns the pieces to unmap.
  std::vector<MappedPiece> reclaim(uint32_t key);
  // Other pieces for some of a client's regions. They change in take_effect(), which the caller
  // runs on the only lcore that looks at this client's; afterwards the old ones may be freed. The
  // caller, which is the control thread, lets nobody add or remove this client's regions before.
  class PieceChange {
   public:
    bool empty() const { return changes_.empty(); }
    // The bytes that lose their mapping in hostnicd.
    uint64_t bytes_left() const { return bytes_left_; }
    // Gives those regions that have no helper yet one, for what they will reach by the mem fd.
    void set_helper(MemFdHelper* helper) { helper_ = helper; }
    void take_effect();

   private:
    friend class MrTable;
    struct Change {
      MemoryRegionEntry* entry;
      std::vector<MappedPiece> pieces;
      bool partly_gone;
    };
    std::vector<Change> changes_;
    uint64_t bytes_left_ = 0;
    MemFdHelper* helper_ = nullptr;
  };
  // Follows a change of a client's mappings in all its regions but those on
  // demand.
  PieceChange follow(uint32_t client_id, const MemoryChange& change);
  // Makes ordinary mapped pieces of a region's late ones, which are filled.
  PieceChange end_lateness(uint32_t key, uint32_t client_id);
  // The late pieces of a client's region; nothing: it has no such key. Control thread.
  std::optional<std::vector<MappedPiece>> late_pieces(uint32_t key, uint32_t client_id);
  // Whether memory windows are bound to this region of the client's, also one that was
  // invalidated. Control thread.
  bool has_windows(uint32_t key, uint32_t client_id) const {
    const MemoryRegionEntry* entry = pending(key);
    return entry != nullptr && entry->client_id == client_id &&
           entry->windows_bound.load(std::memory_order_acquire) != 0;
  }
  // Whether packets still refer to the region.
  bool referenced(uint32_t key) const;
  std::vector<uint32_t> keys_of(uint32_t client_id) const;  // called by the control thread
  // What people are told of a region.
  struct RegionView {
    uint32_t number = 0;  // of the table's, below its capacity
    uint32_t key = 0, client_id = 0, pd = 0;
    uint64_t iova = 0, length_bytes = 0;
  };
  // All regions whose key is good; called by the control thread.
  std::vector<RegionView> views() const;
  uint32_t size() const { return used_.load(std::memory_order_relaxed); }
  uint32_t capacity() const { return capacity_; }

  // May be called on any lcore; the pointer is good until the lcore's next quiescent point. Returns
  // null if there is no such key.
  MemoryRegionEntry* find(uint32_t key) {
    const uint32_t index = key >> tag_bits_;
    if (index >= capacity_) return nullptr;
    MemoryRegionEntry& entry = entries_[index];
    return key != 0 && entry.key.load(std::memory_order_acquire) == key ? &entry : nullptr;
  }

 private:
  static constexpr uint32_t kKeyBits = 31, kLeastTagBits = 12;
  static void fill(MemoryRegionEntry& entry, Init init);
  static void set_gate(MemoryRegionEntry& entry);
  const std::set<uint32_t>& indices_of(uint32_t client_id) const;
  // The region that has this key, which may have been invalidated; null: none.
  MemoryRegionEntry* pending(uint32_t key) const {
    const uint32_t index = key >> tag_bits_;
    if (key == 0 || index >= capacity_ || entries_[index].pending_key != key) return nullptr;
    return &entries_[index];
  }
  uint32_t capacity_;
  uint32_t tag_bits_;
  std::unique_ptr<MemoryRegionEntry[]> entries_;
  std::deque<uint32_t> free_;  // reused oldest first
  // Indices of each client's entries until they are reclaimed: a client that changes its mappings
  // all the time has each change looked at in its own regions, and the table may be large.
  std::map<uint32_t, std::set<uint32_t>> of_clients_;
  std::atomic<uint32_t> used_{0};
  RandomSource random_;
};

}  // namespace hostnic
