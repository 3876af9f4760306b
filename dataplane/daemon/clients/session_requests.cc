// SPDX-License-Identifier: BSD-3-Clause
// What a program that has opened a device asks for by its control socket.
#include <errno.h>
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "dataplane/daemon/clients/session.h"
#include "dataplane/daemon/observe/error_book.h"
#include "dataplane/daemon/observe/explain.h"
#include "dataplane/daemon/trust/foreign_descriptors.h"
#include "dataplane/daemon/trust/owner.h"
#include "dataplane/memory/blocking_memory.h"

namespace hostnic {
namespace {

std::span<const std::byte> bytes_of(const auto& value) {
  return std::as_bytes(std::span(&value, 1));
}

// What fits a line of the library's log.
std::string_view limited_text(std::string_view text) {
  constexpr size_t kLongest = 600;
  return text.substr(0, kLongest);
}

}  // namespace

bool ClientSession::handle(ControlDatagram& datagram) {
  if (datagram.cut) return refuse({EMSGSIZE, "request too long, or with too many descriptors"});
  auto call = parse_control_request(datagram.bytes, datagram.fds.size());
  if (!call) return refuse(call.error());
  if (auto* registration = std::get_if<RegisterMr>(&*call))
    return handle_register(*registration, datagram.fds);
  if (auto* deregistration = std::get_if<DeregisterMr>(&*call))
    return handle_deregister(*deregistration);
  if (auto* change = std::get_if<MemoryChange>(&*call)) return handle_change(*change);
  if (auto* naming = std::get_if<NameHost>(&*call)) return handle_name(*naming);
  if (auto* filled = std::get_if<MemoryFilled>(&*call)) return handle_filled(*filled);
  if (auto* question = std::get_if<ExplainRequest>(&*call)) return handle_explain(*question);
  if (std::holds_alternative<ListDevices>(*call)) return handle_list();
  return refuse({EINVAL, "this connection is an open device already"});
}

bool ClientSession::handle_register(RegisterMr& call, const std::vector<UniqueFd>& fds) {
  constexpr uint32_t kWriting = kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteAtomic;
  std::vector<int> raw_fds;
  raw_fds.reserve(fds.size());
  for (const UniqueFd& fd : fds) raw_fds.push_back(fd.get());
  if (auto good = check_files_are_memory(fds); !good) return refuse({EINVAL, good.error()});
  Expected<std::vector<MappedPiece>, std::string> pieces{std::vector<MappedPiece>()};
  if (!call.regions.empty())
    pieces = memory_->map(call.regions, raw_fds, (call.fixed.access & kWriting) != 0);
  if (!pieces) return refuse({memory_->refusal(), pieces.error()});
  if (auto populated = ClientMemory::populate(*pieces); !populated) {
    memory_->unmap(*pieces);
    return refuse({EINVAL, populated.error()});
  }
  const auto helper = helper_for(*pieces);
  if (!helper) {
    memory_->unmap(*pieces);
    return refuse(helper.error());
  }
  RegisterMrReply answer{};
  for (const MappedPiece& piece : *pieces)
    (piece.by_mem_fd() ? answer.bytes_mem_fd : answer.bytes_mapped) += piece.length_bytes;
  MrTable::Init init;
  init.client_id = info_.client_id;
  init.pd = call.fixed.pd;
  init.access = call.fixed.access;
  init.va = call.fixed.va;
  init.iova = call.fixed.iova;
  init.length_bytes = call.fixed.length_bytes;
  init.mem_fd = mem_fd_.get();
  init.client_gone = &channel_->memory_gone;
  init.gate = &channel_->header().memory_gate;
  init.helper = *helper;
  init.turn_ns = unit_->nic->turn_ns();
  init.pieces = *pieces;
  const uint32_t replaced = call.fixed.replaced_key;
  Expected<uint32_t, ControlError> key = 0u;
  if (auto admitted = daemon_.clients().admit_pieces(info_.client_id, pieces->size()); !admitted) {
    key = control_error(ENOMEM, admitted.error());
  } else {
    key = replaced == 0 ? add_region(std::move(init)) : replace(replaced, std::move(init));
    if (!key) daemon_.clients().drop_pieces(info_.client_id, pieces->size());
  }
  if (!key) {
    memory_->unmap(*pieces);
    return refuse(key.error());
  }
  answer.lkey = answer.rkey = *key;
  daemon_.clients().note_registration(info_.client_id, 0, static_cast<int64_t>(answer.bytes_mapped),
                                      static_cast<int64_t>(answer.bytes_mem_fd));
  return send_reply(socket_.get(), 0, ControlReply{}, bytes_of(answer));
}

Expected<uint32_t, ControlError> ClientSession::add_region(MrTable::Init init) {
  if (auto admitted = daemon_.clients().admit_registration(info_.client_id); !admitted)
    return control_error(ENOMEM, admitted.error());
  const uint32_t key = daemon_.regions().add(std::move(init));
  if (key != 0) return key;
  daemon_.clients().note_registration(info_.client_id, -1, 0, 0);
  return control_error(ENOMEM, fmt::format("all {} memory regions of this hostnicd are in use",
                                           daemon_.plan().all_mrs));
}

// Returns who makes the transfers through the mem fd. Null stands for the lcore itself: memory that
// the owner's programs registered can't keep it waiting, as far as can be seen now. Other users'
// programs could put anything in its place at any moment.
Expected<MemFdHelper*, ControlError> ClientSession::helper_for(
    const std::vector<MappedPiece>& pieces) {
  const auto by_mem_fd = [](const MappedPiece& piece) { return piece.by_mem_fd(); };
  if (std::ranges::none_of(pieces, by_mem_fd)) return nullptr;
  if (is_owner(info_.uid) && !may_block(pid_, pieces)) return nullptr;
  return make_helper();
}

Expected<MemFdHelper*, ControlError> ClientSession::make_helper() {
  if (helper_ == nullptr) {
    helper_ = MemFdHelper::create(mem_fd_.get());
    if (helper_ == nullptr)
      return control_error(EMFILE, "hostnicd has no thread or descriptor left for this memory");
    channel_->mem_fd_helper.store(helper_.get(), std::memory_order_release);
  }
  return helper_.get();
}

// Replaces the region of this key by another one. Who uses the key meanwhile finds none.
Expected<uint32_t, ControlError> ClientSession::replace(uint32_t key, MrTable::Init init) {
  const std::vector<uint32_t> keys = {key};
  const ControlError bound{EBUSY, "memory windows are bound to the region"};
  if (daemon_.regions().has_windows(key, info_.client_id)) return Unexpected(bound);
  if (!daemon_.regions().invalidate(keys, info_.client_id))
    return control_error(EINVAL, "no memory region of this client has that key");
  const bool free = daemon_.regions().wait_unreferenced(keys, kReferenceLimit);
  // A bind may have been executed just before the key was gone.
  if (!free || daemon_.regions().has_windows(key, info_.client_id)) {
    daemon_.regions().restore(key);
    if (free) return Unexpected(bound);
    return control_error(EBUSY, "packets still refer to the memory (are the NICs stopped?)");
  }
  forget_filled(key);
  const std::vector<MappedPiece> pieces = daemon_.regions().replace(key, std::move(init));
  memory_->unmap(pieces);
  note_deregistration(pieces);
  daemon_.clients().note_registration(info_.client_id, 1, 0, 0);
  return key;
}

void ClientSession::note_deregistration(const std::vector<MappedPiece>& pieces) {
  int64_t mapped = 0, mem_fd = 0;
  for (const MappedPiece& piece : pieces)
    (piece.by_mem_fd() ? mem_fd : mapped) -= static_cast<int64_t>(piece.length_bytes);
  daemon_.clients().drop_pieces(info_.client_id, pieces.size());
  daemon_.clients().note_registration(info_.client_id, -1, mapped, mem_fd);
}

bool ClientSession::handle_deregister(const DeregisterMr& call) {
  const std::vector<uint32_t> keys = {call.lkey};
  const auto lingering = std::ranges::find(lingering_keys_, call.lkey);
  if (lingering == lingering_keys_.end()) {
    if (daemon_.regions().has_windows(call.lkey, info_.client_id))
      return refuse({EBUSY, "memory windows are bound to the region"});
    if (!daemon_.regions().invalidate(keys, info_.client_id))
      return refuse({EINVAL, "no memory region of this client has that key"});
  }
  if (!daemon_.regions().wait_unreferenced(keys, kReferenceLimit)) {
    // The memory is out of use but can't be given back. It stays mapped until the client asks once
    // more, or its session ends.
    if (lingering == lingering_keys_.end()) lingering_keys_.push_back(call.lkey);
    return refuse({EBUSY, "packets still refer to the memory (are the NICs stopped?)"});
  }
  if (lingering != lingering_keys_.end()) lingering_keys_.erase(lingering);
  forget_filled(call.lkey);
  const std::vector<MappedPiece> pieces = daemon_.regions().reclaim(call.lkey);
  memory_->unmap(pieces);
  note_deregistration(pieces);
  return send_reply(socket_.get(), 0, ControlReply{});
}

bool ClientSession::handle_change(const MemoryChange& call) {
  MemFdHelper* helper = nullptr;
  if (call.kind == MemoryChangeKind::kOutside && !is_owner(info_.uid)) {
    auto made = make_helper();
    if (!made) return refuse(made.error());
    helper = *made;
  }
  const auto left =
      static_cast<int64_t>(daemon_.regions().follow(*unit_->lcore, info_.client_id, call, helper));
  if (left != 0) daemon_.clients().note_registration(info_.client_id, 0, -left, left);
  return send_reply(socket_.get(), 0, ControlReply{});
}

// Takes word that a region's late pieces are filled. Bringing their pages may take seconds, in
// which the client may want other things.
bool ClientSession::handle_filled(const MemoryFilled& call) {
  auto late = daemon_.regions().late_pieces(call.lkey, info_.client_id);
  if (!late) return refuse({EINVAL, "no memory region of this client has that key"});
  if (auto filled = memory_->check_filled(*late); !filled) return refuse({EAGAIN, filled.error()});
  if (!late->empty() && std::ranges::find(filled_, call.lkey, &Filled::lkey) == filled_.end())
    filled_.push_back({call.lkey, std::move(*late)});
  return send_reply(socket_.get(), 0, ControlReply{});
}

// Brings some pages of what is filled. Once all of a region are there its late pieces become
// ordinary ones. Where that can't be had they stay what they are, which serves as well.
void ClientSession::bring_filled() {
  Filled& filled = filled_.front();
  const MappedPiece& piece = filled.late.back();
  const uint64_t brought = ClientMemory::populate_step(piece, filled.done_bytes);
  filled.done_bytes += brought;
  if (brought != 0 && filled.done_bytes < piece.length_bytes) return;
  filled.done_bytes = 0;
  filled.late.pop_back();
  if (brought != 0 && !filled.late.empty()) return;
  if (brought != 0) daemon_.regions().end_lateness(*unit_->lcore, filled.lkey, info_.client_id);
  filled_.pop_front();
}

// A region goes, or becomes another one.
void ClientSession::forget_filled(uint32_t lkey) {
  std::erase_if(filled_, [lkey](const Filled& filled) { return filled.lkey == lkey; });
}

bool ClientSession::handle_name(const NameHost& call) {
  if (named_hosts_.size() >= kMaxNamedHosts)
    return refuse({ENOMEM, fmt::format("a program names {} hosts by IPv6 addresses at most",
                                       kMaxNamedHosts)});
  const auto number = daemon_.addresses().acquire(call.address, limited_user(info_.uid));
  if (!number) {
    daemon_.clients().note_limit(info_.client_id,
                                 "the IPv6 addresses that its user or all may name");
    return refuse({ENOMEM, "no room for more IPv6 addresses in this hostnicd, or of this user"});
  }
  named_hosts_.push_back(*number);
  daemon_.clients().note_named_host(info_.client_id);
  return send_reply(socket_.get(), 0, ControlReply{}, bytes_of(NameHostReply{raw(*number)}));
}

// Says why, of a queue pair of this client's.
bool ClientSession::handle_explain(const ExplainRequest& request) {
  const std::string whole = explain(daemon_, *unit_, info_.client_id, request);
  const std::string_view text = limited_text(whole);
  if (!text.empty())
    note_error(fmt::format("{} QP {:#x} of {} (pid {}): {}", unit_->plan.settings.name, request.qpn,
                           info_.program, info_.pid, text));
  return send_reply(socket_.get(), 0, ControlReply{}, std::as_bytes(std::span(text)));
}

// Tells of the open device alone, as it is now.
bool ClientSession::handle_list() {
  ControlReply reply;
  reply.count = 1;
  return send_reply(socket_.get(), 0, reply, bytes_of(device()));
}

}  // namespace hostnic
