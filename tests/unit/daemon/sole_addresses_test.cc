// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/clients/sole_addresses.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <vector>

namespace hostnic {
namespace {

std::byte somewhere;

MappedPiece piece(VirtualAddress va, uint32_t space_id, uint64_t space_offset) {
  return {.va = va,
          .length_bytes = 4096,
          .host = &somewhere,
          .space_id = space_id,
          .space_offset = space_offset};
}

bool note(SoleAddresses& addresses, const MappedPiece& one) {
  return addresses.note(std::span(&one, 1));
}

TEST(SoleAddresses, AFileThatIsMappedTwiceHasThemOnce) {
  SoleAddresses addresses;
  EXPECT_TRUE(note(addresses, piece(0x10000, 1, 0x10000))) << "a mirror";
  EXPECT_TRUE(note(addresses, piece(0x20000, 1, 0x20000)));
  EXPECT_TRUE(note(addresses, piece(0x50000, 2, 0x1000)));
  EXPECT_TRUE(note(addresses, piece(0x52000, 2, 0x3000))) << "another part of one mapping";
  EXPECT_FALSE(note(addresses, piece(0x90000, 2, 0x1000))) << "a second mapping";
  EXPECT_FALSE(note(addresses, piece(0x52000, 2, 0x1000))) << "where the first one's next page was";
  EXPECT_TRUE(note(addresses, piece(0x90000, 3, 0x1000))) << "of another file";
}

TEST(SoleAddresses, EachPieceCounts) {
  SoleAddresses addresses;
  const std::vector<MappedPiece> twice = {piece(0x1000, 1, 0), piece(0x2000, 1, 0)};
  EXPECT_FALSE(addresses.note(twice)) << "the same page twice in one region";
  MappedPiece by_mem_fd = piece(0x3000, 1, 0x2000);
  by_mem_fd.host = nullptr;
  EXPECT_FALSE(note(addresses, by_mem_fd)) << "whatever is mapped there";
  MappedPiece late = piece(0x4000, 1, 0x3000);
  late.late_host = late.host;
  late.host = nullptr;
  EXPECT_TRUE(note(addresses, late));
}

TEST(SoleAddresses, NobodyHasThemOnceMemoryHasMoved) {
  SoleAddresses addresses;
  EXPECT_TRUE(note(addresses, piece(0x1000, 1, 0)));
  addresses.note_move();
  EXPECT_FALSE(note(addresses, piece(0x1000, 1, 0)));
}

TEST(SoleAddresses, AreBounded) {
  SoleAddresses addresses;
  for (uint32_t file = 0; file < SoleAddresses::kMaxFiles; ++file)
    ASSERT_TRUE(note(addresses, piece(0x1000, file, 0)));
  EXPECT_FALSE(note(addresses, piece(0x1000, SoleAddresses::kMaxFiles, 0)));
  EXPECT_TRUE(note(addresses, piece(0x1000, 7, 0)));
}

}  // namespace
}  // namespace hostnic
