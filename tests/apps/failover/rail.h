// SPDX-License-Identifier: BSD-3-Clause
// One of the two connections of hostnic-failover: a device of its own on each side, and all that
// can go wrong with it. A rail that has failed is not used again.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace hostnic::failover {

inline constexpr size_t kRails = 2;
inline constexpr size_t kChunkBytes = 64 << 10;
inline constexpr size_t kChunks = 48;
inline constexpr int kPauseMs = 300;  // of a phase: rules can come by time

// What the two sides tell each other, by a socket.
struct Address {
  ibv_gid gid{};
  uint32_t qpn = 0;
  uint32_t rkey = 0;
  uint64_t va = 0;
  bool works = false;
};
struct Word {
  enum Kind : uint32_t { kRailDown, kAllHere, kRight, kWrong } kind = kRailDown;
  uint32_t rail = 0;
};

// The content of a chunk.
uint8_t byte_of(size_t chunk, size_t offset);

class Rail {
 public:
  // Opens device `index` and makes all objects, for `memory`.
  void open(size_t index, std::span<uint8_t> memory, bool failover);
  void connect(const Address& peer);
  Address address() const;
  bool works() const { return works_; }
  const std::string& reason() const { return reason_; }
  // Gives up on it, and says why. Without failover the program ends.
  void fail(const std::string& reason);

  // Looks for asynchronous events, and takes a completion. Returns false if there is none; a
  // failure is one of the rail.
  bool next(ibv_wc& completion);
  void post_receive();
  // WRITEs the peer's bytes at `remote_offset`, with an immediate where it is told.
  void write(const uint8_t* from, uint32_t length, size_t remote_offset, uint64_t id,
             const uint32_t* immediate);
  void close();

 private:
  void look_for_events();

  bool works_ = false, failover_ = true;
  size_t index_ = 0;
  std::string reason_;
  Address peer_;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_mr* mr_ = nullptr;
  ibv_qp* qp_ = nullptr;
};

// Opens the rails of one side (devices first_device and the next), and connects them with the
// peer's by the socket. Rails that fail are none.
void open_rails(std::array<Rail, kRails>& rails, size_t first_device, std::span<uint8_t> memory,
                bool failover, int socket);
void send_word(int socket, Word word);
// Returns false if there is none yet. The peer's end is an end of the program.
bool next_word(int socket, Word& word);

int send_all(int socket, bool failover);
int receive_all(int socket, bool failover);

}  // namespace hostnic::failover
