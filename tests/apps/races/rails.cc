// SPDX-License-Identifier: BSD-3-Clause
// A message goes by two devices (rails): its parts by the first one, then a trailer with their sum
// by the second one. The mistake, of both ends: that the trailer was posted last, so it is there
// last. The receiver closes a message when its trailer has come; the sender takes its buffer as
// free when the trailer's completion has. Devices promise each other nothing, but the parts have
// been on their way for long, so that all is well nearly always.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/apps/races/lane.h"

namespace hostnic::races {
namespace {

constexpr size_t kMessages = 8, kParts = 4, kPartBytes = 1024;
constexpr size_t kTrailerAt = kParts * kPartBytes;
constexpr size_t kMessageBytes = kTrailerAt + sizeof(uint64_t);

uint64_t sum_of(std::span<const uint8_t> bytes) {
  uint64_t sum = 0;
  for (const uint8_t byte : bytes) sum = sum * 31 % 1'000'000'007 + byte;
  return sum;
}

struct Rails {
  explicit Rails(const Options& options)
      : fixed(options.fixed),
        parts(options, 0, buffer, arrived),
        trailers(options, 1, buffer, arrived) {}

  const bool fixed;
  std::vector<uint8_t> buffer = std::vector<uint8_t>(kMessageBytes);
  std::vector<uint8_t> arrived = std::vector<uint8_t>(kMessages * kMessageBytes);
  Lane parts, trailers;
};

uint64_t id_of(size_t message, size_t part) { return message * kParts + part; }

void send(Rails& rails, size_t message) {
  std::span<uint8_t> buffer = rails.buffer;
  for (size_t i = 0; i < kTrailerAt; ++i) buffer[i] = content(message, i);
  uint64_t sum = 0;
  for (size_t part = 0; part < kParts; ++part) {
    const auto bytes = buffer.subspan(part * kPartBytes, kPartBytes);
    const uint64_t id = id_of(message, part);
    rails.parts.write(bytes, message * kMessageBytes + part * kPartBytes, id,
                      static_cast<uint32_t>(id));
    sum += sum_of(bytes);
  }
  work_a_while();
  if (rails.fixed) rails.parts.wait_for(id_of(message, kParts - 1));
  memcpy(&buffer[kTrailerAt], &sum, sizeof(sum));
  rails.trailers.write(buffer.subspan(kTrailerAt), message * kMessageBytes + kTrailerAt, message,
                       static_cast<uint32_t>(message));
  rails.trailers.wait_for(message);
}

class Receiver {
 public:
  explicit Receiver(Rails& rails) : rails_(rails) {}

  // Returns how many messages are wrong.
  size_t run() {
    while (closed_ < kMessages) {
      // Parts are looked for behind trailers: a thread that is kept from its processor between the
      // two finds more of them, and not fewer.
      while (const auto message = rails_.trailers.arrived()) messages_[*message].has_trailer = true;
      while (const auto id = rails_.parts.arrived()) take_part(*id / kParts, *id % kParts);
      for (size_t message = 0; message < kMessages; ++message) close_if_whole(message);
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    return wrong_;
  }

 private:
  struct Message {
    size_t parts = 0;
    uint64_t sum = 0;
    bool has_trailer = false, is_closed = false;
  };

  void take_part(size_t message, size_t part) {
    Message& of = messages_[message];
    ++of.parts;
    of.sum += sum_of(
        std::span(rails_.arrived).subspan(message * kMessageBytes + part * kPartBytes, kPartBytes));
  }

  void close_if_whole(size_t message) {
    Message& of = messages_[message];
    if (of.is_closed || !of.has_trailer || (rails_.fixed && of.parts < kParts)) return;
    of.is_closed = true;
    uint64_t expected = 0;
    memcpy(&expected, &rails_.arrived[message * kMessageBytes + kTrailerAt], sizeof(expected));
    ++closed_;
    if (of.sum == expected) return;
    ++wrong_;
    fprintf(stderr, "hostnic-races: message %zu is wrong: %zu of its %zu parts were there\n",
            message, of.parts, kParts);
  }

  Rails& rails_;
  std::array<Message, kMessages> messages_;
  size_t closed_ = 0, wrong_ = 0;
};

}  // namespace

int run_rails(const Options& options) {
  Rails rails(options);
  size_t wrong = 0;
  std::thread receiver([&] { wrong = Receiver(rails).run(); });
  for (size_t message = 0; message < kMessages; ++message) send(rails, message);
  if (!rails.fixed) rails.parts.wait_for(id_of(kMessages - 1, kParts - 1));
  receiver.join();
  printf("%zu messages, %zu wrong\n", kMessages, wrong);
  return wrong == 0 ? 0 : kExitWrong;
}

}  // namespace hostnic::races
