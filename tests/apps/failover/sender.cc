// SPDX-License-Identifier: BSD-3-Clause
// The side that has the chunks. Each goes by one of the rails and counts as there when the peer has
// said so; what a rail that has failed owes goes by the other one.
#include <poll.h>

#include <cstdio>
#include <vector>

#include "tests/apps/failover/rail.h"

namespace hostnic::failover {
namespace {

constexpr int kPaceMs = 8;

class Sender {
 public:
  Sender(int socket, bool failover) : socket_(socket) {
    for (size_t chunk = 0; chunk < kChunks; ++chunk)
      for (size_t i = 0; i < kChunkBytes; ++i) memory_[chunk * kChunkBytes + i] = byte_of(chunk, i);
    open_rails(rails_, 0, memory_, failover, socket);
  }
  int run();

 private:
  // By which rail a chunk has gone.
  static constexpr size_t kNotSent = kRails;
  bool is_there(size_t chunk) const {
    return *const_cast<volatile const uint8_t*>(&memory_[kChunks * kChunkBytes + chunk]) != 0;
  }
  void look(int milliseconds);
  void look_at(size_t rail);
  void send_next();
  bool any_left() const;

  int socket_;
  std::array<Rail, kRails> rails_;
  std::array<bool, kRails> told_{};
  std::vector<uint8_t> memory_ = std::vector<uint8_t>(kChunks * kChunkBytes + kChunks);
  std::vector<size_t> by_ = std::vector<size_t>(kChunks, kNotSent);
  size_t next_rail_ = 0, again_ = 0;
  Word::Kind verdict_ = Word::kRailDown;
};

void Sender::look_at(size_t rail) {
  ibv_wc completion{};
  while (rails_[rail].next(completion)) continue;
  if (rails_[rail].works() || told_[rail]) return;
  told_[rail] = true;
  send_word(socket_, {Word::kRailDown, static_cast<uint32_t>(rail)});
  for (size_t chunk = 0; chunk < kChunks; ++chunk)
    if (by_[chunk] == rail && !is_there(chunk)) {
      by_[chunk] = kNotSent;
      again_++;
    }
}

void Sender::look(int milliseconds) {
  for (int i = 0; i <= milliseconds; ++i) {
    Word word;
    while (verdict_ == Word::kRailDown && next_word(socket_, word)) {
      if (word.kind == Word::kRailDown)
        rails_[word.rail].fail("the peer's end");
      else
        verdict_ = word.kind;
    }
    for (size_t rail = 0; rail < kRails; ++rail) look_at(rail);
    if (i < milliseconds) poll(nullptr, 0, 1);
  }
}

bool Sender::any_left() const {
  for (size_t chunk = 0; chunk < kChunks; ++chunk)
    if (!is_there(chunk)) return true;
  return false;
}

void Sender::send_next() {
  for (size_t chunk = 0; chunk < kChunks; ++chunk) {
    if (by_[chunk] != kNotSent || is_there(chunk)) continue;
    next_rail_ = (next_rail_ + 1) % kRails;
    const size_t rail = rails_[next_rail_].works() ? next_rail_ : (next_rail_ + 1) % kRails;
    const auto immediate = static_cast<uint32_t>(chunk);
    by_[chunk] = rail;
    rails_[rail].write(&memory_[chunk * kChunkBytes], kChunkBytes, chunk * kChunkBytes, chunk,
                       &immediate);
    return;
  }
}

int Sender::run() {
  look(kPauseMs);
  while (any_left()) {
    if (!rails_[0].works() && !rails_[1].works()) {
      printf("no rail is left\n");
      return 3;
    }
    send_next();
    look(kPaceMs);
  }
  while (verdict_ == Word::kRailDown) look(1);
  printf("sender: %zu chunks, %zu sent again\n", kChunks, again_);
  for (Rail& rail : rails_) rail.close();
  return verdict_ == Word::kRight ? 0 : 2;
}

}  // namespace

int send_all(int socket, bool failover) { return Sender(socket, failover).run(); }

}  // namespace hostnic::failover
