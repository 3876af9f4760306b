// SPDX-License-Identifier: BSD-3-Clause
// Messages and attributes: what is written is read again, and what is no message ends the reading.
#include "protocol/nldev/message.h"

#include <gtest/gtest.h>
#include <linux/netlink.h>

#include <cstring>

namespace hostnic::nldev {
namespace {

Bytes bytes_of(const std::vector<uint16_t>& words) {
  Bytes bytes(words.size() * sizeof(uint16_t));
  memcpy(bytes.data(), words.data(), bytes.size());
  return bytes;
}

TEST(NldevMessage, WhatIsWrittenIsRead) {
  Bytes out;
  {
    MessageWriter message(out, {.type = 30, .flags = 3, .sequence = 4, .port_id = 5});
    message.put_u8(1, 0xab);
    message.put_text(2, "four");
    const MessageWriter::Nest nest(message, 3);
    message.put_u64(4, 0x1122334455667788);
  }
  std::span<const std::byte> rest(out);
  const auto message = next_message(rest);
  ASSERT_TRUE(message);
  EXPECT_TRUE(rest.empty());
  EXPECT_EQ(message->type, 30);
  EXPECT_EQ(message->flags, 3);
  EXPECT_EQ(message->sequence, 4u);
  EXPECT_EQ(message->whole.size(), out.size());
  auto attributes = message->payload;
  const auto byte = next_attribute(attributes);
  ASSERT_TRUE(byte);
  EXPECT_EQ(byte->type, 1);
  EXPECT_EQ(byte->payload.size(), 1u);
  EXPECT_FALSE(byte->u32()) << "there is no number of four bytes in one";
  EXPECT_EQ(next_attribute(attributes)->text(), "four");
  const auto nest = next_attribute(attributes);
  ASSERT_TRUE(nest);
  EXPECT_FALSE(next_attribute(attributes));
  auto inside = nest->payload;
  const auto number = next_attribute(inside);
  ASSERT_TRUE(number);
  EXPECT_EQ(number->u32(), 0x55667788u);
  EXPECT_EQ(number->payload.size(), 8u);
}

TEST(NldevMessage, WhatIsNoMessageEndsTheReading) {
  Bytes out;
  { const MessageWriter message(out, {.type = 30}); }
  for (const uint32_t length : {0u, 15u, 17u, UINT32_MAX}) {
    memcpy(out.data(), &length, sizeof(length));
    std::span<const std::byte> rest(out);
    EXPECT_FALSE(next_message(rest)) << length;
  }
  std::span<const std::byte> half = std::span<const std::byte>(out).first(8);
  EXPECT_FALSE(next_message(half));
}

TEST(NldevMessage, WhatIsNoAttributeEndsTheReading) {
  for (const uint16_t length : {0, 3, 9, 65535}) {
    const Bytes bytes = bytes_of({length, 1, 0, 0});
    std::span<const std::byte> rest(bytes);
    EXPECT_FALSE(next_attribute(rest)) << length;
  }
  // Flags are no part of the type, and a payload whose padding is missing is there.
  Bytes bytes = bytes_of({6, NLA_F_NESTED | 7, 0x4142});
  std::span<const std::byte> rest(bytes);
  const auto attribute = next_attribute(rest);
  ASSERT_TRUE(attribute);
  EXPECT_EQ(attribute->type, 7);
  EXPECT_EQ(attribute->text(), "BA");
  EXPECT_TRUE(rest.empty());
}

TEST(NldevMessage, MessagesOfAListShareDatagrams) {
  Bytes out;
  const auto write = [&](uint16_t flags, size_t bytes) {
    MessageWriter message(out, {.type = 30, .flags = flags});
    message.append(Bytes(bytes));
  };
  write(0, 4);
  write(0, 4);
  write(NLM_F_MULTI, 2000);
  write(NLM_F_MULTI, 2000);
  write(NLM_F_MULTI, 2000);
  write(0, 9000);
  const auto datagrams = datagrams_of(out);
  std::vector<size_t> sizes;
  for (const auto& each : datagrams) sizes.push_back(each.size());
  EXPECT_EQ(sizes, (std::vector<size_t>{20, 20, 4032, 2016, 9016}));
}

}  // namespace
}  // namespace hostnic::nldev
