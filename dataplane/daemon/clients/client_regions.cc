// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/clients/client_regions.h"

#include <errno.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "dataplane/daemon/trust/foreign_descriptors.h"
#include "dataplane/daemon/trust/owner.h"
#include "dataplane/memory/blocking_memory.h"

namespace hostnic {

ClientRegions::ClientRegions(Daemon& daemon, NicInstance& nic, const ClientInfo& client,
                             ClientChannel& channel, const Terms& terms)
    : all_(daemon.regions()),
      clients_(daemon.clients()),
      nic_(nic),
      client_(client),
      channel_(channel),
      terms_(terms),
      memory_(std::make_unique<ClientMemory>(
          terms.mirror_fd,
          // Whoever does it to another user's hostnicd loses more than the keys.
          limited_user(client.uid) ? &channel.memory_taken : &channel.memory_cut_off,
          MemoryTerms{.stranger = limited_user(client.uid),
                      .mappings = &all_.mappings(),
                      .page_tables = channel.settings().page_tables})) {}

Expected<RegisterMrReply, ControlError> ClientRegions::add(RegisterMr& call,
                                                           const std::vector<UniqueFd>& fds) {
  constexpr uint32_t kWriting = kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteAtomic;
  std::vector<int> raw_fds;
  raw_fds.reserve(fds.size());
  for (const UniqueFd& fd : fds) raw_fds.push_back(fd.get());
  if (auto good = check_files_are_memory(fds); !good) return control_error(EINVAL, good.error());
  Expected<std::vector<MappedPiece>, std::string> pieces{std::vector<MappedPiece>()};
  if (!call.regions.empty())
    pieces = memory_->map(call.regions, raw_fds, (call.fixed.access & kWriting) != 0,
                          (call.fixed.access & kAccessRevocable) != 0);
  if (!pieces) {
    if (!memory_->limit_met().empty()) clients_.note_limit(client_.client_id, memory_->limit_met());
    return control_error(memory_->refusal(), pieces.error());
  }
  if (auto populated = ClientMemory::populate(*pieces); !populated) {
    memory_->unmap(*pieces);
    return control_error(EINVAL, populated.error());
  }
  const auto helper = helper_for(*pieces);
  if (!helper) {
    memory_->unmap(*pieces);
    return Unexpected(helper.error());
  }
  RegisterMrReply answer{};
  for (const MappedPiece& piece : *pieces)
    (piece.by_mem_fd() ? answer.bytes_mem_fd : answer.bytes_mapped) += piece.length_bytes;
  MrTable::Init init;
  init.client_id = client_.client_id;
  init.pd = call.fixed.pd;
  init.access = call.fixed.access;
  init.va = call.fixed.va;
  init.iova = call.fixed.iova;
  init.length_bytes = call.fixed.length_bytes;
  init.mem_fd = terms_.mem_fd;
  init.client_gone = &channel_.address_space_gone;
  init.gate = &channel_.header().memory_gate;
  init.helper = *helper;
  init.turn_ns = nic_.nic->turn_ns();
  init.pieces = *pieces;
  init.sole_addresses = init.va == init.iova && sole_addresses_.note(*pieces);
  const uint32_t replaced = call.fixed.replaced_key;
  Expected<uint32_t, ControlError> key = 0u;
  if (auto admitted = clients_.admit_pieces(client_.client_id, pieces->size()); !admitted) {
    key = control_error(ENOMEM, admitted.error());
  } else {
    key = replaced == 0 ? add_one(std::move(init)) : replace(replaced, std::move(init));
    if (!key) clients_.drop_pieces(client_.client_id, pieces->size());
  }
  if (!key) {
    memory_->unmap(*pieces);
    return Unexpected(key.error());
  }
  memory_->look_again(*pieces);
  answer.lkey = answer.rkey = *key;
  clients_.note_registration(client_.client_id, 0, static_cast<int64_t>(answer.bytes_mapped),
                             static_cast<int64_t>(answer.bytes_mem_fd));
  return answer;
}

Expected<uint32_t, ControlError> ClientRegions::add_one(MrTable::Init init) {
  if (auto admitted = clients_.admit_registration(client_.client_id); !admitted)
    return control_error(ENOMEM, admitted.error());
  const uint32_t key = all_.add(std::move(init));
  if (key != 0) return key;
  clients_.note_registration(client_.client_id, -1, 0, 0);
  return control_error(
      ENOMEM, fmt::format("all {} memory regions of this hostnicd are in use", terms_.all_mrs));
}

// Returns who makes the transfers through the mem fd. Null stands for the lcore itself: memory that
// the owner's programs registered can't keep it waiting, as far as can be seen now. Other users'
// programs could put anything in its place at any moment.
Expected<MemFdHelper*, ControlError> ClientRegions::helper_for(
    const std::vector<MappedPiece>& pieces) {
  const auto by_mem_fd = [](const MappedPiece& piece) { return piece.by_mem_fd(); };
  if (std::ranges::none_of(pieces, by_mem_fd)) return nullptr;
  if (is_owner(client_.uid) && !may_block(terms_.pid, pieces)) return nullptr;
  return make_helper();
}

Expected<MemFdHelper*, ControlError> ClientRegions::make_helper() {
  if (helper_ == nullptr) {
    helper_ = MemFdHelper::create(terms_.mem_fd);
    if (helper_ == nullptr)
      return control_error(EMFILE, "hostnicd has no thread or descriptor left for this memory");
    channel_.mem_fd_helper.store(helper_.get(), std::memory_order_release);
  }
  return helper_.get();
}

// Replaces the region of this key by another one, and returns that one's key. Until it is in place
// the key leads nowhere.
Expected<uint32_t, ControlError> ClientRegions::replace(uint32_t key, MrTable::Init init) {
  const std::vector<uint32_t> keys = {key};
  const ControlError bound{EBUSY, "memory windows are bound to the region"};
  if (all_.has_windows(key, client_.client_id)) return Unexpected(bound);
  if (!all_.invalidate(keys, client_.client_id))
    return control_error(EINVAL, "no memory region of this client has that key");
  const bool free = all_.wait_unreferenced(keys, kReferenceLimit);
  // A bind may have been executed just before the key was gone.
  if (!free || all_.has_windows(key, client_.client_id)) {
    all_.restore(key);
    if (free) return Unexpected(bound);
    return control_error(EBUSY, "packets still refer to the memory (are the NICs stopped?)");
  }
  forget_filled(key);
  const std::vector<MappedPiece> pieces = all_.replace(key, std::move(init));
  memory_->unmap(pieces);
  note_deregistration(pieces);
  clients_.note_registration(client_.client_id, 1, 0, 0);
  return key;
}

void ClientRegions::note_deregistration(const std::vector<MappedPiece>& pieces) {
  int64_t mapped = 0, mem_fd = 0;
  for (const MappedPiece& piece : pieces)
    (piece.by_mem_fd() ? mem_fd : mapped) -= static_cast<int64_t>(piece.length_bytes);
  clients_.drop_pieces(client_.client_id, pieces.size());
  clients_.note_registration(client_.client_id, -1, mapped, mem_fd);
}

Expected<void, ControlError> ClientRegions::remove(uint32_t lkey) {
  const std::vector<uint32_t> keys = {lkey};
  const auto lingering = std::ranges::find(lingering_keys_, lkey);
  if (lingering == lingering_keys_.end()) {
    if (all_.has_windows(lkey, client_.client_id))
      return control_error(EBUSY, "memory windows are bound to the region");
    if (!all_.invalidate(keys, client_.client_id))
      return control_error(EINVAL, "no memory region of this client has that key");
  }
  if (!all_.wait_unreferenced(keys, kReferenceLimit)) {
    // The memory is out of use but can't be given back. It stays mapped until the client asks once
    // more, or its session ends.
    if (lingering == lingering_keys_.end()) lingering_keys_.push_back(lkey);
    return control_error(EBUSY, "packets still refer to the memory (are the NICs stopped?)");
  }
  if (lingering != lingering_keys_.end()) lingering_keys_.erase(lingering);
  forget_filled(lkey);
  const std::vector<MappedPiece> pieces = all_.reclaim(lkey);
  memory_->unmap(pieces);
  note_deregistration(pieces);
  return {};
}

Expected<void, ControlError> ClientRegions::follow(const MemoryChange& call) {
  if (call.kind == MemoryChangeKind::kMoved) sole_addresses_.note_move();
  MemFdHelper* helper = nullptr;
  if (call.kind == MemoryChangeKind::kOutside && !is_owner(client_.uid)) {
    auto made = make_helper();
    if (!made) return Unexpected(made.error());
    helper = *made;
  }
  // What has left the mirror gets no pages there. The rest of such regions stays late.
  if (call.kind == MemoryChangeKind::kOutside)
    std::erase_if(filled_, [&call](const Filled& filled) {
      return std::ranges::any_of(filled.late, [&call](const MappedPiece& piece) {
        return piece.va < call.va + call.length_bytes && call.va < piece.va + piece.length_bytes;
      });
    });
  const auto left = static_cast<int64_t>(all_.follow(*nic_.lcore, client_.client_id, call, helper));
  if (left != 0) clients_.note_registration(client_.client_id, 0, -left, left);
  return {};
}

Expected<void, ControlError> ClientRegions::note_filled(uint32_t lkey) {
  auto late = all_.late_pieces(lkey, client_.client_id);
  if (!late) return control_error(EINVAL, "no memory region of this client has that key");
  if (auto filled = memory_->check_filled(*late); !filled)
    return control_error(EAGAIN, filled.error());
  if (!late->empty() && std::ranges::find(filled_, lkey, &Filled::lkey) == filled_.end())
    filled_.push_back({lkey, std::move(*late)});
  return {};
}

// Brings some pages of what is filled. Once all of a region are there its late pieces become
// ordinary ones. Where that can't be had they stay what they are, which serves as well.
void ClientRegions::bring_filled() {
  Filled& filled = filled_.front();
  const MappedPiece& piece = filled.late.back();
  const uint64_t brought = ClientMemory::populate_step(piece, filled.done_bytes);
  filled.done_bytes += brought;
  if (brought != 0 && filled.done_bytes < piece.length_bytes) return;
  filled.done_bytes = 0;
  filled.late.pop_back();
  if (brought != 0 && !filled.late.empty()) return;
  if (brought != 0) all_.end_lateness(*nic_.lcore, filled.lkey, client_.client_id);
  filled_.pop_front();
}

// A region goes, or becomes another one.
void ClientRegions::forget_filled(uint32_t lkey) {
  std::erase_if(filled_, [lkey](const Filled& filled) { return filled.lkey == lkey; });
}

void ClientRegions::release(std::unique_ptr<ClientChannel> channel,
                            std::chrono::milliseconds limit) {
  std::vector<uint32_t> keys = all_.keys_of(client_.client_id);
  all_.invalidate(keys, client_.client_id);
  helper_.reset();  // no lcore knows it any more; what it has begun keeps its region
  keys.insert(keys.end(), lingering_keys_.begin(), lingering_keys_.end());
  if (!all_.wait_unreferenced(keys, limit)) {
    all_.retire({std::move(keys), std::move(memory_), std::move(channel)});
    return;
  }
  for (const uint32_t key : keys) memory_->unmap(all_.reclaim(key));
  // Here and not when the object goes: these may hold the last references to gigabytes of files.
  memory_.reset();
  channel.reset();
}

}  // namespace hostnic
