// SPDX-License-Identifier: BSD-3-Clause
// What a responder remembers of its answers to READs (docs/transport.md rule 18).
#include "dataplane/nic/qp/read_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <vector>

namespace hostnic {
namespace {

constexpr uint32_t kWindow = 32;

std::vector<std::byte> some_bytes(size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 37 + i / 256);
  return bytes;
}

ReadOrder::Read read_number(uint32_t number, Psn first) {
  return {.number = number, .rkey = 0, .va = 0, .length_bytes = 4096, .first = first};
}

// Whichever function a processor has.
TEST(Digest, Rule18_EveryBitAndTheLengthCount) {
  const DigestSecret secret(1), other(2);
  for (const DigestFunction digest : digest_functions()) {
    for (const size_t bytes : {1, 8, 63, 64, 200, 1024}) {
      std::vector<std::byte> data = some_bytes(bytes);
      std::set<uint64_t> digests = {digest(data, secret)};
      for (size_t bit = 0; bit < 8 * bytes; ++bit) {
        data[bit / 8] ^= std::byte{1} << (bit % 8);
        digests.insert(digest(data, secret));
        data[bit / 8] ^= std::byte{1} << (bit % 8);
      }
      EXPECT_EQ(digests.size(), 8 * bytes + 1);
      EXPECT_EQ(digests.count(digest(data, secret)), 1u);
      EXPECT_EQ(digests.count(0), 0u) << "which stands for none";
      EXPECT_EQ(digests.count(digest(data, other)), 0u) << "nobody can guess it";
      data.push_back(std::byte{0});
      EXPECT_EQ(digests.count(digest(data, secret)), 0u);
    }
  }
}

// A digest tells apart the same bytes at another place, and the same difference at two places.
TEST(Digest, Rule18_PlacesCount) {
  const DigestSecret secret(1);
  const std::byte flip{0x10};
  for (const DigestFunction digest : digest_functions()) {
    std::set<uint64_t> digests;
    for (size_t at = 0; at < 512; ++at) {
      std::vector<std::byte> data(512);
      data[at] = flip;
      EXPECT_TRUE(digests.insert(digest(data, secret)).second) << at;
      if (at + 64 >= data.size()) continue;
      data[at + 64] = flip;
      EXPECT_TRUE(digests.insert(digest(data, secret)).second) << at;
    }
  }
}

// A processor with wider registers makes the same digests as one with narrower ones.
TEST(Digest, Rule18_ThoseByCarrylessProductsAgree) {
  const std::span<const DigestFunction> functions = digest_functions();
  if (functions.size() < 3) GTEST_SKIP() << "this processor has no two of them";
  const DigestSecret secret(1);
  for (const size_t bytes : {0, 1, 63, 64, 65, 127, 128, 129, 191, 192, 193, 1000, 4095, 4096}) {
    const std::vector<std::byte> data = some_bytes(bytes);
    EXPECT_EQ(functions[0](data, secret), functions[1](data, secret)) << bytes;
  }
}

// A copy that is digested as it is made is a copy, and has the digest that it would have later.
TEST(Digest, Rule18_ACopyIsDigestedInOnePass) {
  const DigestSecret secret(1);
  alignas(64) std::array<std::byte, 4096 + 64> memory;
  const std::vector<std::byte> bytes = some_bytes(memory.size());
  std::ranges::copy(bytes, memory.begin());
  for (const size_t length : {0, 1, 8, 63, 64, 65, 127, 128, 200, 1000, 4095, 4096}) {
    for (const size_t offset : {0, 8, 32, 33}) {
      const std::span<const std::byte> from(memory.data() + offset, length);
      std::vector<std::byte> copy(length + 2, std::byte{0x55});
      EXPECT_EQ(copy_and_digest(copy.data() + 1, from, secret), digest_of(from, secret))
          << length << " from " << offset;
      EXPECT_TRUE(std::equal(from.begin(), from.end(), copy.begin() + 1));
      EXPECT_EQ(copy.front(), std::byte{0x55});
      EXPECT_EQ(copy.back(), std::byte{0x55});
    }
  }
}

TEST(ReadOrder, Rule18_KnowsWhatHasBeenReadAcrossTheWrap) {
  DigestTables tables(kWindow, 1);
  ReadOrder order;
  EXPECT_EQ(order.newest(), nullptr);
  EXPECT_FALSE(order.has_read_later(0));
  const Psn first(Psn::kMask);  // the last before the wrap
  order.note_read(read_number(UINT32_MAX, first), first, first + 1);
  order.note_read(read_number(0, first + 1), first + 1, first + 3);
  EXPECT_TRUE(order.has_read_later(UINT32_MAX));
  EXPECT_FALSE(order.has_read_later(0));
  EXPECT_TRUE(order.is_repeated(first + 2));
  EXPECT_FALSE(order.is_repeated(first + 3));
  // An older READ's answer that is given again changes neither.
  order.note_read(read_number(UINT32_MAX, first), first, first + 1);
  EXPECT_EQ(order.newest()->number, 0u);
  EXPECT_TRUE(order.is_repeated(first + 2));
  tables.begin_epoch(order);
  EXPECT_FALSE(order.has_read_later(UINT32_MAX));
  EXPECT_FALSE(order.is_repeated(first));
}

TEST(ReadOrder, Rule18_ATableHoldsWhatWasReadInThisEpochAndWindow) {
  DigestTables tables(kWindow, 1);
  const QpPackets answers;
  ReadOrder order;
  EXPECT_FALSE(order.has_digests());
  tables.note_repeated(order, answers.count());
  ASSERT_TRUE(order.has_digests());
  const Psn first(100);
  const auto answer = [&](Psn psn, uint64_t digest) {
    order.note_read(read_number(1, first), psn, psn + 1);
    order.table()->set(psn, digest);
  };
  answer(first, 7);
  EXPECT_TRUE(order.table()->may_say(first, 7));
  EXPECT_FALSE(order.table()->may_say(first, 8));
  EXPECT_FALSE(order.table()->knows(first + 1));
  answer(first + kWindow, 9);
  EXPECT_FALSE(order.table()->may_say(first, 7)) << "its place is another's";
  EXPECT_FALSE(order.table()->may_say(first, 9)) << "which says what the memory says by now";
  // What is overtaken was not read, whatever its places hold from a window before.
  for (uint32_t i = 1; i < kWindow; ++i) EXPECT_FALSE(order.table()->knows(first + kWindow + i));
  for (uint32_t i = 1; i < kWindow; ++i) answer(first + kWindow + i, 5);
  answer(first + 2 * kWindow + 3, 6);
  for (uint32_t i = 0; i < 3; ++i) EXPECT_FALSE(order.table()->knows(first + 2 * kWindow + i));
  EXPECT_TRUE(order.table()->knows(first + kWindow + 4));
  tables.begin_epoch(order);
  for (uint32_t i = 0; i < kWindow; ++i) EXPECT_FALSE(order.table()->knows(first + i));
}

TEST(ReadOrder, Rule18_TablesAreBoundedAndComeBack) {
  DigestTables tables(kWindow, 1);
  const QpPackets answers;
  std::vector<ReadOrder> orders(DigestTables::kTables + 1);
  for (ReadOrder& order : orders) tables.note_repeated(order, answers.count());
  EXPECT_EQ(tables.used(), DigestTables::kTables);
  EXPECT_FALSE(orders.front().has_digests()) << "who had one longest";
  EXPECT_TRUE(orders.back().has_digests());
  // A queue pair that is asked for nothing again gives its table back.
  for (uint32_t i = 1; i < DigestTables::kUnrepeated; ++i) tables.note_answered(orders.back(), 1);
  EXPECT_TRUE(orders.back().has_digests());
  tables.note_repeated(orders.back(), answers.count());
  for (uint32_t i = 1; i < DigestTables::kUnrepeated; ++i) tables.note_answered(orders.back(), 1);
  EXPECT_TRUE(orders.back().has_digests());
  tables.note_answered(orders.back(), 1);
  EXPECT_FALSE(orders.back().has_digests());
  for (ReadOrder& order : orders) tables.begin_connection(order);
  EXPECT_EQ(tables.used(), 0u);
}

// Answers that are on their way refer to a table: while they do it is no other queue pair's.
TEST(ReadOrder, Rule18_ATableIsItsAnswersUntilTheyHaveArrived) {
  DigestTables tables(kWindow, 1);
  const QpPackets answers, others;
  ReadOrder order;
  tables.note_repeated(order, answers.count());
  DigestTable* const table = order.table();
  answers.count()->add(1);
  tables.begin_connection(order);
  std::vector<ReadOrder> orders(DigestTables::kTables);
  for (ReadOrder& other : orders) {
    tables.note_repeated(other, others.count());
    EXPECT_NE(other.table(), table);
  }
  EXPECT_FALSE(orders.front().has_digests()) << "its table went to the last";
  EXPECT_TRUE(orders.back().has_digests());
  answers.count()->remove(1);
  ReadOrder next;
  tables.note_repeated(next, others.count());
  EXPECT_TRUE(next.has_digests());
  for (ReadOrder& other : orders) tables.begin_connection(other);
  tables.begin_connection(next);
}

// Where all tables are referred to nobody gets one.
TEST(ReadOrder, Rule18_NoTableIsTakenFromAnswersOnTheirWay) {
  DigestTables tables(kWindow, 1);
  const QpPackets answers;
  std::vector<ReadOrder> orders(DigestTables::kTables);
  for (ReadOrder& order : orders) tables.note_repeated(order, answers.count());
  answers.count()->add(1);
  ReadOrder order;
  tables.note_repeated(order, answers.count());
  EXPECT_FALSE(order.has_digests());
  EXPECT_EQ(tables.used(), DigestTables::kTables);
  answers.count()->remove(1);
}

// The memory belongs to the process: answers may be out after their NIC is gone, and what they note
// is no other NIC's business.
TEST(ReadOrder, Rule18_TablesOutliveTheirNic) {
  const QpPackets answers;
  ReadOrder order;
  auto tables = std::make_unique<DigestTables>(kWindow, 1);
  tables->note_repeated(order, answers.count());
  DigestTable* const table = order.table();
  answers.count()->add(1);
  tables.reset();
  DigestTables next(kWindow, 2);
  ReadOrder other;
  const QpPackets others;
  next.note_repeated(other, others.count());
  EXPECT_NE(other.table(), table);
  table->note_placed(Psn(5), 1);
  EXPECT_FALSE(other.table()->knows(Psn(5)));
  answers.count()->remove(1);
  next.begin_connection(other);
}

TEST(DigestTable, Rule18_SaysWhatTheReceiverHasRead) {
  const DigestSecret secret(1);
  DigestTable table(kWindow, secret);
  const std::vector<std::byte> said = some_bytes(4096), says = some_bytes(4095);
  const Psn first(Psn::kMask);  // the last before the wrap
  table.note_out(first, 4);
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(table.knows(first + i));
    EXPECT_TRUE(table.is_out(first + i));
    EXPECT_FALSE(table.may_say(first + i, digest_of(said, secret))) << "nobody knows yet";
  }
  EXPECT_FALSE(table.knows(first + 4));
  table.note_placed(first, 2);
  table.note_read(first + 2, said);
  table.note_copied(first + 3, said);
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_FALSE(table.is_out(first + i));
    EXPECT_TRUE(table.may_say(first + i, digest_of(said, secret)));
    EXPECT_EQ(table.may_say(first + i, digest_of(says, secret)), i < 2) << "which is dropped";
    EXPECT_FALSE(table.may_say(first + (i + kWindow), digest_of(said, secret))) << "another PSN";
  }
  table.forget(first + 1, 2);
  EXPECT_TRUE(table.knows(first));
  EXPECT_FALSE(table.knows(first + 1));
  EXPECT_FALSE(table.may_say(first + 2, digest_of(said, secret)));
  EXPECT_TRUE(table.knows(first + 3));
}

}  // namespace
}  // namespace hostnic
