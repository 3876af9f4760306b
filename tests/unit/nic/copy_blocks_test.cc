// SPDX-License-Identifier: BSD-3-Clause
// Blocks for copied payloads (docs/transport.md rule 31).
#include "dataplane/nic/packet/copy_blocks.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "dataplane/nic/packet/external_payload.h"

namespace hostnic {
namespace {

TEST(CopyBlocks, Rule31_ABlockIsFreeWhenNoPacketRefersToIt) {
  CopyBlocks blocks;
  PayloadReferences references;
  std::vector<ExternalPayload> packets;
  std::set<std::byte*> places;
  for (uint32_t i = 0; i < CopyBlocks::kBlocks; ++i) {
    const CopyBlocks::Block block = blocks.find_free();
    ASSERT_NE(block.region, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block.bytes) % 64, 0u);
    EXPECT_TRUE(places.insert(block.bytes).second);
    block.bytes[0] = block.bytes[CopyBlocks::kBlockBytes - 1] = std::byte{1};
    packets.push_back({block.bytes, block.region, blocks.packets()});
    references.acquire(*block.region, *blocks.packets(), 1);
    references.flush();
  }
  EXPECT_EQ(blocks.find_free().region, nullptr);
  // Another packet for a part of the payload, as impairments make it.
  references.acquire_again(packets[5]);
  references.flush();
  references.release(packets[5]);
  references.flush();
  EXPECT_EQ(blocks.find_free().region, nullptr);
  references.release(packets[5]);
  EXPECT_EQ(blocks.find_free().region, nullptr) << "it is in stock";
  references.flush();
  EXPECT_EQ(blocks.find_free().bytes, packets[5].bytes);
  for (const ExternalPayload& packet : packets)
    if (&packet != &packets[5]) references.release(packet);
}

// A NIC may end before packets of its have been placed.
TEST(CopyBlocks, Rule31_BlocksOutliveTheirNicWhilePacketsReferToThem) {
  std::byte* place = nullptr;
  ExternalPayload packet{};
  {
    CopyBlocks blocks;
    const CopyBlocks::Block block = blocks.find_free();
    place = block.bytes;
    place[0] = std::byte{42};
    packet = {block.bytes, block.region, blocks.packets()};
    PayloadReferences references;
    references.acquire(*block.region, *blocks.packets(), 1);
  }
  {
    CopyBlocks others;
    EXPECT_NE(others.find_free().bytes, place);
    EXPECT_EQ(packet.bytes[0], std::byte{42});
  }
  PayloadReferences::release_one(packet);
  // Now they serve again: no NIC that comes needs more memory than those before it.
  std::vector<std::unique_ptr<CopyBlocks>> all;
  bool again = false;
  for (int i = 0; i < 3; ++i) {
    all.push_back(std::make_unique<CopyBlocks>());
    again = again || all.back()->find_free().bytes == place;
  }
  EXPECT_TRUE(again);
}

}  // namespace
}  // namespace hostnic
