// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/address_book.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <unordered_set>
#include <vector>

namespace hostnic {
namespace {

Gid host(uint32_t number) {
  Gid gid = parse_gid("fd00::").value();
  std::memcpy(&gid[8], &number, sizeof number);
  std::memcpy(&gid[12], &number, sizeof number);
  return gid;
}

TEST(AddressBook, Ipv4AddressesAreThemselves) {
  AddressBook book;
  const Gid address = gid_of(Ipv4Address{0x0a000001});
  EXPECT_EQ(book.acquire(address), Ipv4Address{0x0a000001});
  EXPECT_EQ(book.meet(address), Ipv4Address{0x0a000001});
  EXPECT_EQ(book.address_of(Ipv4Address{0x0a000001}), address);
  book.release(Ipv4Address{0x0a000001});
}

TEST(AddressBook, AHostHasOneNumber) {
  AddressBook book;
  const auto first = book.acquire(host(1)), again = book.acquire(host(1)),
             second = book.meet(host(2));
  ASSERT_TRUE(first && again && second);
  EXPECT_EQ(first, again);
  EXPECT_NE(first, second);
  EXPECT_TRUE(is_stand_in(*first));
  EXPECT_EQ(book.meet(host(1)), first);
  EXPECT_EQ(book.acquire(host(2)), second);
  EXPECT_EQ(book.address_of(*first), host(1));
  EXPECT_EQ(book.text_of(*second), to_string(host(2)));
}

TEST(AddressBook, NumbersThatWereNeverGivenStandForNothing) {
  AddressBook book;
  EXPECT_EQ(book.address_of(Ipv4Address{0xf0000000}), Gid{});
  EXPECT_EQ(book.address_of(Ipv4Address{0xffffffff}), Gid{});
  book.release(Ipv4Address{0xffffffff});
  book.release(Ipv4Address{0xf0000000});
}

TEST(AddressBook, WhatIsHeldStaysWhateverPassesBy) {
  AddressBook book;
  const auto held = book.acquire(host(0));
  for (uint32_t i = 1; i < 3 * AddressBook::kCapacity; ++i) {
    const auto met = book.meet(host(i));
    ASSERT_TRUE(met) << i;
    ASSERT_EQ(book.address_of(*met), host(i));
  }
  EXPECT_EQ(book.address_of(*held), host(0));
  EXPECT_EQ(book.acquire(host(0)), held);
}

TEST(AddressBook, TheOldestOfThoseThatNobodyHoldsGoesFirst) {
  AddressBook book;
  std::vector<Ipv4Address> numbers;
  for (uint32_t i = 0; i < AddressBook::kCapacity; ++i) numbers.push_back(*book.meet(host(i)));
  EXPECT_EQ(book.acquire(host(1)), numbers[1]) << "it waits, and is held all the same";
  EXPECT_EQ(book.meet(host(100'000)), numbers[0]);
  EXPECT_EQ(book.meet(host(100'001)), numbers[2]);
  EXPECT_EQ(book.address_of(numbers[1]), host(1));
  book.release(numbers[1]);
  EXPECT_EQ(book.meet(host(1)), numbers[1]) << "still known";
}

TEST(AddressBook, FullOfWhatIsHeldItRefuses) {
  AddressBook book;
  std::unordered_set<uint32_t> numbers;
  for (uint32_t i = 0; i < AddressBook::kCapacity; ++i) numbers.insert(raw(*book.acquire(host(i))));
  EXPECT_EQ(numbers.size(), AddressBook::kCapacity);
  EXPECT_FALSE(book.acquire(host(100'000)));
  EXPECT_FALSE(book.meet(host(100'000)));
  const auto held_twice = book.acquire(host(7));
  book.release(*held_twice);
  EXPECT_FALSE(book.acquire(host(100'000))) << "held once more";
  book.release(*held_twice);
  EXPECT_EQ(book.acquire(host(100'000)), held_twice);
  EXPECT_EQ(book.address_of(*held_twice), host(100'000));
}

// A reader sees an address that was given the number, or none, never a mixture of two.
TEST(AddressBook, ReadersSeeWholeAddresses) {
  AddressBook book;
  for (uint32_t i = 0; i < AddressBook::kCapacity; ++i) book.meet(host(i));
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (uint32_t i = AddressBook::kCapacity; i < 20 * AddressBook::kCapacity; ++i)
      book.meet(host(i));
    stop = true;
  });
  uint64_t mixed = 0;
  for (uint32_t at = 0; !stop; at = (at + 1) % AddressBook::kCapacity) {
    const Gid seen = book.address_of(Ipv4Address{0xf0000000 + at});
    mixed += seen != Gid{} && std::memcmp(&seen[8], &seen[12], 4) != 0;
  }
  writer.join();
  EXPECT_EQ(mixed, 0u);
}

// 16 programs of 1,024 addresses once left nobody else any.
TEST(AddressBook, OneUserDoesNotGetAllEntries) {
  AddressBook book;
  constexpr uint32_t kUser = 1000, kOther = 1001;
  std::vector<Ipv4Address> numbers;
  for (uint32_t i = 0; i < AddressBook::kOfUser; ++i) {
    const auto number = book.acquire(host(i), kUser);
    ASSERT_TRUE(number);
    numbers.push_back(*number);
  }
  EXPECT_FALSE(book.acquire(host(100'000), kUser));
  EXPECT_FALSE(book.acquire(host(0), kUser)) << "a hold is a hold";
  EXPECT_TRUE(book.acquire(host(100'000), kOther));
  EXPECT_TRUE(book.acquire(host(100'001)));
  book.release(numbers[7], kUser);
  EXPECT_TRUE(book.acquire(host(100'002), kUser));
}

TEST(AddressBook, AllUsersLeaveARest) {
  AddressBook book;
  uint32_t count = 0;
  for (uint32_t user = 0; user < 4; ++user)
    for (uint32_t i = 0; i < AddressBook::kOfUser && book.acquire(host(count), user); ++i) ++count;
  EXPECT_EQ(count, AddressBook::kOfUsers);
  EXPECT_FALSE(book.acquire(host(count), 5));
  EXPECT_TRUE(book.acquire(host(count))) << "the owner's";
}

}  // namespace
}  // namespace hostnic
