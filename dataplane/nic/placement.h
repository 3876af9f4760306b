// Placement's short ways, inline: for impl.h's functions that every packet goes through.
#pragma once

#include "dataplane/nic/copy.h"
#include "dataplane/nic/impl.h"

namespace hostnic {

inline MemoryRegionEntry* Nic::Impl::local_region(QpContext& qp, uint32_t pd, uint32_t key,
                                                  uint64_t addr, uint64_t length_bytes,
                                                  uint32_t access) {
  MemoryRegionEntry* region = mrs.find(key);
  if (region == nullptr || region->client_id != qp.client->settings().client_id ||
      (region->pd != pd && !broken(Fault::domain_not_checked)))
    return nullptr;
  if ((region->access & access) != access && !broken(Fault::rights_not_checked)) return nullptr;
  const uint64_t offset = addr - region->iova;
  if (broken(Fault::bounds_not_checked)) return region;
  if (offset > region->length_bytes || length_bytes > region->length_bytes - offset) return nullptr;
  return region;
}

inline Nic::Impl::RemoteRange Nic::Impl::remote_range(QpContext& qp, uint32_t key, uint64_t va,
                                                      uint64_t length_bytes, uint32_t access) {
  if ((qp.access & access) != access && !broken(Fault::rights_not_checked)) return {};
  if ((key & kWindowKeyBit) != 0) return window_range(qp, key, va, length_bytes, access);
  return {local_region(qp, qp.pd, key, va, length_bytes, access), va};
}

inline void Nic::Impl::put_bytes(const PlaceRequest& request, std::byte* to,
                                 std::span<const std::byte> bytes, bool tail) {
  if (request.watched) {
    copy_between_memories(to, bytes.data(), bytes.size(), tail);
  } else if (tail) {
    copy_tail_to_memory(to, bytes.data(), bytes.size());
  } else {
    copy_to_memory(to, bytes.data(), bytes.size());
  }
}

// Nearly always: in order, into memory that is mapped in one piece. False: nothing has happened.
[[gnu::always_inline]] inline bool Nic::Impl::place_at_once(const PlaceRequest& request,
                                                            MemoryRegionEntry& region,
                                                            uint64_t iova,
                                                            std::span<const std::byte> bytes) {
  if (request.ahead || !request.space.early_writes.empty() || region.pieces.size() != 1)
    return false;
  const MappedPiece& piece = region.pieces.front();
  const uint64_t offset = iova + region.va_delta - piece.va;
  if (piece.host == nullptr || offset > piece.length_bytes ||
      bytes.size() > piece.length_bytes - offset)
    return false;
  counters.add(Counter::bytes_copied_mapped, bytes.size());
  put_bytes(request, piece.host + offset, bytes, request.tail);
  return true;
}

// The payload of a message's packets is the path MTU, and at most that in its last one (InfiniBand
// 9.7.2.1): with another path MTU at the sender, the two ends would count PSNs by different
// lengths.
[[gnu::always_inline]] inline bool Nic::Impl::fits_path_mtu(const QpContext& qp,
                                                            const wire::Packet& p) {
  return (p.more ? p.payload_bytes == qp.mtu_bytes : p.payload_bytes <= qp.mtu_bytes) ||
         broken(Fault::path_mtu_not_checked);
}

// The front, if it is a WRITE that may be placed at once. False: nothing has happened, and the
// request has still to be checked.
inline bool Nic::Impl::place_write(QpContext& qp, const wire::Packet& p,
                                   std::span<const std::byte> payload) {
  if (p.opcode != wire::Opcode::kWriteOnly || payload.empty() || !fits_path_mtu(qp, p))
    return false;
  const RemoteRange range =
      remote_range(qp, p.reth.key, p.reth.va, payload.size(), kAccessRemoteWrite);
  return range.region != nullptr &&
         place_at_once({qp.requests, p.psn, /*ahead=*/false, /*tail=*/!p.more}, *range.region,
                       range.iova, payload);
}

}  // namespace hostnic
