// SPDX-License-Identifier: BSD-3-Clause
// The board of objects: what the library shows is what hostnicd reads, and a board that anybody has
// scribbled on is read without harm.
#include "verbs-shim/driver/object_list.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

namespace hostnic::driver {
namespace {

class ObjectBoards : public testing::Test {
 protected:
  void SetUp() override { list_.use(*board_); }
  std::unique_ptr<ObjectBoard> board_ = std::make_unique<ObjectBoard>();
  ObjectList list_;
};

TEST_F(ObjectBoards, ShowWhatThereIs) {
  const uint32_t pd = list_.add({.kind = ObjectKind::kPd, .handle = 1});
  const uint32_t cq = list_.add({.kind = ObjectKind::kCq, .handle = 2, .entries = 64});
  list_.add({.kind = ObjectKind::kSrq, .handle = 3, .pd = 1, .entries = 16});
  list_.set_users(cq, 5);
  list_.set_entries(cq, 128);
  list_.remove(pd);
  const auto lines = lines_of(*board_);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].kind, ObjectKind::kCq);
  EXPECT_EQ(lines[0].handle, 2u);
  EXPECT_EQ(lines[0].users, 5u);
  EXPECT_EQ(lines[0].entries, 128u);
  EXPECT_EQ(lines[1].pd, 1u);
  EXPECT_EQ(list_.add({.kind = ObjectKind::kPd, .handle = 4}), pd) << "the line is free again";
  EXPECT_EQ(lines_of(*board_).size(), 3u);
}

TEST_F(ObjectBoards, BeingFullIsNoError) {
  for (uint32_t i = 0; i < kBoardEntries; ++i)
    EXPECT_NE(list_.add({.kind = ObjectKind::kPd, .handle = i}), ObjectList::kNoLine);
  const uint32_t none = list_.add({.kind = ObjectKind::kPd});
  EXPECT_EQ(none, ObjectList::kNoLine);
  list_.set_users(none, 1);
  list_.remove(none);
  EXPECT_EQ(lines_of(*board_).size(), kBoardEntries);
}

TEST_F(ObjectBoards, WithoutABoardNothingIsShown) {
  ObjectList none;
  EXPECT_EQ(none.add({.kind = ObjectKind::kPd}), ObjectList::kNoLine);
}

TEST_F(ObjectBoards, NonsenseIsReadWithoutHarm) {
  memset(static_cast<void*>(board_.get()), 0xff, sizeof(ObjectBoard));
  EXPECT_TRUE(lines_of(*board_).empty());
}

}  // namespace
}  // namespace hostnic::driver
