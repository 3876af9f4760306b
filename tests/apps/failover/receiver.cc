// SPDX-License-Identifier: BSD-3-Clause
// The side that gets the chunks, and says of each that it is there: by a WRITE into the sender's
// memory, by the rail that it came by or the other one. It compares all bytes at the end.
#include <poll.h>

#include <cstdio>
#include <vector>

#include "tests/apps/failover/rail.h"

namespace hostnic::failover {
namespace {

class Receiver {
 public:
  Receiver(int socket, bool failover) : socket_(socket) {
    memory_.back() = 1;  // what says that a chunk is there
    open_rails(rails_, kRails, memory_, failover, socket);
  }
  int run();

 private:
  static constexpr size_t kNotSaid = kRails, kSaid = kRails + 1;
  void look();
  void look_at(size_t rail);
  void say_what_is_there();
  bool all_said() const;
  bool is_right() const;

  int socket_;
  std::array<Rail, kRails> rails_;
  std::array<bool, kRails> told_{};
  std::vector<uint8_t> memory_ = std::vector<uint8_t>(kChunks * kChunkBytes + kChunks);
  std::vector<bool> here_ = std::vector<bool>(kChunks);
  std::vector<size_t> said_by_ = std::vector<size_t>(kChunks, kNotSaid);
};

void Receiver::look_at(size_t rail) {
  ibv_wc completion{};
  while (rails_[rail].next(completion)) {
    if (completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
      here_[completion.imm_data % kChunks] = true;
      rails_[rail].post_receive();
    } else {
      said_by_[completion.wr_id % kChunks] = kSaid;
    }
  }
  if (rails_[rail].works() || told_[rail]) return;
  told_[rail] = true;
  send_word(socket_, {Word::kRailDown, static_cast<uint32_t>(rail)});
  for (size_t& by : said_by_)
    if (by == rail) by = kNotSaid;
}

void Receiver::say_what_is_there() {
  for (size_t chunk = 0; chunk < kChunks; ++chunk) {
    if (!here_[chunk] || said_by_[chunk] != kNotSaid) continue;
    const size_t rail = rails_[chunk % kRails].works() ? chunk % kRails : (chunk + 1) % kRails;
    said_by_[chunk] = rail;
    rails_[rail].write(&memory_.back(), 1, kChunks * kChunkBytes + chunk, chunk, nullptr);
  }
}

void Receiver::look() {
  Word word;
  while (next_word(socket_, word))
    if (word.kind == Word::kRailDown) rails_[word.rail].fail("the peer's end");
  for (size_t rail = 0; rail < kRails; ++rail) look_at(rail);
  say_what_is_there();
  poll(nullptr, 0, 1);
}

bool Receiver::all_said() const {
  for (const size_t by : said_by_)
    if (by != kSaid) return false;
  return true;
}

bool Receiver::is_right() const {
  for (size_t chunk = 0; chunk < kChunks; ++chunk)
    for (size_t i = 0; i < kChunkBytes; ++i)
      if (memory_[chunk * kChunkBytes + i] != byte_of(chunk, i)) return false;
  return true;
}

int Receiver::run() {
  while (!all_said()) {
    if (!rails_[0].works() && !rails_[1].works()) return 3;
    look();
  }
  const bool right = is_right();
  printf("receiver: %s\n", right ? "all bytes are right" : "bytes are wrong");
  send_word(socket_, {right ? Word::kRight : Word::kWrong, 0});
  for (Rail& rail : rails_) rail.close();
  return right ? 0 : 2;
}

}  // namespace

int receive_all(int socket, bool failover) { return Receiver(socket, failover).run(); }

}  // namespace hostnic::failover
