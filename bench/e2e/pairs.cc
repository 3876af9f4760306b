// SPDX-License-Identifier: BSD-3-Clause
// hostnic-pairs MODE ...: a verbs program with both ends of its connections, between the first two
// RDMA devices. What ./run bench measures that perftest does not:
//
//   write SECONDS BYTES QPS [shared]   WRITEs round-robin over so many queue pairs
//   write-latency SECONDS BYTES    ping-pong of one thread: half a round trip, median and p99
//   send-latency SECONDS BYTES
//   hold QPS MRS                   so many objects on both devices; "ready", then waits for the end
//                                  of its input
//   register MIB [shared]          how long memory takes to register, and to copy
//   fork MIB [shared]              how long a fork takes before memory is registered, and then
// `shared`: the memory is a memfd's, and not private.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <string_view>
#include <vector>

#include "bench/e2e/fabric.h"

namespace hostnic::bench {
namespace {

using Clock = std::chrono::steady_clock;

// The same memory and the same messages outstanding, however many queue pairs share them: what
// differs is the queue pairs.
constexpr size_t kBufferBytes = 256 << 10;
constexpr size_t kOutstanding = 256;
constexpr size_t kPageBytes = 4096;
constexpr double kWarmUpPart = 0.1;
constexpr uint64_t kTurnsPerClock = 64;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void post(ibv_qp* qp, ibv_wr_opcode opcode, const ibv_sge& from, const ibv_mr& target,
          size_t offset) {
  ibv_send_wr request{}, *bad = nullptr;
  ibv_sge source = from;
  request.sg_list = &source;
  request.num_sge = 1;
  request.opcode = opcode;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(target.addr) + offset;
  request.wr.rdma.rkey = target.rkey;
  if (ibv_post_send(qp, &request, &bad) != 0) die("ibv_post_send failed");
}

ibv_sge piece(const ibv_mr& region, size_t offset, uint32_t bytes) {
  return {reinterpret_cast<uint64_t>(region.addr) + offset, bytes, region.lkey};
}

struct Streamed {
  uint64_t messages;
  double bytes_per_second;
};

// WRITEs from `from` to `to`.
Streamed stream(const End& sender, const ibv_mr& from, const ibv_mr& to, uint32_t bytes, size_t qps,
                double seconds) {
  const size_t places = std::max<size_t>(kBufferBytes / bytes, 1);
  size_t outstanding = 0, next_qp = 0, next_place = 0;
  uint64_t completed = 0;
  const auto start = Clock::now();
  // Reading the clock each time would be a tenth of the work.
  for (uint64_t turn = 0; turn % kTurnsPerClock != 0 || seconds_since(start) < seconds; ++turn) {
    while (outstanding < kOutstanding) {
      const size_t offset = next_place * bytes;
      post(sender.qp(next_qp), IBV_WR_RDMA_WRITE, piece(from, offset, bytes), to, offset);
      if (++next_qp == qps) next_qp = 0;
      if (++next_place == places) next_place = 0;
      ++outstanding;
    }
    const size_t taken = poll(sender.send_cq(), outstanding);
    completed += taken;
    outstanding -= taken;
  }
  const double rate = static_cast<double>(completed * bytes) / seconds_since(start);
  completed += outstanding;
  while (outstanding != 0) outstanding -= poll(sender.send_cq(), outstanding);
  return {completed, rate};
}

int measure_write(double seconds, uint32_t bytes, size_t qps, Sharing sharing) {
  const Depths depths{kOutstanding, 1, 2 * kOutstanding};
  const Pages from(std::max<size_t>(kBufferBytes, bytes), sharing), to(from.bytes(), sharing);
  End sender(0, qps < kOutstanding ? depths : Depths{16, 1, 2 * kOutstanding}), receiver(1, depths);
  const auto from_region = sender.register_memory(from), to_region = receiver.register_memory(to);
  connect_queue_pairs(sender, receiver, qps);
  std::memset(from.at(0), 2, from.bytes());
  stream(sender, *from_region, *to_region, bytes, qps, seconds * kWarmUpPart);
  const auto measured = stream(sender, *from_region, *to_region, bytes, qps, seconds);
  const size_t written = std::min<size_t>(measured.messages, from.bytes() / bytes) * bytes;
  if (std::memcmp(from.at(0), to.at(0), written) != 0) die("the bytes written are wrong");
  fmt::print("bytes_per_second {:.0f}\n", measured.bytes_per_second);
  return 0;
}

// One side of a ping-pong.
class Player {
 public:
  Player(size_t device, uint32_t bytes)
      : bytes_(bytes),
        end_(device, Depths{}),
        pages_(std::max<size_t>(bytes, kPageBytes) * 2),
        region_(end_.register_memory(pages_)) {}

  End& end() { return end_; }

  void post_receive() {
    ibv_recv_wr request{}, *bad = nullptr;
    ibv_sge place = piece(*region_, inbox(), bytes_);
    request.sg_list = &place;
    request.num_sge = 1;
    if (ibv_post_recv(end_.qp(0), &request, &bad) != 0) die("ibv_post_recv failed");
  }

  void send(Player& other, ibv_wr_opcode opcode, uint8_t mark) {
    std::memset(pages_.at(bytes_ - 1), mark, 1);
    post(end_.qp(0), opcode, piece(*region_, 0, bytes_), *other.region_, inbox());
  }

  // Spins as perftest does: on the last byte of a WRITE, or on the completion of a SEND.
  void wait_for_write(uint8_t mark) const {
    const volatile uint8_t* last = reinterpret_cast<uint8_t*>(pages_.at(inbox() + bytes_ - 1));
    while (*last != mark) {
    }
  }
  void wait_for_receive() const {
    while (poll(end_.receive_cq(), 1) == 0) {
    }
  }
  void wait_until_sent() const {
    while (poll(end_.send_cq(), 1) == 0) {
    }
  }

 private:
  size_t inbox() const { return pages_.bytes() / 2; }

  uint32_t bytes_;
  End end_;
  Pages pages_;
  Owned<ibv_mr> region_;
};

void throw_over(Player& from, Player& to, ibv_wr_opcode opcode, uint8_t mark) {
  const bool send = opcode == IBV_WR_SEND;
  if (send) to.post_receive();
  from.send(to, opcode, mark);
  if (send)
    to.wait_for_receive();
  else
    to.wait_for_write(mark);
}

int measure_latency(double seconds, uint32_t bytes, ibv_wr_opcode opcode) {
  Player first(0, bytes), second(1, bytes);
  connect_queue_pairs(first.end(), second.end(), 1);
  std::vector<double> halves_us;
  halves_us.reserve(static_cast<size_t>(seconds * 2e6));
  const auto start = Clock::now();
  uint8_t mark = 1;  // the pages hold 1
  while (seconds_since(start) < seconds && halves_us.size() < halves_us.capacity()) {
    ++mark;
    const auto thrown = Clock::now();
    throw_over(first, second, opcode, mark);
    throw_over(second, first, opcode, mark);
    halves_us.push_back(seconds_since(thrown) / 2 * 1e6);
    first.wait_until_sent();
    second.wait_until_sent();
  }
  halves_us.erase(
      halves_us.begin(),
      halves_us.begin() + static_cast<long>(static_cast<double>(halves_us.size()) * kWarmUpPart));
  if (halves_us.empty()) die("no round trip within the time");
  std::sort(halves_us.begin(), halves_us.end());
  fmt::print("latency_us {:.3f} {:.3f}\n", halves_us[halves_us.size() / 2],
             halves_us[halves_us.size() * 99 / 100]);
  return 0;
}

int hold(size_t qps, size_t regions) {
  End first(0, Depths{}), second(1, Depths{});
  connect_queue_pairs(first, second, qps);
  const Pages pages(kPageBytes);
  std::vector<Owned<ibv_mr>> held;
  held.reserve(2 * regions);
  for (size_t i = 0; i < regions; ++i) {
    held.push_back(first.register_memory(pages));
    held.push_back(second.register_memory(pages));
  }
  fmt::print("ready {}\n", getpid());
  fflush(stdout);
  char ignored = 0;
  while (read(STDIN_FILENO, &ignored, 1) > 0) {
  }
  return 0;
}

int measure_registration(size_t mebibytes, Sharing sharing) {
  const Pages from(mebibytes << 20, sharing), to(mebibytes << 20, sharing);
  const End end(0, Depths{});
  auto start = Clock::now();
  auto region = end.register_memory(from);
  const double register_s = seconds_since(start);
  start = Clock::now();
  region.reset();
  const double deregister_s = seconds_since(start);
  // Both are mapped, the second is warm.
  std::memcpy(to.at(0), from.at(0), from.bytes());
  start = Clock::now();
  std::memcpy(to.at(0), from.at(0), from.bytes());
  asm volatile("" : : "r"(to.at(0)) : "memory");
  const double copy_s = seconds_since(start);
  fmt::print("registration_us {:.2f} {:.2f} {:.2f}\n", register_s * 1e6, deregister_s * 1e6,
             copy_s * 1e6);
  return 0;
}

// How long the caller waits in fork(); the child is gone before it goes on.
double fork_s() {
  const auto start = Clock::now();
  const pid_t child = fork();
  if (child == 0) _exit(0);
  const double seconds = seconds_since(start);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0) die("fork failed");
  return seconds;
}

int measure_fork(size_t mebibytes, Sharing sharing) {
  const Pages pages(mebibytes << 20, sharing);
  const End end(0, Depths{});
  const double before_s = fork_s();
  const auto region = end.register_memory(pages);
  fmt::print("fork_us {:.2f} {:.2f}\n", before_s * 1e6, fork_s() * 1e6);
  return 0;
}

template <class Number>
Number parse(std::string_view text, Number min, Number max) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < min || value > max)
    die(fmt::format("\"{}\" is no number from {} to {}", text, min, max));
  return value;
}

int run(std::vector<std::string_view> words) {
  Sharing sharing = Sharing::kPrivate;
  if (!words.empty() && words.back() == "shared") {
    sharing = Sharing::kShared;
    words.pop_back();
  }
  const std::string_view mode = words.empty() ? "" : words[0];
  const auto seconds = [&] { return parse(words[1], 1e-3, 600.0); };
  const auto bytes = [&] { return parse<uint32_t>(words[2], 1, 1 << 30); };
  if (mode == "write" && words.size() == 4)
    return measure_write(seconds(), bytes(), parse<size_t>(words[3], 1, 1 << 20), sharing);
  if (mode == "write-latency" && words.size() == 3)
    return measure_latency(seconds(), bytes(), IBV_WR_RDMA_WRITE);
  if (mode == "send-latency" && words.size() == 3)
    return measure_latency(seconds(), bytes(), IBV_WR_SEND);
  if (mode == "hold" && words.size() == 3)
    return hold(parse<size_t>(words[1], 0, 1 << 20), parse<size_t>(words[2], 0, 1 << 20));
  if (mode == "register" && words.size() == 2)
    return measure_registration(parse<size_t>(words[1], 1, 1 << 14), sharing);
  if (mode == "fork" && words.size() == 2)
    return measure_fork(parse<size_t>(words[1], 1, 1 << 14), sharing);
  fmt::print(
      stderr,
      "usage: hostnic-pairs write SECONDS BYTES QPS [shared] | write-latency SECONDS BYTES | "
      "send-latency SECONDS BYTES | hold QPS MRS | register MIB [shared] | "
      "fork MIB [shared]\n");
  return 2;
}

}  // namespace
}  // namespace hostnic::bench

int main(int argc, char** argv) { return hostnic::bench::run({argv + 1, argv + argc}); }
