// SPDX-License-Identifier: BSD-3-Clause
// Which number the rdma_cm device has to have.
#include "verbs-shim/cm/device_number.h"

#include <gtest/gtest.h>

namespace hostnic::cm_device {
namespace {

TEST(AbiCmDeviceNumber, IsTheKernels) {
  EXPECT_EQ(minor_in("127 rdma_cm\n200 tun\n"), 127u);
  EXPECT_EQ(minor_in("232 kvm\n 58 rdma_cm\n  1 psaux\n"), 58u);
  EXPECT_EQ(minor_in("1025 rdma_cm"), 1025u);
}

TEST(AbiCmDeviceNumber, OtherDevicesHaveOthers) {
  EXPECT_EQ(minor_in(""), std::nullopt);
  EXPECT_EQ(minor_in("\n\n"), std::nullopt);
  EXPECT_EQ(minor_in("200 tun\n 59 rdma_cm2\n 60 xrdma_cm\nrdma_cm\n61 rdma_cm x\n"), std::nullopt);
}

}  // namespace
}  // namespace hostnic::cm_device
