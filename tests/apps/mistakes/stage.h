// SPDX-License-Identifier: BSD-3-Clause
// What each staged mistake begins with: both devices of a lab, a queue pair of each, connected to
// each other, and a buffer of each. A mistake changes what it needs to be wrong before connect().
// Plain verbs, nothing of hostnic's; a call that fails unexpectedly ends the program.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "tests/support/verbs_pair.h"

namespace hostnic::mistakes {

inline constexpr size_t kBufferBytes = 65536;
// What a side lets the other do, unless the mistake is about that.
inline constexpr int kAllAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                                  IBV_ACCESS_MW_BIND;

// Says on stdout a number of this run that the line about the mistake has to have.
void fact(const char* name, uint64_t value);
void fact(const char* name, const char* value);
[[noreturn]] void die(const char* what);
template <class T>
T* good(T* object, const char* what) {
  if (object == nullptr) die(what);
  return object;
}
inline void good(int result, const char* what) {
  if (result != 0) die(what);
}

// One device and what a program has of it.
struct Side {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_qp* qp = nullptr;
  ibv_mr* mr = nullptr;
  ibv_gid gid{};
  std::byte* memory = nullptr;
  verbs::ConnectOptions how;
  ibv_qp_init_attr wanted{};
  int access = kAllAccess;  // of the region
  int cq_entries = 64;
  uint32_t psn = 1000;
  verbs::QpAddress peer;

  void open(const char* device);
  void make();  // cq, qp, region
  verbs::QpAddress address() const { return {.qpn = qp->qp_num, .psn = psn, .gid = gid}; }
  void to_init() { good(verbs::to_init(qp, how), "INIT"); }
  void to_rtr() { good(verbs::to_rtr(qp, how, peer), "RTR"); }
  void to_rts() { good(verbs::to_rts(qp, how, psn), "RTS"); }

  // One request with one element: `bytes` from the beginning of the buffer.
  ibv_sge sge(size_t bytes) const;
  int send(ibv_wr_opcode opcode, const ibv_sge& sge, uint64_t remote = 0, uint32_t rkey = 0,
           unsigned flags = IBV_SEND_SIGNALED) const;
  int receive(const ibv_sge& sge) const;
  // The next completion, within 20 s; else the program ends.
  ibv_wc completion() const;
  // What completions there are is taken, for this time.
  void poll_for_ms(int ms) const;
};

// Here and there: hnic0 with the mistake, in most cases, and hnic1.
struct Stage {
  Side here, there;

  Stage();
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;
  void make() { here.make(), there.make(); }
  // INIT, RTR, RTS of both sides, by what `how`, `psn` and `peer` say.
  void connect();
  // make() and connect().
  void ready() { make(), connect(); }
  // Posts a request here that is to fail, and takes its completion.
  void fails(ibv_wr_opcode opcode, size_t bytes, uint64_t remote, uint32_t rkey);
  uint64_t remote(size_t offset = 0) const {
    return reinterpret_cast<uint64_t>(there.memory) + offset;
  }
};

using Mistake = void (*)();
using Table = std::map<std::string, Mistake>;
void add_calls(Table& table);     // calls that are refused
void add_accesses(Table& table);  // requests that the peer or the own NIC refuses
void add_waits(Table& table);     // nothing happens
void add_objects(Table& table);   // objects that do not go together, or are in use
void add_silent(Table& table);    // what nobody is told of

}  // namespace hostnic::mistakes
