// SPDX-License-Identifier: BSD-3-Clause
// The NIC's small tables: multicast groups, flow tags, memory regions, memory windows.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <map>
#include <set>
#include <vector>

#include "dataplane/memory/sigbus.h"
#include "dataplane/nic/memory/late_piece.h"
#include "dataplane/nic/memory/mr_table.h"
#include "dataplane/nic/memory/window_table.h"
#include "dataplane/nic/qp/multicast_groups.h"
#include "dataplane/nic/qp/qp_context.h"
#include "protocol/hostif/descriptors.h"
#include "protocol/wire/flow_tag.h"
#include "protocol/wire/multicast.h"

namespace hostnic {
namespace {

// ---- multicast groups

constexpr Ipv4Address group(uint32_t last) { return Ipv4Address{0xef000000 + last}; }

TEST(MulticastGroups, HaveMacAddressesOfTheirOwn) {
  EXPECT_EQ(wire::multicast_mac(Ipv4Address{0xef010203}), (wire::MacAddress{1, 0, 0x5e, 1, 2, 3}));
  EXPECT_EQ(wire::multicast_mac(Ipv4Address{0xe0ff00fe}),
            (wire::MacAddress{1, 0, 0x5e, 0x7f, 0, 0xfe}));
}

TEST(MulticastGroups, MembersAreThereOnce) {
  MulticastGroups table;
  QpContext one, two;
  EXPECT_TRUE(table.members(group(5)).empty());
  ASSERT_EQ(table.add(group(5), one), 0);
  ASSERT_EQ(table.add(group(1), two), 0);
  ASSERT_EQ(table.add(group(9), two), 0);
  ASSERT_EQ(table.add(group(5), two), 0);
  ASSERT_EQ(table.add(group(5), one), 0);
  ASSERT_EQ(table.members(group(5)).size(), 2u);
  EXPECT_EQ(table.members(group(5))[0], &one);
  EXPECT_EQ(table.members(group(5))[1], &two);
  EXPECT_EQ(table.members(group(1)).size(), 1u);
  EXPECT_TRUE(table.members(group(4)).empty());
  EXPECT_TRUE(table.members(group(10)).empty());
  EXPECT_TRUE(table.remove(group(5), one));
  EXPECT_FALSE(table.remove(group(5), one));
  EXPECT_FALSE(table.remove(group(4), one));
  EXPECT_EQ(table.members(group(5)).size(), 1u);
  std::vector<Ipv4Address> left;
  table.forget(two, [&](Ipv4Address group) { left.push_back(group); });
  EXPECT_EQ(left, (std::vector{group(1), group(5), group(9)}));
  for (const uint32_t last : {1, 5, 9}) EXPECT_TRUE(table.members(group(last)).empty());
}

TEST(MulticastGroups, Limits) {
  MulticastGroups table;
  std::vector<QpContext> qps(kMaxGroupMembers + 1);
  for (uint32_t i = 0; i < kMaxGroupMembers; ++i) ASSERT_EQ(table.add(group(0), qps[i]), 0);
  EXPECT_EQ(table.add(group(0), qps.back()), ENOMEM);
  EXPECT_EQ(table.add(group(0), qps[0]), 0) << "a member already";
  EXPECT_EQ(table.members(group(0)).size(), kMaxGroupMembers);
  for (uint32_t i = 1; i < kMaxGroups; ++i) ASSERT_EQ(table.add(group(i), qps.back()), 0);
  EXPECT_EQ(table.add(group(kMaxGroups), qps[0]), ENOMEM);
  EXPECT_EQ(table.add(group(7), qps[0]), 0);
  table.forget(qps.back(), [](Ipv4Address) {});
  EXPECT_EQ(table.members(group(7)).size(), 1u);
  EXPECT_EQ(table.add(group(kMaxGroups), qps[0]), 0) << "groups without members are none";
}

// ---- flow tags

TEST(FlowTag, LiesInTheDynamicPortRangeAndLeavesTheLowBits) {
  for (uint32_t i = 0; i < 10'000; ++i) {
    const uint16_t tag = wire::make_flow_tag(i * 7919, i * 104729, i * 1299709);
    EXPECT_GE(tag, wire::kFlowTagBase);
    EXPECT_EQ(tag & ~wire::kFlowTagMask & 0xffff, 0);
    for (const uint16_t spray : {0, 1, 15})
      EXPECT_EQ(wire::flow_tag(static_cast<uint16_t>(tag | spray)), tag);
  }
}

// What a new connection changes is one input, or one bit of it: about 1 in 1024 may collide.
TEST(FlowTag, DependsOnEachInput) {
  constexpr uint32_t kTries = 20'000;
  std::array<uint32_t, 4> same{};
  for (uint32_t i = 0; i < kTries; ++i) {
    const uint32_t a = i * 2654435761u >> 8, b = i * 40503u & 0xffffff, psn = i * 97u & 0xffffff;
    const uint16_t tag = wire::make_flow_tag(a, b, psn);
    same[0] += wire::make_flow_tag(a ^ 0x10000, b, psn) == tag;  // the generation of an index
    same[1] += wire::make_flow_tag(a, b ^ 0x10000, psn) == tag;
    same[2] += wire::make_flow_tag(a, b, psn ^ (1u << i % 24)) == tag;
    same[3] += wire::make_flow_tag(b, a, psn) == tag && a != b;
  }
  for (const uint32_t count : same) EXPECT_LT(count, kTries / 1024 * 3);
}

TEST(FlowTag, SpreadsOverAllValues) {
  std::map<uint16_t, uint32_t> counts;
  for (uint32_t qpn = 0; qpn < 64; ++qpn) {
    for (uint32_t psn = 0; psn < 512; ++psn) ++counts[wire::make_flow_tag(qpn + 2, 2, psn)];
  }
  EXPECT_EQ(counts.size(), 1024u);
  for (const auto& [tag, count] : counts) EXPECT_LT(count, 100u) << "32 is the average";
}

// ---- memory regions

MrTable::Init region(uint32_t client, uint64_t va = 0x10000, uint64_t iova = 0x10000) {
  MrTable::Init init;
  init.client_id = client;
  init.pd = 3;
  init.access = kAccessLocalWrite;
  init.va = va;
  init.iova = iova;
  init.length_bytes = 4096;
  return init;
}

TEST(MrTable, FindsWhatWasAdded) {
  MrTable table(8);
  const uint32_t key = table.add(region(1, 0x7000, 0x100));
  ASSERT_NE(key, 0u);
  const MemoryRegionEntry* entry = table.find(key);
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->client_id, 1u);
  EXPECT_EQ(entry->pd, 3u);
  EXPECT_EQ(entry->iova, 0x100u);
  EXPECT_EQ(entry->iova + entry->va_delta, 0x7000u);
  EXPECT_EQ(table.size(), 1u);
  // An iova above the address: the difference wraps.
  const uint32_t high = table.add(region(1, 0x1000, 0xffff000000000000));
  EXPECT_EQ(table.find(high)->iova + table.find(high)->va_delta, 0x1000u);
}

TEST(MrTable, EveryOtherKeyIsUnknown) {
  MrTable table(5);  // of eight indices
  EXPECT_EQ(table.find(0), nullptr);
  std::set<uint32_t> keys;
  for (int i = 0; i < 5; ++i) keys.insert(table.add(region(1)));
  ASSERT_EQ(keys.size(), 5u);
  for (const uint32_t key : keys) {
    for (int bit = 0; bit < 32; ++bit)
      EXPECT_EQ(table.find(key ^ 1u << bit), nullptr) << "a bit of the tag, or of the index";
  }
  uint32_t found = 0;
  for (uint32_t upper = 0; upper < 1u << 16; ++upper) {
    for (const uint32_t key : keys) found += table.find(upper << 16 | (key & 0xffff)) != nullptr;
  }
  EXPECT_EQ(found, 5u) << "indices beyond the table, and windows' keys";
  EXPECT_EQ(table.find(0xffffffff), nullptr);
}

TEST(MrTable, AKeyCanMeanAnotherRegion) {
  MrTable table(4);
  uint32_t key = table.add(region(1, 0x7000));
  table.find(key)->windows_bound = 1;
  EXPECT_TRUE(table.has_windows(key, 1));
  ASSERT_TRUE(table.invalidate(key, 1));
  EXPECT_TRUE(table.has_windows(key, 1)) << "bound just before";
  EXPECT_FALSE(table.has_windows(key, 2));
  table.restore(key);
  ASSERT_NE(table.find(key), nullptr);
  EXPECT_EQ(table.find(key)->iova + table.find(key)->va_delta, 0x7000u);
  table.find(key)->windows_bound = 0;
  ASSERT_TRUE(table.invalidate(key, 1));
  MrTable::Init other = region(1, 0x9000, 0x5000);
  other.access = kAccessRemoteRead;
  other.pieces = {{0x9000, 4096, nullptr, 0, 0, true}};
  EXPECT_TRUE(table.replace(key, std::move(other)).empty()) << "there was nothing to unmap";
  const MemoryRegionEntry* entry = table.find(key);
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->iova, 0x5000u);
  EXPECT_EQ(entry->access, uint32_t{kAccessRemoteRead});
  EXPECT_EQ(table.size(), 1u);
  ASSERT_TRUE(table.invalidate(key, 1));
  EXPECT_EQ(table.reclaim(key).size(), 1u);
  EXPECT_FALSE(table.has_windows(key, 1));
}

// A key says whether its addresses are sole ones, and never too much.
TEST(MrTable, KeysSayWhetherTheirAddressesAreSole) {
  MrTable table(16);
  for (int i = 0; i < 8; ++i) {
    MrTable::Init sole = region(1), other = region(1);
    sole.sole_addresses = true;
    uint32_t key = table.add(std::move(sole));
    EXPECT_TRUE(has_sole_addresses(key));
    EXPECT_FALSE(has_sole_addresses(key | kWindowKeyBit)) << "a window's";
    EXPECT_FALSE(has_sole_addresses(table.add(std::move(other))));

    MrTable::Init next = region(1, 0x9000);
    next.sole_addresses = true;
    const uint32_t first = key;
    ASSERT_TRUE(table.invalidate(key, 1));
    table.replace(key, std::move(next));
    EXPECT_EQ(key, first);
    ASSERT_TRUE(table.invalidate(key, 1));
    table.replace(key, region(1, 0xa000));
    EXPECT_FALSE(has_sole_addresses(key));
    EXPECT_EQ(table.find(first), nullptr);
    ASSERT_NE(table.find(key), nullptr);
    ASSERT_TRUE(table.invalidate(key, 1));
    table.reclaim(key);
  }
}

namespace {

MemoryChange moved(uint64_t va, uint64_t length_bytes, uint64_t to) {
  return {va, length_bytes, MemoryChangeKind::kMoved, 0, to};
}

}  // namespace

TEST(MrTable, KeysFollowMemoryThatMoves) {
  MrTable table(4);
  MrTable::Init init = region(1, 0x10000);
  init.pieces = {{.va = 0x10000, .length_bytes = 0x4000, .space_id = 7, .space_offset = 0x10000}};
  const uint32_t key = table.add(std::move(init));
  EXPECT_TRUE(table.follow(2, moved(0x10000, 0x4000, 0x50000)).empty()) << "another client's";
  EXPECT_TRUE(table.follow(1, moved(0x14000, 0x4000, 0x50000)).empty()) << "behind it";
  table.follow(1, moved(0x11000, 0x2000, 0x50000)).take_effect();
  const MemoryRegionEntry* entry = table.find(key);
  ASSERT_EQ(entry->pieces.size(), 3u);
  const MappedPiece& middle = entry->pieces[1];
  EXPECT_EQ(entry->pieces[0].client_address(0xfff), 0x10fffu);
  EXPECT_EQ(middle.va, 0x11000u);
  EXPECT_EQ(middle.client_address(0x10), 0x50010u);
  EXPECT_EQ(middle.space_offset, 0x50000u) << "what is mapped at the old place next is not this";
  EXPECT_EQ(entry->pieces[2].va, 0x13000u);
  EXPECT_EQ(entry->pieces[2].client_address(0), 0x13000u);
  // A part of it moves on, downwards; what has left is not at the old place any more.
  EXPECT_TRUE(table.follow(1, {.va = 0x11000, .length_bytes = 0x2000}).empty());
  table.follow(1, moved(0x51000, 0x1000, 0x2000)).take_effect();
  ASSERT_EQ(entry->pieces.size(), 4u);
  EXPECT_EQ(entry->pieces[1].client_address(0), 0x50000u);
  EXPECT_EQ(entry->pieces[2].va, 0x12000u);
  EXPECT_EQ(entry->pieces[2].client_address(5), 0x2005u);
  table.follow(1, {.va = 0x2000, .length_bytes = 0x1000}).take_effect();
  EXPECT_TRUE(entry->pieces[2].gone && entry->partly_gone);
  EXPECT_TRUE(table.follow(1, moved(0x2000, 0x1000, 0x9000)).empty()) << "gone for good";
}

// The keys to memory that is cut off are out of use, and can be deregistered.
TEST(MrTable, KeysToMemoryThatIsCutOffAreNoneAnyMore) {
  constexpr size_t kPage = 4096;
  ASSERT_TRUE(install_sigbus_guard());
  const int file = memfd_create("cut off", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(file, 4 * kPage), 0);
  auto* const at = static_cast<std::byte*>(
      mmap(nullptr, 4 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  std::atomic<bool> cut_off{false};
  ASSERT_TRUE(add_sigbus_range(at, 4 * kPage, kPage, &cut_off));
  MrTable table(8);
  const auto add = [&](uint32_t client, uint64_t first, uint64_t pages) {
    MrTable::Init init = region(client, 0x10000);
    init.pieces = {{.va = 0x10000, .length_bytes = pages * kPage, .host = at + first * kPage}};
    return table.add(std::move(init));
  };
  const uint32_t whole = add(1, 0, 4), front = add(1, 0, 2), far = add(2, 0, 4);
  uint32_t back = add(1, 3, 1);
  EXPECT_EQ(table.cut_off(1), 0u);
  ASSERT_EQ(ftruncate(file, 2 * kPage), 0);
  EXPECT_EQ(at[3 * kPage], std::byte{0});
  forget_fault();
  EXPECT_TRUE(cut_off.load());
  EXPECT_EQ(table.cut_off(1), 2u);
  EXPECT_EQ(table.find(whole), nullptr);
  EXPECT_EQ(table.find(back), nullptr);
  EXPECT_NE(table.find(front), nullptr);
  EXPECT_NE(table.find(far), nullptr) << "another client's";
  EXPECT_EQ(table.cut_off(1), 0u);
  EXPECT_EQ(table.keys_of(1).size(), 3u) << "the client has them still";
  EXPECT_FALSE(table.invalidate(whole, 2));
  EXPECT_TRUE(table.invalidate(whole, 1));
  table.restore(whole);
  EXPECT_EQ(table.find(whole), nullptr) << "what is cut off stays so";
  EXPECT_EQ(table.reclaim(whole).size(), 1u);
  EXPECT_FALSE(table.invalidate(whole, 1));
  // A key may mean another region from then on.
  EXPECT_TRUE(table.invalidate(back, 1));
  EXPECT_EQ(table.replace(back, region(1, 0x20000)).size(), 1u);
  EXPECT_NE(table.find(back), nullptr);
  EXPECT_TRUE(table.invalidate(back, 1));
  table.restore(back);
  EXPECT_NE(table.find(back), nullptr);
  remove_sigbus_range(at);
  munmap(at, 4 * kPage);
  close(file);
}

TEST(MrTable, MemoryThatLeavesTheMirrorIsReachedByTheMemFd) {
  std::byte memory[0x4000], own[1];
  MemoryGate gate{};
  MrTable table(4);
  MrTable::Init init = region(1, 0x10000);
  init.gate = &gate;
  init.pieces = {{.va = 0x10000, .length_bytes = 0x4000, .host = memory, .in_mirror = true},
                 {.va = 0x14000, .length_bytes = 0x1000, .host = own}};
  const uint32_t key = table.add(std::move(init));
  const MemoryRegionEntry* entry = table.find(key);
  EXPECT_EQ(entry->gate, nullptr);
  auto change =
      table.follow(1, {.va = 0x11000, .length_bytes = 0x9000, .kind = MemoryChangeKind::kOutside});
  EXPECT_EQ(change.bytes_left(), 0x3000u) << "shared memory of the program's own keeps its mapping";
  change.take_effect();
  EXPECT_EQ(entry->gate, &gate);
  ASSERT_EQ(entry->pieces.size(), 3u);
  EXPECT_EQ(entry->pieces[0].host, memory);
  EXPECT_TRUE(entry->pieces[1].by_mem_fd());
  EXPECT_EQ(entry->pieces[1].mapping(), memory + 0x1000) << "packets under way read it";
  EXPECT_EQ(entry->pieces[2].host, own);
  table.follow(1, moved(0x11000, 0x3000, 0x80000)).take_effect();
  EXPECT_EQ(entry->pieces[1].client_address(0), 0x80000u);
  table.invalidate(key, 1);
  size_t mappings = 0;
  for (const MappedPiece& piece : table.reclaim(key))
    mappings += piece.mapping() != nullptr && !piece.is_rest;
  EXPECT_EQ(mappings, 2u) << "each mapping is given back once";
}

// A client can't make the list of a region's pieces grow without end.
TEST(MrTable, PiecesAreBoundedAndJoined) {
  constexpr uint64_t kPages = 40'000, kPage = 0x1000, kStart = 0x100000;
  MrTable table(4);
  MrTable::Init init = region(1, kStart);
  for (uint64_t i = 0; i < 16'384; ++i)  // every second page has moved, each to its own place
    init.pieces.push_back({.va = kStart + i * kPage,
                           .length_bytes = kPage,
                           .space_offset = kStart + i * kPage,
                           .moved_by = i % 2 * (i << 32)});
  init.pieces.back().length_bytes += (kPages - 16'384) * kPage;
  const uint32_t key = table.add(std::move(init));
  const MemoryRegionEntry* entry = table.find(key);
  const uint64_t last = entry->pieces.back().client_address(0);
  table.follow(1, moved(last + 2 * kPage, kPage, 0x7000)).take_effect();
  EXPECT_EQ(entry->pieces.size(), 1u) << "an access is an error from now on";
  EXPECT_TRUE(entry->pieces[0].gone && entry->partly_gone);
  EXPECT_EQ(entry->pieces[0].length_bytes, kPages * kPage);

  MrTable::Init other = region(2, kStart);
  other.pieces = {{.va = kStart, .length_bytes = 8 * kPage, .space_offset = kStart}};
  const MemoryRegionEntry* second = table.find(table.add(std::move(other)));
  table.follow(2, moved(kStart + kPage, kPage, 0x7000)).take_effect();
  EXPECT_EQ(second->pieces.size(), 3u);
  table.follow(2, moved(0x7000, kPage, kStart + kPage)).take_effect();
  EXPECT_EQ(second->pieces.size(), 1u) << "it is where it was";
}

TEST(MrTable, LatePiecesBecomeOrdinaryWhenAllIsFilled) {
  std::byte memory[3], other[1];
  uint8_t slices[2] = {};
  const MappedPiece mapped{.va = 0x1000, .length_bytes = 4096, .host = memory};
  const MappedPiece late{.va = 0x2000, .length_bytes = 4096, .late_host = other, .slices = slices};
  const MappedPiece by_mem_fd{.va = 0x3000, .length_bytes = 4096};
  MrTable table(4);
  MrTable::Init init = region(1, 0x1000);
  init.pieces = {mapped, late, by_mem_fd};
  const uint32_t key = table.add(std::move(init));
  table.follow(1, {.va = 0x1000, .length_bytes = 0x3000}).take_effect();
  EXPECT_FALSE(table.late_pieces(key, 2).has_value()) << "another client's";
  EXPECT_FALSE(table.late_pieces(key ^ 1, 1).has_value());
  EXPECT_TRUE(table.end_lateness(key, 2).empty());
  const auto found = table.late_pieces(key, 1);
  ASSERT_TRUE(found.has_value());
  ASSERT_EQ(found->size(), 1u);
  EXPECT_EQ(found->front().va, late.va);
  auto change = table.end_lateness(key, 1);
  const MemoryRegionEntry* entry = table.find(key);
  EXPECT_EQ(entry->pieces[1].host, nullptr) << "not yet";
  change.take_effect();
  ASSERT_EQ(entry->pieces.size(), 3u);
  EXPECT_EQ(entry->pieces[0].host, memory);
  EXPECT_EQ(entry->pieces[1].host, other);
  EXPECT_EQ(entry->pieces[1].slices, slices) << "to be unmapped";
  EXPECT_EQ(entry->pieces[2].host, nullptr);
  EXPECT_TRUE(entry->pieces[2].gone && entry->partly_gone);
  EXPECT_TRUE(table.late_pieces(key, 1)->empty());
  table.end_lateness(key, 1).take_effect();  // once more
  EXPECT_EQ(entry->pieces[1].host, other);
  table.invalidate(key, 1);
  EXPECT_FALSE(table.late_pieces(key, 1).has_value());
  EXPECT_TRUE(table.end_lateness(key, 1).empty());
}

TEST(LatePiece, IsReachedWhereItsSlicesAreFilled) {
  constexpr auto kAside = static_cast<uint8_t>(SliceState::kAside);
  constexpr auto kWanted = static_cast<uint8_t>(SliceState::kWanted);
  constexpr uint8_t kFilled = 0, kNonsense = 77;
  std::byte memory[1];
  std::array<uint8_t, 6> slices = {kFilled, kFilled, kAside, kAside, kNonsense, kFilled};
  const MappedPiece piece{.va = 0x40000000,
                          .length_bytes = slices.size() * kSliceBytes,
                          .late_host = memory,
                          .slices = slices.data()};
  EXPECT_EQ(address_now(piece, 0, 2 * kSliceBytes), memory);
  EXPECT_EQ(address_now(piece, kSliceBytes + 5, 8), memory + kSliceBytes + 5);
  EXPECT_EQ(address_now(piece, 2 * kSliceBytes - 1, 2), nullptr);
  EXPECT_EQ(slices[2], kWanted);
  EXPECT_EQ(slices[3], kAside);
  EXPECT_EQ(address_now(piece, 4 * kSliceBytes + 100, 4096), nullptr);
  EXPECT_EQ(slices[4], kNonsense) << "not ours to change";
  EXPECT_EQ(address_now(piece, 0, piece.length_bytes), nullptr);
  EXPECT_EQ(slices,
            (std::array<uint8_t, 6>{kFilled, kFilled, kWanted, kWanted, kNonsense, kFilled}));
  slices[2] = slices[3] = kFilled;
  EXPECT_EQ(address_now(piece, 2 * kSliceBytes - 1, 2 * kSliceBytes), memory + 2 * kSliceBytes - 1);
}

// What leaves the mirror in the midst of late memory leaves the rest where it is: for the program
// it is still in the mirror, and goes on from there.
TEST(LatePiece, IsCutWhereAPartLeavesTheMirror) {
  constexpr uint64_t kStart = 0x40000000, kFrom = kSliceBytes + 0x3000,
                     kTo = 2 * kSliceBytes + 0x1000;
  constexpr auto kAside = static_cast<uint8_t>(SliceState::kAside);
  std::byte memory[1];
  std::array<uint8_t, 4> slices = {0, 0, 0, kAside};
  MrTable table(4);
  MrTable::Init init = region(1, kStart);
  init.pieces = {{.va = kStart,
                  .length_bytes = slices.size() * kSliceBytes,
                  .late_host = memory,
                  .slices = slices.data(),
                  .in_mirror = true}};
  const uint32_t key = table.add(std::move(init));
  const MemoryRegionEntry* entry = table.find(key);
  auto change = table.follow(
      1, {.va = kStart + kFrom, .length_bytes = kTo - kFrom, .kind = MemoryChangeKind::kOutside});
  EXPECT_EQ(change.bytes_left(), kTo - kFrom);
  change.take_effect();
  ASSERT_EQ(entry->pieces.size(), 3u);
  EXPECT_EQ(address_now(entry->pieces[0], kFrom - 8, 8), memory + kFrom - 8);
  EXPECT_TRUE(entry->pieces[1].by_mem_fd());
  const MappedPiece& rest = entry->pieces[2];
  EXPECT_EQ(rest.va, kStart + kTo);
  EXPECT_EQ(address_now(rest, 0, kSliceBytes - 0x1000), memory + kTo) << "to its slice's end";
  EXPECT_EQ(slices[3], kAside);
  EXPECT_EQ(address_now(rest, 0, kSliceBytes), nullptr) << "goes on in the slice that lies aside";
  EXPECT_EQ(slices[3], static_cast<uint8_t>(SliceState::kWanted));
  table.invalidate(key, 1);
  size_t mappings = 0;
  for (const MappedPiece& piece : table.reclaim(key))
    mappings += piece.mapping() != nullptr && !piece.is_rest;
  EXPECT_EQ(mappings, 1u);
}

TEST(MrTable, TagsAreNotPredictableByCounting) {
  MrTable table(256);
  std::set<uint32_t> tags;
  for (int i = 0; i < 256; ++i) tags.insert(table.add(region(1)) & 0xfff);
  EXPECT_GT(tags.size(), 200u);
}

// An index takes no more bits than the table needs: all the others of 31 are random.
TEST(MrTable, TagsHaveAllBitsThatAreLeft) {
  for (const auto& [capacity, index_bits] : {std::pair{1u, 0u}, {2u, 1u}, {256u, 8u}, {257u, 9u}}) {
    MrTable table(capacity, /*seed=*/0);
    uint32_t set = 0, clear = 0;
    std::set<uint32_t> indices;
    for (int round = 0; round < 64; ++round) {
      std::vector<uint32_t> keys;
      for (uint32_t i = 0; i < capacity; ++i) keys.push_back(table.add(region(1)));
      for (const uint32_t key : keys) {
        ASSERT_NE(table.find(key), nullptr);
        set |= key;
        clear |= ~key;
        indices.insert(static_cast<uint32_t>(uint64_t{key} >> (31 - index_bits)));
        ASSERT_TRUE(table.invalidate(key, 1));
        table.reclaim(key);
      }
    }
    EXPECT_EQ(indices.size(), capacity);
    EXPECT_EQ(*indices.rbegin(), capacity - 1);
    const uint32_t tag_mask = ((1u << (31 - index_bits)) - 1) & ~kSoleAddressBit;
    EXPECT_EQ(set & tag_mask, tag_mask) << capacity;
    EXPECT_EQ(clear & tag_mask, tag_mask) << capacity;
    EXPECT_EQ(set >> 31, 0u) << "that bit is windows'";
  }
}

TEST(MrTable, HoldsExactlyItsCapacity) {
  MrTable table(5);
  EXPECT_EQ(table.capacity(), 5u);
  std::vector<uint32_t> keys;
  for (int i = 0; i < 5; ++i) keys.push_back(table.add(region(1)));
  for (const uint32_t key : keys) EXPECT_NE(key, 0u);
  EXPECT_EQ(table.add(region(1)), 0u);
  EXPECT_EQ(table.size(), 5u);
  ASSERT_TRUE(table.invalidate(keys[2], 1));
  EXPECT_EQ(table.add(region(1)), 0u) << "not reclaimed yet";
  table.reclaim(keys[2]);
  EXPECT_NE(table.add(region(1)), 0u);
}

TEST(MrTable, InvalidateIsTheOwnersOnly) {
  MrTable table(4);
  const uint32_t key = table.add(region(1));
  EXPECT_FALSE(table.invalidate(key, 2));
  EXPECT_FALSE(table.invalidate(key ^ 1, 1));
  EXPECT_FALSE(table.invalidate(0, 1));
  EXPECT_FALSE(table.invalidate(0xfffff000, 1));
  EXPECT_NE(table.find(key), nullptr);
  EXPECT_TRUE(table.invalidate(key, 1));
  EXPECT_EQ(table.find(key), nullptr);
  EXPECT_FALSE(table.invalidate(key, 1)) << "once";
  EXPECT_EQ(table.size(), 1u) << "its memory is still mapped";
}

TEST(MrTable, ReclaimHandsOutThePiecesOnce) {
  MrTable table(4);
  MrTable::Init init = region(1);
  init.pieces.resize(3);
  const uint32_t key = table.add(std::move(init));
  ASSERT_TRUE(table.invalidate(key, 1));
  EXPECT_EQ(table.reclaim(key ^ 1).size(), 0u);
  EXPECT_EQ(table.reclaim(key).size(), 3u);
  EXPECT_EQ(table.size(), 0u);
  EXPECT_EQ(table.reclaim(key).size(), 0u);
  EXPECT_EQ(table.reclaim(0).size(), 0u);
  EXPECT_EQ(table.reclaim(0xfffff000).size(), 0u);
  EXPECT_EQ(table.size(), 0u) << "what is not there is not counted";
  std::set<uint32_t> indices;
  for (int i = 0; i < 4; ++i) indices.insert(table.add(region(1)) >> 29);
  EXPECT_EQ(indices.size(), 4u);
}

TEST(MrTable, IndicesAreReusedOldestFirst) {
  MrTable table(4);
  std::vector<uint32_t> keys;
  for (int i = 0; i < 4; ++i) keys.push_back(table.add(region(1)));
  for (const size_t i : {2u, 0u, 3u}) {
    ASSERT_TRUE(table.invalidate(keys[i], 1));
    table.reclaim(keys[i]);
  }
  for (const size_t i : {2u, 0u, 3u}) {
    const uint32_t key = table.add(region(1));
    EXPECT_EQ(key >> 29, keys[i] >> 29);
    EXPECT_EQ(table.find(keys[i]) != nullptr, key == keys[i]) << "the old key is dead";
  }
}

TEST(MrTable, KnowsTheKeysOfAClient) {
  MrTable table(8);
  const uint32_t a = table.add(region(1)), b = table.add(region(2)), c = table.add(region(1));
  const std::vector<uint32_t> keys = table.keys_of(1);
  EXPECT_EQ(keys.size(), 2u);
  EXPECT_EQ(std::set(keys.begin(), keys.end()), (std::set{a, c}));
  EXPECT_EQ(table.keys_of(2), std::vector<uint32_t>{b});
  EXPECT_TRUE(table.keys_of(3).empty());
  table.invalidate(a, 1);
  EXPECT_EQ(table.keys_of(1), std::vector<uint32_t>{c});
}

// An lcore that found it before may still be at it.
TEST(MrTable, Rule12_AnInvalidatedRegionStaysWholeUntilReclaimed) {
  MrTable table(1);
  MrTable::Init init = region(1, 0x7000, 0x100);
  init.mem_fd = 9;
  init.pieces.resize(2);
  const uint32_t key = table.add(std::move(init));
  const MemoryRegionEntry* in_use = table.find(key);
  ASSERT_NE(in_use, nullptr);
  ASSERT_TRUE(table.invalidate(key, 1));
  EXPECT_EQ(table.find(key), nullptr);
  EXPECT_EQ(table.add(region(1)), 0u) << "its place is not given away";
  EXPECT_EQ(in_use->pieces.size(), 2u);
  EXPECT_EQ(in_use->iova, 0x100u);
  EXPECT_EQ(in_use->mem_fd, 9);
  EXPECT_EQ(table.reclaim(key).size(), 2u);
}

TEST(MrTable, ReferencedWhilePacketsAreOut) {
  MrTable table(4);
  const uint32_t key = table.add(region(1));
  MemoryRegionEntry* entry = table.find(key);
  EXPECT_FALSE(table.referenced(key));
  entry->mbufs_out.fetch_add(2);
  table.invalidate(key, 1);
  EXPECT_TRUE(table.referenced(key)) << "also after nobody finds it";
  entry->mbufs_out.fetch_sub(2);
  EXPECT_FALSE(table.referenced(key));
  EXPECT_FALSE(table.referenced(0xfffff000));
}

TEST(MrTable, WindowsHoldARegionOfTheOwners) {
  MrTable table(4);
  const uint32_t key = table.add(region(1));
  EXPECT_FALSE(table.has_windows(key, 1));
  table.find(key)->windows_bound.fetch_add(1);
  EXPECT_TRUE(table.has_windows(key, 1));
  EXPECT_FALSE(table.has_windows(key, 2));
  table.invalidate(key, 1);
  table.reclaim(key);
  const uint32_t next = table.add(region(1));
  EXPECT_FALSE(table.has_windows(next, 1)) << "whoever comes after it";
}

// ---- memory windows

TEST(WindowTable, KeysAreNoRegionsAndNotGuessed) {
  MrTable regions(1u << 20);
  WindowTable table(regions);
  std::set<uint32_t> keys, steps;
  uint32_t before = 0;
  for (int i = 0; i < 64; ++i) {
    const uint32_t key = table.add(1, 1, WindowType::k2);
    ASSERT_NE(key & kWindowKeyBit, 0u);
    EXPECT_EQ(regions.find(key), nullptr);
    keys.insert(key);
    steps.insert(key - before);
    before = key;
  }
  EXPECT_EQ(keys.size(), 64u);
  EXPECT_GT(steps.size(), 32u) << "in equal steps";
  EXPECT_LE(regions.capacity(), 1u << 19) << "region keys never have the windows' bit";
}

TEST(WindowTable, FindsByTheVeryKeyOwnersByAny) {
  MrTable regions(1);
  WindowTable table(regions);
  const uint32_t key = table.add(1, 7, WindowType::k1);
  ASSERT_NE(table.find(key), nullptr);
  EXPECT_EQ(table.find(key)->pd, 7u);
  EXPECT_FALSE(table.find(key)->bound);
  EXPECT_EQ(table.find(key ^ 1), nullptr);
  EXPECT_EQ(table.find(0), nullptr);
  EXPECT_EQ(table.find(key & ~kWindowKeyBit), nullptr);
  EXPECT_EQ(table.find(0xffffffff), nullptr);
  EXPECT_EQ(table.find_own(key ^ 1, 1), table.find(key));
  EXPECT_EQ(table.find_own(key, 2), nullptr) << "another client's";
  EXPECT_EQ(table.find_own(0xffffffff, 1), nullptr);
  EXPECT_EQ(table.destroy(2, key), EINVAL) << "another client's";
  EXPECT_EQ(table.destroy(1, key), 0);
  EXPECT_EQ(table.find(key), nullptr);
  EXPECT_EQ(table.find_own(key, 1), nullptr);
  EXPECT_EQ(table.find_own(key, 0), nullptr) << "nobody's is no client's";
}

TEST(WindowTable, FullRefusesUntilOneGoes) {
  MrTable regions(1);
  WindowTable table(regions);
  uint32_t first = 0;
  for (uint32_t i = 0; i < kMaxWindows; ++i) {
    const uint32_t key = table.add(1, 1, WindowType::k1);
    ASSERT_NE(key, 0u);
    if (i == 0) first = key;
  }
  EXPECT_EQ(table.add(1, 1, WindowType::k1), 0u);
  EXPECT_EQ(table.destroy(1, first), 0);
  const uint32_t again = table.add(1, 1, WindowType::k1);
  EXPECT_EQ((again ^ first) & ~kWindowTagMask, 0u);
  EXPECT_EQ(table.add(1, 1, WindowType::k1), 0u);
}

}  // namespace
}  // namespace hostnic
