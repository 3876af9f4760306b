// SPDX-License-Identifier: BSD-3-Clause
// Puts out of a buffer that comes from a pool, by two queue pairs (lanes) in turn. The mistake: the
// buffer is given back when the last put has completed, which says nothing of the other lane's. Its
// next user fills it at once; a put that has not been read by then has that one's bytes. Puts have
// time enough to drain while the program does something else, so that all is well nearly always.
#include <array>
#include <cstdio>
#include <vector>

#include "tests/apps/races/lane.h"

namespace hostnic::races {
namespace {

constexpr size_t kRounds = 8, kLanes = 2, kPuts = 4, kPutBytes = 2048;
constexpr size_t kBufferBytes = kPuts * kPutBytes;

// Buffers that are used again, the one that was given back last first.
class Pool {
 public:
  Pool() { free_.push_back(memory_); }
  std::span<uint8_t> take() {
    const std::span<uint8_t> buffer = free_.back();
    free_.pop_back();
    return buffer;
  }
  void give_back(std::span<uint8_t> buffer) { free_.push_back(buffer); }
  std::span<uint8_t> memory() { return memory_; }

 private:
  std::vector<uint8_t> memory_ = std::vector<uint8_t>(kBufferBytes);
  std::vector<std::span<uint8_t>> free_;
};

using Lanes = std::array<Lane*, kLanes>;

uint64_t id_of(size_t round, size_t put) { return round * kPuts + put; }
// The last put of a lane in a round.
uint64_t last_of(size_t round, size_t lane) { return id_of(round, kPuts - kLanes + lane); }

void put_all(const Lanes& lanes, Pool& pool, size_t round, bool fixed) {
  const std::span<uint8_t> buffer = pool.take();
  for (size_t i = 0; i < kBufferBytes; ++i) buffer[i] = content(round, i);
  for (size_t put = 0; put < kPuts; ++put)
    lanes[put % kLanes]->write(buffer.subspan(put * kPutBytes, kPutBytes),
                               round * kBufferBytes + put * kPutBytes, id_of(round, put));
  work_a_while();
  for (size_t lane = fixed ? 0 : kLanes - 1; lane < kLanes; ++lane)
    lanes[lane]->wait_for(last_of(round, lane));
  pool.give_back(buffer);
}

size_t wrong_rounds(std::span<const uint8_t> target) {
  size_t wrong = 0;
  for (size_t round = 0; round < kRounds; ++round) {
    size_t at = 0;
    while (at < kBufferBytes && target[round * kBufferBytes + at] == content(round, at)) ++at;
    if (at == kBufferBytes) continue;
    ++wrong;
    fprintf(stderr, "hostnic-races: round %zu is wrong from byte %zu on\n", round, at);
  }
  return wrong;
}

}  // namespace

int run_drain(const Options& options) {
  Pool pool;
  std::vector<uint8_t> target(kRounds * kBufferBytes);
  Lane first(options, 0, pool.memory(), target), second(options, 0, pool.memory(), target);
  const Lanes lanes{&first, &second};
  for (size_t round = 0; round < kRounds; ++round) put_all(lanes, pool, round, options.fixed);
  if (!options.fixed) first.wait_for(last_of(kRounds - 1, 0));
  const size_t wrong = wrong_rounds(target);
  printf("%zu rounds, %zu wrong\n", kRounds, wrong);
  return wrong == 0 ? 0 : kExitWrong;
}

}  // namespace hostnic::races
