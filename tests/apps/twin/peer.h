// SPDX-License-Identifier: BSD-3-Clause
// The peer: a process of its own with the other NIC, started before the program under test opens
// its device. It does what the program tells it to, by a socket, and shows it its bytes, which lie
// in memory that both map and that only the peer registers.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "tests/apps/twin/ends.h"

namespace hostnic::twin {

// Both have this much memory. The peer sends from the first half and receives into the second.
inline constexpr uint64_t kPeerBytes = 8 << 20;
inline constexpr uint64_t kPeerHalf = kPeerBytes / 2;

enum class Order : uint32_t {
  kConnect,      // .addresses
  kWrite,        // `length` bytes of `seed` to address, rkey
  kRead,         // into the second half
  kFetchAdd,     // a: what is added
  kCompareSwap,  // a: compared, b: put in its place
  kSend,
  kSendDatagram,
  kPostReceive,  // into the second half
  kReceived,     // waits for it
  kStream,       // WRITEs to, and READs from, `a` pages at address, until
  kStreamEnd,    // value: how many WRITEs, a: whether a READ found another byte
  kVmRead,       // process_vm_readv of process `a`, into the second half
  kVmWrite,
  kMemRead,  // the same by /proc/PID/mem
  kMemWrite,
  kStopChild,     // stops the next child of process `a` for `b` ms. Answers when it looks, and then
  kShareAtomics,  // maps and registers page `a` of the file that comes along, and answers with the
                  // place; adds 1, `b` times, to the word at address, rkey, and answers again
};

struct Command {
  Order order{};
  uint32_t rkey = 0;
  uint64_t address = 0, length = 0, seed = 0, a = 0, b = 0;
  Addresses addresses{};
};

struct Reply {
  int status = 0;  // of the completion; -1: none came. Of process_vm_*: errno
  uint64_t value = 0, a = 0;
  double longest_s = 0;  // that a stream's message took
  uint64_t address = 0;  // kConnect: of the second half, at the peer
  uint32_t rkey = 0;
  Addresses addresses{};
};

// What page `page` of a stream of `pages` contains after `writes` WRITEs.
uint64_t stream_seed(uint64_t seed, uint64_t pages, uint64_t page, uint64_t writes);

// The program's side.
class Peer {
 public:
  // Starts the process. `program` is this one.
  Peer(const char* program, const char* device);
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  void connect(Ends& mine);
  Reply ask(const Command& command);
  // With a descriptor, if that is not negative.
  void tell(const Command& command, int fd = -1);
  // False: no answer in time.
  bool answer(Reply& reply);
  uint8_t* bytes(bool second_half) const { return shared_ + (second_half ? kPeerHalf : 0); }
  uint64_t remote_address() const { return remote_address_; }
  uint32_t remote_key() const { return remote_key_; }
  bool streams = false;

 private:
  int socket_ = -1;
  pid_t process_ = -1;
  uint8_t* shared_ = nullptr;
  uint64_t remote_address_ = 0;
  uint32_t remote_key_ = 0;
};

// The peer's side; the exit status.
int run_peer(int socket, int memory, const char* device);

}  // namespace hostnic::twin
