// SPDX-License-Identifier: BSD-3-Clause
// What each planted mistake begins with: a device, and two queue pairs of it that are connected to
// each other. Plain verbs, nothing of hostnic's; a call that fails unexpectedly ends the program.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "tests/support/verbs_pair.h"

namespace hostnic::planted {

inline constexpr size_t kBytes = 8192;  // of each end's memory

[[noreturn]] void die(const char* what);
template <class T>
T* good(T* object, const char* what) {
  if (object == nullptr) die(what);
  return object;
}
inline void good(int result, const char* what) {
  if (result != 0) die(what);
}

// One of the two queue pairs, with a region of its own.
struct End {
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;
  ibv_mr* mr = nullptr;
  std::byte* memory = nullptr;

  uint64_t address(size_t offset = 0) const { return reinterpret_cast<uint64_t>(memory) + offset; }
  ibv_sge sge(uint32_t bytes, size_t offset = 0) const {
    return {address(offset), bytes, mr->lkey};
  }
  // A request with one SGE; returns what ibv_post_send does.
  int send(ibv_wr_opcode opcode, const ibv_sge& sge, const End* to = nullptr,
           unsigned flags = IBV_SEND_SIGNALED, size_t remote_offset = 0) const;
  int receive(const ibv_sge& sge) const;
  // The next completion, within 20 s; else the program ends.
  ibv_wc completion() const;
};

struct Stage {
  ibv_context* context = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_pd* pd = nullptr;
  End here, there;
  verbs::ConnectOptions how;  // of both
  int rd_atomic_there = -1;   // -1: as `how` says
  ibv_qp_init_attr wanted{};
  int access = IBV_ACCESS_LOCAL_WRITE;
  int cq_entries = 64;

  Stage();
  // Devices are opened, and nothing is made, by the constructor.
  void make();
  void connect();
  void ready() { make(), connect(); }
  // Everything is destroyed that is there.
  void end();
};

using Mistake = void (*)(Stage& stage);
using Table = std::map<std::string, Mistake>;
void add_memory(Table& table);   // keys, regions, contents
void add_queues(Table& table);   // requests, completions, states
void add_objects(Table& table);  // what is destroyed when, events, forks
void add_builder(Table& table);  // ibv_wr_*

}  // namespace hostnic::planted
