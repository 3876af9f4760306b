// Bytes between packets and application memory: by memcpy where the memory is mapped, through the
// client's mem fd elsewhere.
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "dataplane/memory/mem_fd.h"
#include "dataplane/nic/impl.h"

namespace hostnic {
namespace {

// The final word of a message is stored last and in one piece: programs poll the last bytes (rule
// 11).
void copy_tail(std::byte* to, const std::byte* from, size_t length_bytes) {
  const auto end = reinterpret_cast<uintptr_t>(to) + length_bytes;
  const size_t head = std::max((end - 1) & ~uintptr_t{7}, reinterpret_cast<uintptr_t>(to)) -
                      reinterpret_cast<uintptr_t>(to);
  std::memcpy(to, from, head);
  std::atomic_thread_fence(std::memory_order_release);
  const size_t rest = length_bytes - head;
  to += head;
  from += head;
  if (rest == 8) {
    uint64_t word;
    std::memcpy(&word, from, 8);
    __atomic_store_n(reinterpret_cast<uint64_t*>(to), word, __ATOMIC_RELEASE);
    return;
  }
  for (size_t i = 0; i < rest; ++i) {
    __atomic_store_n(reinterpret_cast<uint8_t*>(to) + i, static_cast<uint8_t>(from[i]),
                     __ATOMIC_RELEASE);
  }
}

// Calls visit(piece, offset in piece, bytes) for each piece of [addr, addr + length). The range
// lies inside the region.
template <class Visit>
bool for_each_piece(const MemoryRegionEntry& region, uint64_t addr, uint64_t length_bytes,
                    Visit&& visit) {
  for (const MappedPiece& piece : region.pieces) {
    if (length_bytes == 0) break;
    if (addr - piece.va >= piece.length_bytes) continue;
    const uint64_t offset = addr - piece.va;
    const uint64_t part = std::min(length_bytes, piece.length_bytes - offset);
    if (!visit(piece, offset, part)) return false;
    addr += part;
    length_bytes -= part;
  }
  return true;
}

// A range that the client has unmapped is its own loss: the request fails. A client whose address
// space is gone is dropped.
bool good_transfer(MemoryRegionEntry& region, MemFdResult result) {
  if (result == MemFdResult::kGone && region.client_gone != nullptr) {
    region.client_gone->store(true, std::memory_order_release);
  }
  return result == MemFdResult::kOk;
}

bool write_through(MemoryRegionEntry& region, VirtualAddress va, std::span<const std::byte> bytes) {
  return good_transfer(region, write_client(region.mem_fd, va, bytes));
}

MemoryRegionEntry* check_bounds(MemoryRegionEntry* region, uint64_t iova, uint64_t length_bytes,
                                uint32_t access) {
  if (region == nullptr || (region->access & access) != access) return nullptr;
  const uint64_t offset = iova - region->iova;
  if (offset > region->length_bytes || length_bytes > region->length_bytes - offset) return nullptr;
  return region;
}

}  // namespace

MemoryRegionEntry* Nic::Impl::local_region(QpContext& qp, uint32_t key, uint64_t addr,
                                           uint64_t length_bytes, uint32_t access) {
  MemoryRegionEntry* region = mrs.find(key);
  if (region == nullptr || region->client_id != qp.client->settings().client_id ||
      region->pd != qp.pd)
    return nullptr;
  return check_bounds(region, addr, length_bytes, access);
}

MemoryRegionEntry* Nic::Impl::remote_region(QpContext& qp, uint32_t key, uint64_t va,
                                            uint64_t length_bytes, uint32_t access) {
  if ((qp.access & access) != access) return nullptr;
  return local_region(qp, key, va, length_bytes, access);
}

Nic::Impl::PlaceResult Nic::Impl::place(const PlaceRequest& request, MemoryRegionEntry& region,
                                        uint64_t iova, std::span<const std::byte> bytes) {
  const uint64_t addr = iova + region.va_delta;
  // All ranges are remembered before the first byte is written, or none.
  if (request.ahead) {
    if (range_pool.available() < region.pieces.size()) return PlaceResult::kNoRoom;
    for_each_piece(region, addr, bytes.size(),
                   [&](const MappedPiece& piece, uint64_t offset, uint64_t part) {
                     return request.space.placed_ahead.add(range_pool, request.psn, piece.space_id,
                                                           piece.space_offset + offset, part);
                   });
  }
  const std::byte* from = bytes.data();
  bool memory_gone = false;
  const auto write = [&](const MappedPiece& piece, uint64_t offset, const std::byte* source,
                         uint64_t part, bool tail) {
    if (piece.host == nullptr) {
      counters.add(Counter::bytes_copied_mem_fd, part);
      memory_gone |= !write_through(region, piece.va + offset, {source, part});
    } else {
      counters.add(Counter::bytes_copied_mapped, part);
      if (tail) {
        copy_tail(piece.host + offset, source, part);
      } else {
        std::memcpy(piece.host + offset, source, part);
      }
    }
  };
  // Later PSNs may have written here already, also when this one is ahead of the front itself.
  const bool late = !request.space.placed_ahead.empty() &&
                    !(request.ahead && request.space.window.beyond_all(request.psn));
  for_each_piece(region, addr, bytes.size(),
                 [&](const MappedPiece& piece, uint64_t offset, uint64_t part) {
                   const bool tail = request.tail && from + part == bytes.data() + bytes.size();
                   if (!late) {
                     write(piece, offset, from, part, tail);
                   } else {
                     const uint64_t start = piece.space_offset + offset;
                     const uint64_t skipped = request.space.placed_ahead.for_each_unwritten(
                         range_pool, request.psn, piece.space_id, start, part,
                         [&](uint64_t at, uint64_t length_bytes) {
                           write(piece, offset + (at - start), from + (at - start), length_bytes,
                                 tail && at + length_bytes == start + part);
                         });
                     counters.add(Counter::late_bytes_skipped, skipped);
                   }
                   from += part;
                   return !memory_gone;
                 });
  return memory_gone ? PlaceResult::kMemoryGone : PlaceResult::kDone;
}

// Places bytes of a message at `offset` into a scatter list of the QP's own memory.
Nic::Impl::PlaceResult Nic::Impl::scatter(QpContext& qp, const PlaceRequest& request,
                                          std::span<const Sge> sges, uint64_t offset,
                                          std::span<const std::byte> bytes, LocalError& error) {
  for (const Sge& sge : sges) {
    if (bytes.empty()) break;
    if (offset >= sge.length_bytes) {
      offset -= sge.length_bytes;
      continue;
    }
    const uint64_t part = std::min<uint64_t>(bytes.size(), sge.length_bytes - offset);
    MemoryRegionEntry* region =
        local_region(qp, sge.lkey, sge.addr, sge.length_bytes, kAccessLocalWrite);
    if (region == nullptr) {
      error = LocalError::kProtection;
      return PlaceResult::kDone;
    }
    PlaceRequest part_request = request;
    part_request.tail = request.tail && part == bytes.size();
    const PlaceResult result = place(part_request, *region, sge.addr + offset, bytes.first(part));
    if (result != PlaceResult::kDone) return result;
    bytes = bytes.subspan(part);
    offset = 0;
  }
  if (!bytes.empty()) error = LocalError::kLength;
  return PlaceResult::kDone;
}

bool Nic::Impl::fetch(MemoryRegionEntry& region, uint64_t iova, std::byte* out,
                      uint32_t length_bytes) {
  return for_each_piece(
      region, iova + region.va_delta, length_bytes,
      [&](const MappedPiece& piece, uint64_t offset, uint64_t part) {
        bool good = true;
        if (piece.host != nullptr) {
          std::memcpy(out, piece.host + offset, part);
        } else {
          counters.add(Counter::bytes_copied_mem_fd, part);
          good = good_transfer(region, read_client(region.mem_fd, piece.va + offset, {out, part}));
        }
        out += part;
        return good;
      });
}

const std::byte* Nic::Impl::mapped_address(const MemoryRegionEntry& region, uint64_t iova,
                                           uint64_t length_bytes) {
  const std::byte* address = nullptr;
  for_each_piece(region, iova + region.va_delta, length_bytes,
                 [&](const MappedPiece& piece, uint64_t offset, uint64_t part) {
                   if (piece.host != nullptr && part == length_bytes) address = piece.host + offset;
                   return false;
                 });
  return address;
}

// On mapped memory with a host atomic, coherent with the CPU's; through the mem fd by reading and
// writing, which only this lcore does for this NIC (atomic_cap says IBV_ATOMIC_HCA; rule 19).
bool Nic::Impl::atomic_on_region(MemoryRegionEntry& region, const wire::Packet& p,
                                 uint64_t& before) {
  const uint64_t iova = p.atomic.va;
  const bool swap = p.opcode == wire::Opcode::kCompareSwap;
  if (auto* word =
          reinterpret_cast<uint64_t*>(const_cast<std::byte*>(mapped_address(region, iova, 8)));
      word != nullptr && reinterpret_cast<uintptr_t>(word) % 8 == 0) {
    if (swap) {
      before = p.atomic.compare;
      __atomic_compare_exchange_n(word, &before, p.atomic.swap_or_add, false, __ATOMIC_SEQ_CST,
                                  __ATOMIC_SEQ_CST);
    } else {
      before = __atomic_fetch_add(word, p.atomic.swap_or_add, __ATOMIC_SEQ_CST);
    }
    return true;
  }
  std::array<std::byte, 8> bytes;
  if (!fetch(region, iova, bytes.data(), bytes.size())) return false;
  std::memcpy(&before, bytes.data(), bytes.size());
  const uint64_t after = swap ? (before == p.atomic.compare ? p.atomic.swap_or_add : before)
                              : before + p.atomic.swap_or_add;
  std::memcpy(bytes.data(), &after, bytes.size());
  const uint64_t addr = iova + region.va_delta;
  return for_each_piece(
      region, addr, bytes.size(), [&](const MappedPiece& piece, uint64_t offset, uint64_t part) {
        const std::span<const std::byte> source(bytes.data() + (piece.va + offset - addr), part);
        if (piece.host == nullptr) return write_through(region, piece.va + offset, source);
        std::memcpy(piece.host + offset, source.data(), part);
        return true;
      });
}

}  // namespace hostnic
