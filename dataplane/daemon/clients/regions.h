// SPDX-License-Identifier: BSD-3-Clause
// Memory regions of all clients: the MR table under a lock, and the waiting for lcores that belongs
// to its changes.
//
// Any thread but lcores, which read the table itself.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "dataplane/daemon/lcore/lcore_loop.h"
#include "dataplane/memory/client_memory.h"
#include "dataplane/memory/page_tables.h"
#include "dataplane/memory/sigbus.h"
#include "dataplane/memory/user_shares.h"
#include "dataplane/nic/client/client_channel.h"
#include "dataplane/nic/memory/mr_table.h"

namespace hostnic {

// Memory that a client no longer has but packets still refer to: it is kept until they are gone.
struct RetiredMemory {
  std::vector<uint32_t> keys;
  std::unique_ptr<ClientMemory> memory;
  std::unique_ptr<ClientChannel> channel;  // memory's client_gone lives here
};

class Regions {
 public:
  // `lcores` serve the NICs; they may be added later, and must outlive this. A user's programs may
  // have `user_page_tables`.
  Regions(size_t most, uint64_t user_page_tables,
          const std::vector<std::unique_ptr<LcoreLoop>>& lcores)
      : mrs_(most, /*seed=*/0), lcores_(lcores), page_tables_(user_page_tables) {}
  Regions(const Regions&) = delete;
  Regions& operator=(const Regions&) = delete;

  // Read by lcores.
  MrTable& table() { return mrs_; }
  uint32_t add(MrTable::Init init);
  // These take a key that was invalidated and is not referenced back to what it meant, or on to
  // another region of the client's, and then return the pieces to unmap.
  void restore(uint32_t key);
  std::vector<MappedPiece> replace(uint32_t& key, MrTable::Init init);
  // Whether memory windows are bound to this region of the client's.
  bool has_windows(uint32_t key, uint32_t client_id);
  // Makes keys unknown: nobody finds them any more when this returns, but packets may still refer
  // to the memory. Returns false if one is no key of this client.
  bool invalidate(const std::vector<uint32_t>& keys, uint32_t client_id);
  // Waits until no packet refers to the regions. Returns false if that did not happen within
  // `limit` (NICs are stopped).
  bool wait_unreferenced(const std::vector<uint32_t>& keys, std::chrono::milliseconds limit);
  std::vector<MappedPiece> reclaim(uint32_t key);
  std::vector<uint32_t> keys_of(uint32_t client_id);
  std::vector<MrTable::RegionView> views();
  // Follows a change of a client's mappings: when this returns, its NIC does, which is the lcore's.
  // `helper` is for what is reached through the mem fd from now on. Returns how many bytes lost
  // their mapping.
  uint64_t follow(LcoreLoop& lcore, uint32_t client_id, const MemoryChange& change,
                  MemFdHelper* helper);
  // The late pieces of a client's region; nothing: it has no such key.
  std::optional<std::vector<MappedPiece>> late_pieces(uint32_t key, uint32_t client_id);
  // When this returns, the client's NIC, which is the lcore's, reaches the region's late pieces,
  // which are filled and have their pages here, like all that is mapped.
  void end_lateness(LcoreLoop& lcore, uint32_t key, uint32_t client_id);
  uint32_t count() const { return mrs_.size(); }
  // The mappings of clients' files.
  UserShares& mappings() { return mappings_; }
  // These count what clients share with hostnicd: registered memory and queues.
  PageTableBudgets& page_tables() { return page_tables_; }

  void retire(RetiredMemory memory);
  // Frees retired memory that nothing refers to any more; called by the control thread now and
  // then. Returns how much is still kept.
  size_t reap();
  // Frees all retired memory; at the end, when no NIC is left.
  void forget_retired() { retired_.clear(); }

 private:
  void quiesce();

  MrTable mrs_;
  const std::vector<std::unique_ptr<LcoreLoop>>& lcores_;
  UserShares mappings_{UserShares::shares_of(kClientMappings)};
  PageTableBudgets page_tables_;
  std::mutex mrs_mutex_, retired_mutex_;
  std::list<RetiredMemory> retired_;
};

}  // namespace hostnic
