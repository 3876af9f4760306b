// SPDX-License-Identifier: BSD-3-Clause
// hostnicd's view of one client's registered memory: maps what can be mapped, and says for every
// byte where it is. Nothing here is called by lcores; they use the MappedPieces.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dataplane/memory/page_tables.h"
#include "dataplane/memory/user_shares.h"
#include "protocol/expected.h"
#include "protocol/hostif/memory_region.h"
#include "protocol/types.h"

namespace hostnic {

// A run of registered bytes that are contiguous in the client and, where mapped, in hostnicd.
//
// (space_id, space_offset) is the physical identity of the bytes: two pieces, of whatever
// registration or client, alias exactly where their space_id is equal and their offsets overlap.
struct MappedPiece {
  VirtualAddress va = 0;  // address in the client
  uint64_t length_bytes = 0;
  // Null: reached only through the client's mem fd, at offset va; or late.
  std::byte* host = nullptr;
  uint32_t space_id = 0;
  uint64_t space_offset = 0;
  bool writable = true;     // false: host is mapped PROT_READ
  bool gone = false;        // the client said that this memory is no longer there; host is null
  uint8_t page_shift = 12;  // of the file's pages
  // What was registered late (memory_region.h) has these: where it lies in hostnicd, and its
  // slices' states, which the client writes as well. Once all of it is filled, host is set, too.
  std::byte* late_host = nullptr;
  uint8_t* slices = nullptr;
  uint64_t slice_lead_bytes = 0;  // so much of the first slice lies before the piece
  // The client's memory may change its place after the registration (MemoryChangeKind).
  uint64_t moved_by = 0;           // reached by the mem fd: add to va for where it is now
  std::byte* left_host = nullptr;  // it was here in hostnicd, which packets under way still read
  bool in_mirror = false;          // it was registered as a part of the mirror
  bool is_rest = false;            // cut off a piece, which gives the mapping back for it

  bool is_late() const { return host == nullptr && late_host != nullptr; }
  bool by_mem_fd() const { return host == nullptr && late_host == nullptr; }
  std::byte* mapping() const {
    return host != nullptr ? host : late_host != nullptr ? late_host : left_host;
  }
  // The client's address of a byte, for the mem fd.
  VirtualAddress client_address(uint64_t offset) const { return va + moved_by + offset; }
};

// Names files (device, inode) by small numbers. It is shared by all clients of a hostnicd, so that
// two clients with the same shared memory get the same space. It is thread-safe.
class MemorySpaces {
 public:
  // The number of a file, with one reference; a new number when nobody has one.
  static uint32_t acquire(uint64_t device, uint64_t inode);
  static void add_user(uint32_t space_id);  // one more reference to a number in use
  static void release(uint32_t space_id);
};

// What a client's user may have, and how far he is trusted.
struct MemoryTerms {
  // The user, if he is another than hostnicd's own and root: pages that he takes out of what he has
  // registered are not made anew (hole_guard.h).
  std::optional<uint32_t> stranger = {};
  UserShares* mappings = nullptr;  // of all clients; null: not counted. Outlives the memory.
  std::shared_ptr<PageTableBudget> page_tables = nullptr;  // the user's; null: not counted
};

// Whether anything of the pieces' may have been replaced (sigbus.h). [any thread]
bool any_replaced(std::span<const MappedPiece> pieces);

// Maps the memory of one device context. One thread at a time uses it; those of several clients
// don't wait for each other.
class ClientMemory {
 public:
  // `mirror_fd` (see check_mirror) is duplicated; the caller keeps its own. `cut_off` is set by the
  // SIGBUS guard when the client cuts off memory it registered; it must outlive this object.
  ClientMemory(int mirror_fd, std::atomic<bool>* cut_off, const MemoryTerms& terms = {});
  ~ClientMemory();  // unmaps everything; no lcore may still use a piece
  ClientMemory(const ClientMemory&) = delete;
  ClientMemory& operator=(const ClientMemory&) = delete;

  // Maps one registration. `regions` and `fds` come from the client and are checked: order and
  // gaps, overflow, alignment, kind and size of the files, that the client populated the pages (an
  // lcore must not take page faults, nor hostnicd pay for them). The caller has compared the range
  // with the request (covers_exactly) and closes `fds` afterwards. `need_write` says that the NIC
  // will write here, so a file that was opened read-only is refused. `revocable` says that a page
  // which a file has lost is not to be made anew, where that can be had (hole_guard.h). Pieces are
  // sorted by va and contiguous. An error is one line; nothing stays mapped.
  Expected<std::vector<MappedPiece>, std::string> map(std::span<const MemoryRegion> regions,
                                                      std::span<const int> fds,
                                                      bool need_write = true,
                                                      bool revocable = false);

  // The errno value of the map() that failed last: ENOMEM where hostnicd lacked something, address
  // space for one, and EINVAL where something was wrong with the request.
  int refusal() const { return refusal_; }
  // The limit of the user's that the map() that failed last has met, for the log; empty: none.
  const std::string& limit_met() const { return limit_met_; }

  // Brings the pages of what map() returned, but for late pieces: an lcore must not take page
  // faults. An error is one line; the pieces stay mapped.
  static Expected<void, std::string> populate(std::span<const MappedPiece> pieces);

  // Says what of late pieces is not filled: an error of one line.
  Expected<void, std::string> check_filled(std::span<const MappedPiece> late_pieces) const;
  // Brings the pages of a late piece that is filled, from `offset` on, at most kMappingStepBytes of
  // them. Returns how many bytes; 0 on failure.
  static uint64_t populate_step(const MappedPiece& late_piece, uint64_t offset);

  // Says again that memory is cut off if some of the pieces' is: who looked at the mark when that
  // was found may not have known a key that leads to them. Called once there is one.
  void look_again(std::span<const MappedPiece> pieces) const;

  // Gives back what map() returned, after no lcore or mbuf refers to it any more.
  void unmap(std::span<const MappedPiece> pieces);

  size_t mapping_count() const { return by_host_.size(); }

 private:
  struct Mapping;
  struct Source;
  using Error = Unexpected<std::string>;

  Expected<void, std::string> map_region(const MemoryRegion& region, std::span<const int> fds,
                                         bool need_write, bool revocable,
                                         std::vector<MappedPiece>& pieces);
  Expected<Source, std::string> open_file_source(const MemoryRegion& region,
                                                 std::span<const int> fds, bool need_write) const;
  Expected<Source, std::string> open_fill_map(const MemoryRegion& region,
                                              std::span<const int> fds) const;
  Expected<void, std::string> map_late(const MemoryRegion& region, std::span<const int> fds,
                                       std::vector<MappedPiece>& pieces);
  Expected<void, std::string> map_slices(const Source& fill_map, uint64_t offset,
                                         MappedPiece& piece);
  Expected<void, std::string> map_source(const Source& source, const MemoryRegion& region,
                                         std::vector<MappedPiece>& pieces);
  Source mirror_source() const;
  Expected<Mapping*, std::string> acquire(const Source& source, uint64_t offset, uint64_t end);
  Expected<Mapping*, std::string> create(const Source& source, uint64_t offset, uint64_t end);
  Expected<Mapping*, std::string> map_file(const Source& source, uint64_t offset, uint64_t end);
  Expected<void, std::string> use_part(Mapping& mapping, uint64_t offset, uint64_t end);
  void release(std::byte* host);

  int mirror_fd_ = -1;
  uint32_t mirror_space_ = 0;
  int refusal_ = EINVAL;
  std::string limit_met_;
  std::atomic<bool>* cut_off_;
  MemoryTerms terms_;
  std::map<std::byte*, std::unique_ptr<Mapping>> by_host_;  // key: first byte of the mapping
};

}  // namespace hostnic
