// SPDX-License-Identifier: BSD-3-Clause
// Which of a client's regions have sole addresses (protocol/hostif/descriptors.h): no two of them
// lead to the same byte by different addresses. The first region in a file says at which address
// the file begins, if all of it was mapped; whatever would put that elsewhere is not sole. Mirrors
// are such files, with each page at its address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>

#include "dataplane/memory/client_memory.h"

namespace hostnic {

// Belongs to one client, whose protection domains are nobody else's. Control thread.
class SoleAddresses {
 public:
  // A client that maps more files than this has no more sole addresses: it could have millions.
  static constexpr size_t kMaxFiles = 1024;

  // Notes the pieces of a region whose addresses are the client's own. Returns whether they are
  // sole ones. What is reached by the mem fd is not, because nobody knows what is mapped there.
  bool note(std::span<const MappedPiece> pieces);
  // Notes that memory has moved. Keys lead to it by its old addresses, so that no region that is
  // registered from now on has sole ones.
  void note_move() { has_moved_ = true; }

 private:
  // The client's address of each file's beginning, by the file's number. A number that is given
  // back and used again keeps it: what is sole for all of them is so for the one that has it.
  std::unordered_map<uint32_t, VirtualAddress> beginnings_;
  bool has_moved_ = false;
};

}  // namespace hostnic
