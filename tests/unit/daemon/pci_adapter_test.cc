// SPDX-License-Identifier: BSD-3-Clause
// What is read of a PCI adapter, from a made /sys and a made /proc/self/maps.
#include "dataplane/daemon/ports/pci_adapter.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace hostnic {
namespace {

// /sys/bus/pci/devices with one adapter.
class PciAdapters : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/hostnic-pci-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    root_ = name;
    std::filesystem::create_directories(device());
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  std::filesystem::path device() const { return root_ / "0000:3b:00.1"; }
  void bind_to(const std::string& driver) {
    std::filesystem::remove(device() / "driver");
    std::filesystem::create_symlink("../../../bus/pci/drivers/" + driver, device() / "driver");
  }
  PciAdapter adapter() const { return *PciAdapter::named_in("3b:00.1,key=1", root_); }

  std::filesystem::path root_;
};

TEST(PciAdapter, IsNamedByItsAddressOnly) {
  for (const char* devargs : {"0000:3b:00.1", "3b:00.1", "0000:3b:00.1,rx_burst_size=8"}) {
    const auto adapter = PciAdapter::named_in(devargs);
    ASSERT_TRUE(adapter) << devargs;
    EXPECT_EQ(adapter->address(), "0000:3b:00.1");
  }
  for (const char* devargs : {"", "net_af_packet0,iface=eth0", "net_memif0,mac=3b:00.1", "3b:00",
                              "3b:00.1x", "0000:3b:00.1:2", "net_vhost0,iface=/tmp/3b:00.1"})
    EXPECT_FALSE(PciAdapter::named_in(devargs)) << devargs;
}

TEST_F(PciAdapters, AreThereUntilTheyAreRemoved) {
  EXPECT_TRUE(adapter().is_there());
  std::filesystem::remove_all(device());
  EXPECT_FALSE(adapter().is_there());
  EXPECT_NE(adapter().what_is_amiss().find("there is no PCI device 0000:3b:00.1"),
            std::string::npos);
}

TEST_F(PciAdapters, NeedADriverThatHandsThemOver) {
  EXPECT_EQ(adapter().kernel_driver(), "");
  EXPECT_NE(adapter().what_is_amiss().find("bound to no driver"), std::string::npos);
  bind_to("e1000e");
  EXPECT_EQ(adapter().kernel_driver(), "e1000e");
  EXPECT_EQ(adapter().what_is_amiss(),
            "it is bound to e1000e; `dpdk-devbind.py -b vfio-pci 0000:3b:00.1` gives it to DPDK");
  for (const char* driver : {"vfio-pci", "uio_pci_generic"}) {
    bind_to(driver);
    EXPECT_EQ(adapter().what_is_amiss(), "");
  }
}

// Only an IOMMU lets an adapter reach ordinary pages by addresses that DPDK knows. Mellanox's
// adapters have one of their own.
TEST_F(PciAdapters, NeedHugePagesWithoutAnIommu) {
  bind_to("uio_pci_generic");
  EXPECT_TRUE(adapter().needs_huge_pages());
  bind_to("vfio-pci");
  EXPECT_TRUE(adapter().needs_huge_pages());
  std::filesystem::create_directory_symlink(root_, device() / "iommu");
  EXPECT_FALSE(adapter().needs_huge_pages());
  bind_to("uio_pci_generic");
  EXPECT_TRUE(adapter().needs_huge_pages());
  bind_to("mlx5_core");
  EXPECT_FALSE(adapter().needs_huge_pages());
}

TEST_F(PciAdapters, HaveTheirOwnRegistersOnly) {
  const std::string maps = root_ / "maps";
  std::ofstream(maps)
      << "100000-120000 rw-s febc0000 00:16 1 /sys/devices/pci0000:3a/0000:3b:00.1/resource0\n"
         "200000-201000 rw-s febd0000 00:16 2 /sys/devices/pci0000:3a/0000:3b:00.0/resource0\n"
         "300000-301000 rw-s febe0000 00:16 3 /sys/devices/pci0000:3a/0000:3b:00.1/resource3\n"
         "400000-401000 r--p 00000000 08:01 4 /usr/lib/x86_64-linux-gnu/libc.so.6\n";
  const auto mapped = adapter().mapped_registers(maps);
  ASSERT_EQ(mapped.size(), 2u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(mapped[0].data()), 0x100000u);
  EXPECT_EQ(mapped[0].size(), 0x20000u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(mapped[1].data()), 0x300000u);
}

}  // namespace
}  // namespace hostnic
