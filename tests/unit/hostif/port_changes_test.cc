// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <vector>

#include "protocol/hostif/segment.h"

namespace hostnic {
namespace {

// The states of which a program hears that heard of `told` changes.
std::vector<bool> heard(uint32_t told, uint32_t port_changes) {
  std::vector<bool> states;
  for (uint32_t left = port_changes_to_tell(told, port_changes); left > 0; --left)
    states.push_back(port_is_up(port_changes - left + 1));
  return states;
}

TEST(PortChanges, EachIsTold) {
  EXPECT_EQ(heard(0, 0), std::vector<bool>{});
  EXPECT_EQ(heard(0, 1), std::vector{false});
  EXPECT_EQ(heard(1, 2), std::vector{true});
}

TEST(PortChanges, APortThatWentAndCameMeanwhileWasDown) {
  EXPECT_EQ(heard(0, 2), (std::vector{false, true}));
  EXPECT_EQ(heard(1, 3), (std::vector{true, false}));
}

TEST(PortChanges, ManyAreToldInShort) {
  EXPECT_EQ(heard(0, 7), std::vector{false});
  EXPECT_EQ(heard(0, 8), (std::vector{false, true}));
  EXPECT_EQ(heard(UINT32_MAX, 2), std::vector{true});
  EXPECT_EQ(heard(UINT32_MAX - 1, 2), (std::vector{false, true}));
}

}  // namespace
}  // namespace hostnic
