// SPDX-License-Identifier: BSD-3-Clause
// Netlink messages and their attributes, read from untrusted bytes and written. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace hostnic::nldev {

using Bytes = std::vector<std::byte>;

// A message, whose payload points into the bytes that it was read from.
struct Message {
  uint16_t type = 0, flags = 0;
  uint32_t sequence = 0;
  std::span<const std::byte> payload;
  std::span<const std::byte> whole;  // with its header, without what pads it
};
// Takes the next message from the start of `rest`. Nothing: there is none, or its length is not
// what is there; the kernel looks no further then, either.
std::optional<Message> next_message(std::span<const std::byte>& rest);

struct Attribute {
  uint16_t type = 0;  // without flags
  std::span<const std::byte> payload;
  // The value of a number; nothing: it is shorter. What follows it is not looked at, as the kernel
  // does not.
  std::optional<uint32_t> u32() const;
  // A text up to its end or its first 0.
  std::string_view text() const;
};
// Takes the next attribute from the start of `rest`, as next_message() does.
std::optional<Attribute> next_attribute(std::span<const std::byte>& rest);

// Writes one message behind what `out` has, which is complete when the writer goes.
class MessageWriter {
 public:
  struct Header {
    uint16_t type = 0, flags = 0;
    uint32_t sequence = 0, port_id = 0;
  };
  MessageWriter(Bytes& out, const Header& header);
  ~MessageWriter();
  MessageWriter(const MessageWriter&) = delete;
  MessageWriter& operator=(const MessageWriter&) = delete;

  void put(uint16_t type, std::span<const std::byte> payload);
  void put_u8(uint16_t type, uint8_t value);
  void put_u32(uint16_t type, uint32_t value);
  void put_u64(uint16_t type, uint64_t value);
  void put_text(uint16_t type, std::string_view text);  // with its 0
  // Bytes that are no attribute.
  void append(std::span<const std::byte> bytes);

  // An attribute that holds others, until it goes.
  class Nest {
   public:
    Nest(MessageWriter& writer, uint16_t type);
    ~Nest();
    Nest(const Nest&) = delete;
    Nest& operator=(const Nest&) = delete;

   private:
    MessageWriter& writer_;
    size_t start_;
  };

  size_t size_bytes() const { return out_.size() - start_; }

 private:
  void pad();

  Bytes& out_;
  size_t start_;
};

// Cuts answers into the datagrams in which they are read: messages of one listing share some, of at
// most kDatagramBytes each, all others come one by one. A message longer than that is one datagram.
inline constexpr size_t kDatagramBytes = 4096;  // what libmnl's programs have room for
std::vector<std::span<const std::byte>> datagrams_of(std::span<const std::byte> messages);

}  // namespace hostnic::nldev
