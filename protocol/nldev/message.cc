// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/nldev/message.h"

#include <linux/netlink.h>

#include <algorithm>
#include <cstring>

#include "protocol/bytes_of.h"

namespace hostnic::nldev {
namespace {

constexpr size_t kAlignment = 4;
constexpr size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) & ~(kAlignment - 1); }

}  // namespace

std::optional<Message> next_message(std::span<const std::byte>& rest) {
  nlmsghdr header;
  if (rest.size() < sizeof(header)) return std::nullopt;
  memcpy(&header, rest.data(), sizeof(header));
  if (header.nlmsg_len < sizeof(header) || header.nlmsg_len > rest.size()) return std::nullopt;
  const Message message{.type = header.nlmsg_type,
                        .flags = header.nlmsg_flags,
                        .sequence = header.nlmsg_seq,
                        .payload = rest.subspan(sizeof(header), header.nlmsg_len - sizeof(header)),
                        .whole = rest.first(header.nlmsg_len)};
  rest = rest.subspan(std::min(aligned(header.nlmsg_len), rest.size()));
  return message;
}

std::optional<uint32_t> Attribute::u32() const {
  uint32_t value = 0;
  if (payload.size() < sizeof(value)) return std::nullopt;
  memcpy(&value, payload.data(), sizeof(value));
  return value;
}

std::string_view Attribute::text() const {
  const std::string_view all(reinterpret_cast<const char*>(payload.data()), payload.size());
  return all.substr(0, all.find('\0'));
}

std::optional<Attribute> next_attribute(std::span<const std::byte>& rest) {
  nlattr header;
  if (rest.size() < sizeof(header)) return std::nullopt;
  memcpy(&header, rest.data(), sizeof(header));
  if (header.nla_len < sizeof(header) || header.nla_len > rest.size()) return std::nullopt;
  const Attribute attribute{static_cast<uint16_t>(header.nla_type & NLA_TYPE_MASK),
                            rest.subspan(sizeof(header), header.nla_len - sizeof(header))};
  rest = rest.subspan(std::min(aligned(header.nla_len), rest.size()));
  return attribute;
}

MessageWriter::MessageWriter(Bytes& out, const Header& header) : out_(out), start_(out.size()) {
  const nlmsghdr raw{.nlmsg_len = 0,
                     .nlmsg_type = header.type,
                     .nlmsg_flags = header.flags,
                     .nlmsg_seq = header.sequence,
                     .nlmsg_pid = header.port_id};
  append(bytes_of(raw));
}

MessageWriter::~MessageWriter() {
  const auto length = static_cast<uint32_t>(size_bytes());
  memcpy(out_.data() + start_, &length, sizeof(length));
}

void MessageWriter::append(std::span<const std::byte> bytes) {
  out_.insert(out_.end(), bytes.begin(), bytes.end());
  pad();
}

void MessageWriter::pad() { out_.resize(start_ + aligned(size_bytes())); }

void MessageWriter::put(uint16_t type, std::span<const std::byte> payload) {
  const nlattr header{static_cast<uint16_t>(sizeof(nlattr) + payload.size()), type};
  append(bytes_of(header));
  append(payload);
}

void MessageWriter::put_u8(uint16_t type, uint8_t value) { put(type, bytes_of(value)); }
void MessageWriter::put_u32(uint16_t type, uint32_t value) { put(type, bytes_of(value)); }
void MessageWriter::put_u64(uint16_t type, uint64_t value) { put(type, bytes_of(value)); }

void MessageWriter::put_text(uint16_t type, std::string_view text) {
  const nlattr header{static_cast<uint16_t>(sizeof(nlattr) + text.size() + 1), type};
  append(bytes_of(header));
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  out_.insert(out_.end(), bytes.begin(), bytes.end());
  out_.push_back(std::byte{0});
  pad();
}

MessageWriter::Nest::Nest(MessageWriter& writer, uint16_t type)
    : writer_(writer), start_(writer.out_.size()) {
  writer.put(type, {});
}

MessageWriter::Nest::~Nest() {
  const auto length = static_cast<uint16_t>(writer_.out_.size() - start_);
  memcpy(writer_.out_.data() + start_, &length, sizeof(length));
}

std::vector<std::span<const std::byte>> datagrams_of(std::span<const std::byte> messages) {
  std::vector<std::span<const std::byte>> datagrams;
  bool shares = false;  // whether the last datagram is of a listing
  for (auto rest = messages; !rest.empty();) {
    const std::byte* const start = rest.data();
    const auto message = next_message(rest);
    if (!message) break;
    const auto size = static_cast<size_t>(rest.data() - start);
    const bool is_of_listing = (message->flags & NLM_F_MULTI) != 0;
    if (shares && is_of_listing && datagrams.back().size() + size <= kDatagramBytes)
      datagrams.back() = {datagrams.back().data(), datagrams.back().size() + size};
    else
      datagrams.emplace_back(start, size);
    shares = is_of_listing;
  }
  return datagrams;
}

}  // namespace hostnic::nldev
