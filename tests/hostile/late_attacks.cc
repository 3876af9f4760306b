// SPDX-License-Identifier: BSD-3-Clause
// Attacks by late regions (protocol/hostif/memory_region.h): fill maps that are none, slices that
// are never filled, and lies about both.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "tests/hostile/attacks.h"
#include "tests/hostile/raw_client.h"

namespace hostnic::hostile {
namespace {

constexpr uint64_t kPageBytes = 4096, kSlices = 4;
constexpr uint64_t kVa = uint64_t{1} << 45;  // nothing of ours is there

UniqueFd make_fill_map(int seals) {
  UniqueFd fd(memfd_create("fill-map", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  std::byte page[kPageBytes] = {};
  need(write(fd.get(), page, sizeof(page)) == sizeof(page), "writing a fill map");
  need(seals == 0 || fcntl(fd.get(), F_ADD_SEALS, seals) == 0, "sealing a fill map");
  return fd;
}

void* map_file(int fd, uint64_t offset, uint64_t length_bytes) {
  void* at = mmap(nullptr, length_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                  static_cast<off_t>(offset));
  need(at != MAP_FAILED, "mapping a file");
  return at;
}

class LateAttack {
 public:
  explicit LateAttack(const Target& target) : client_(target.socket, target.device) {
    need(client_.error() == 0, client_.message());
    qpn_ = client_.create_qp(0);
    need(qpn_ != 0 && client_.connect(qpn_, qpn_), "connecting a queue pair with itself");
    source_ = client_.register_memory(memory_, sizeof(memory_));
    need(source_.lkey != 0, client_.message());
  }

  RegisterMrReply register_late(int fill_map, uint64_t va = kVa, uint64_t state_at = 0) {
    const MemoryRegion region{va, kSlices * kSliceBytes, RegionKind::kMirrorLate, 0, state_at};
    return client_.register_memory(va, region.length_bytes, {&region, 1}, {&fill_map, 1});
  }
  uint32_t refusals() {
    const UniqueFd good = make_fill_map(F_SEAL_SHRINK | F_SEAL_GROW), unsealed = make_fill_map(0);
    uint32_t refused = 0;
    const auto count = [&](const RegisterMrReply& reply) { refused += reply.lkey == 0 ? 1 : 0; };
    count(register_late(unsealed.get()));
    count(register_late(good.get(), kVa + kPageBytes));
    count(register_late(good.get(), kVa, kPageBytes - kSlices + 1));
    count(register_late(good.get(), kVa, UINT64_MAX - 1));
    count(register_late(good.get(), uint64_t{1} << 48));
    return refused;
  }
  void set_states(SliceState state) { std::fill_n(states_, kSlices, static_cast<uint8_t>(state)); }
  // Half of them WRITE to the late region, the others from it.
  void use(const RegisterMrReply& late) {
    const auto here = reinterpret_cast<uint64_t>(memory_);
    for (uint64_t i = 0; i < 2 * kSlices; ++i) {
      const uint64_t there = kVa + i / 2 * kSliceBytes + kPageBytes;
      SendDescriptor d{};
      d.op = SendOp::kWrite;
      d.flags = kSendAckRequest;
      d.qpn = qpn_;
      d.psn = psn_++ & 0xffffff;
      d.length_bytes = d.message_bytes = kPageBytes;
      d.va = i % 2 == 0 ? there : here;
      d.key = i % 2 == 0 ? late.rkey : source_.rkey;
      d.sge_count = 1;
      d.sge0 = {i % 2 == 0 ? here : there, kPageBytes, i % 2 == 0 ? source_.lkey : late.lkey};
      client_.post(d);
    }
    client_.kick();
  }
  RegisterMrReply register_with_states() { return register_late(fill_map_.get()); }
  // What an honest client does, in one go.
  void fill() {
    void* pages = map_file(client_.mirror_fd(), kVa, kSlices * kSliceBytes);
    std::memset(pages, 1, kSlices * kSliceBytes);
    munmap(pages, kSlices * kSliceBytes);
  }
  RawClient& client() { return client_; }
  const RegisterMrReply& ordinary() const { return source_; }

 private:
  RawClient client_;
  alignas(kPageBytes) std::byte memory_[kPageBytes] = {};
  UniqueFd fill_map_ = make_fill_map(F_SEAL_SHRINK | F_SEAL_GROW);
  uint8_t* states_ = static_cast<uint8_t*>(map_file(fill_map_.get(), 0, kPageBytes));
  uint32_t qpn_ = 0, psn_ = 0;
  RegisterMrReply source_{};
};

}  // namespace

void late_memory(const Target& target) {
  target.become();
  LateAttack attack(target);
  RawClient& client = attack.client();
  const uint32_t refused = attack.refusals();
  attack.set_states(SliceState::kAside);
  const RegisterMrReply late = attack.register_with_states();
  need(late.lkey != 0, client.message());
  uint32_t unfilled = client.say_filled(late.lkey) == EAGAIN ? 1 : 0;
  attack.set_states(SliceState::kFilled);
  unfilled += client.say_filled(late.lkey) == EAGAIN ? 1 : 0;
  const uint32_t foreign = (client.say_filled(late.lkey ^ 1) == EINVAL ? 1 : 0) +
                           (client.say_filled(0xffffffff) == EINVAL ? 1 : 0);
  attack.fill();
  attack.use(late);
  const uint32_t filled = (client.say_filled(late.lkey) == 0 ? 1 : 0) +
                          (client.say_filled(late.lkey) == 0 ? 1 : 0) +
                          (client.say_filled(attack.ordinary().lkey) == 0 ? 1 : 0);
  need(client.deregister_memory(late.lkey) == 0, "deregistering late memory");
  fmt::print("refused {} of 5, unfilled {} of 2, foreign {} of 2, filled {} of 3\n", refused,
             unfilled, foreign, filled);
  std::fflush(stdout);
  // Regions that come and go, in all states, while they are used. A lie ends a stranger's device.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(target.seconds);
  for (uint32_t i = 0; std::chrono::steady_clock::now() < end && !client.dropped(); ++i) {
    attack.set_states(static_cast<SliceState>((i + 1) % 4));
    const RegisterMrReply region = attack.register_with_states();
    if (region.lkey == 0) break;
    attack.use(region);
    client.say_filled(region.lkey);
    if (client.deregister_memory(region.lkey) != 0) break;
  }
}

}  // namespace hostnic::hostile
