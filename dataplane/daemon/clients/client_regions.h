// SPDX-License-Identifier: BSD-3-Clause
// One client's memory regions, as it asks for them by its control socket: their mappings here, who
// makes transfers through its mem fd, and what was late. The client's session only.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "dataplane/daemon/clients/sole_addresses.h"
#include "dataplane/daemon/control/control_request.h"
#include "dataplane/daemon/daemon.h"
#include "dataplane/memory/client_memory.h"
#include "dataplane/memory/mem_fd_helper.h"
#include "dataplane/nic/client/client_channel.h"
#include "protocol/hostif/unique_fd.h"

namespace hostnic {

class ClientRegions {
 public:
  struct Terms {
    int mem_fd = -1, mirror_fd = -1;  // the session's
    pid_t pid = 0;                    // as the kernel says; 0: in another PID namespace
    uint64_t all_mrs = 0;             // that this hostnicd has
  };
  // All must outlive this, the channel until release().
  ClientRegions(Daemon& daemon, NicInstance& nic, const ClientInfo& client, ClientChannel& channel,
                const Terms& terms);
  ClientRegions(const ClientRegions&) = delete;
  ClientRegions& operator=(const ClientRegions&) = delete;

  // Registers memory, or replaces a region by it, under the same key where that may stay
  // (MrTable::replace).
  Expected<RegisterMrReply, ControlError> add(RegisterMr& call, const std::vector<UniqueFd>& fds);
  // EBUSY: memory windows are bound to it, or packets refer to it for too long; the client may ask
  // once more.
  Expected<void, ControlError> remove(uint32_t lkey);
  // Follows a change of the client's mappings.
  Expected<void, ControlError> follow(const MemoryChange& call);
  // Takes word that a region's late pieces are filled. Bringing their pages may take seconds, in
  // which the client may want other things.
  Expected<void, ControlError> note_filled(uint32_t lkey);
  bool has_filled() const { return !filled_.empty(); }
  // Brings some pages of what is filled; has_filled().
  void bring_filled();
  // Gives everything back, once no lcore knows the channel: what packets still refer to after
  // `limit` is kept with the channel until they are gone.
  void release(std::unique_ptr<ClientChannel> channel, std::chrono::milliseconds limit);

  // The limit for packets to leave the wire, which they do within loop turns. It takes longer only
  // if NICs are stopped at the prompt.
  static constexpr std::chrono::milliseconds kReferenceLimit{10'000};

 private:
  void forget_filled(uint32_t lkey);
  Expected<uint32_t, ControlError> add_one(MrTable::Init init);
  Expected<uint32_t, ControlError> replace(uint32_t key, MrTable::Init init);
  void note_deregistration(const std::vector<MappedPiece>& pieces);
  Expected<MemFdHelper*, ControlError> make_helper();
  Expected<MemFdHelper*, ControlError> helper_for(const std::vector<MappedPiece>& pieces);

  Regions& all_;
  ClientRegistry& clients_;
  NicInstance& nic_;
  const ClientInfo& client_;
  ClientChannel& channel_;
  Terms terms_;
  std::unique_ptr<ClientMemory> memory_;
  SoleAddresses sole_addresses_;
  std::unique_ptr<MemFdHelper> helper_;  // once a region needs it
  // The regions whose late pieces are filled, and still have to get their pages here.
  struct Filled {
    uint32_t lkey = 0;
    std::vector<MappedPiece> late;  // those that are left
    uint64_t done_bytes = 0;        // of the last one
  };
  std::deque<Filled> filled_;
  // The keys that were deregistered while packets would not let go of their memory in time.
  std::vector<uint32_t> lingering_keys_;
};

}  // namespace hostnic
