// SPDX-License-Identifier: BSD-3-Clause
// What libmrc.so asks of this library: which transport a device has, and limits of its queue pairs.
#include "verbs-shim/libraries/mrc_door.h"

#include "tests/unit/abi/testing.h"

namespace hostnic {
namespace {

class AbiMrcDoor : public AbiTest {};

TEST_F(AbiMrcDoor, ADeviceSaysItsTransport) {
  MrcDevice device{};
  ASSERT_EQ(hostnic_mrc_device(context_, &device), 0);
  EXPECT_STREQ(device.name, "hnic0");
  EXPECT_EQ(device.transport, Transport::kMrc);
  EXPECT_EQ(device.window, 512u);
  EXPECT_EQ(device.entropy_values, 32u);
  ibv_context foreign{};
  EXPECT_EQ(hostnic_mrc_device(&foreign, &device), ENODEV);
}

TEST_F(AbiMrcDoor, LimitsReachTheDriver) {
  ibv_qp* qp = create_qp();
  ASSERT_NE(qp, nullptr);
  const MrcQpLimits limits{.max_imm = 7, .mpr = 3, .exponential_retries = 25};
  EXPECT_EQ(hostnic_mrc_set_limits(qp, &limits), 0);
  EXPECT_EQ(fake::seen().attr.mrc,
            (driver::MrcLimits{.max_imm = 7, .mpr = 3, .exponential_retries = 25}));
  ibv_qp foreign{};
  EXPECT_EQ(hostnic_mrc_set_limits(&foreign, &limits), EINVAL);
}

}  // namespace
}  // namespace hostnic
