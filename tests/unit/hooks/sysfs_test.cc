// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/unit/abi/gids.h"
#include "verbs-shim/hooks/path_map.h"
#include "verbs-shim/hooks/sysfs_tree.h"

namespace hostnic::hooks {
namespace {

namespace fs = std::filesystem;

std::string content(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

DeviceInfo device(const char* name) {
  DeviceInfo info{};
  snprintf(info.name, sizeof info.name, "%s", name);
  info.ip = 0x0a000001;
  abi::set_gids(info, {gid_of(Ipv4Address{info.ip})});
  info.gid_table_length = 1;
  snprintf(info.netdev, sizeof info.netdev, "lo");
  info.mtu_bytes = 4096;
  info.link_up = 1;
  info.speed_mbps = 100'000;
  const uint8_t guid[8] = {0x02, 0x11, 0x22, 0xff, 0xfe, 0x33, 0x44, 0x55};
  memcpy(&info.node_guid, guid, sizeof guid);
  return info;
}

class AbiSysfs : public testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/abi-sysfs-test.XXXXXX";
    ASSERT_NE(mkdtemp(path), nullptr);
    base_ = path;
  }
  void TearDown() override { fs::remove_all(base_); }
  size_t trees() const {
    return std::distance(fs::directory_iterator(base_), fs::directory_iterator());
  }
  std::string base_;
};

TEST_F(AbiSysfs, OffersWhatProgramsRead) {
  SysfsTree tree = SysfsTree::create(base_);
  tree.show(device("hnic0"));
  const std::string root = tree.device_directory("hnic0");
  EXPECT_EQ(content(root + "/node_guid"), "0211:22ff:fe33:4455\n");
  EXPECT_EQ(content(root + "/ports/1/gids/0"), "0000:0000:0000:0000:0000:ffff:0a00:0001\n");
  EXPECT_EQ(content(root + "/ports/1/gid_attrs/types/0"), "RoCE v2\n");
  EXPECT_EQ(content(root + "/ports/1/gid_attrs/ndevs/0"), "lo\n");
  EXPECT_EQ(content(root + "/ports/1/state"), "4: ACTIVE\n");
  EXPECT_EQ(content(root + "/ports/1/rate"), "100 Gb/sec (4X EDR)\n");
  EXPECT_EQ(content(root + "/ports/1/link_layer"), "Ethernet\n");
  EXPECT_EQ(content(root + "/device/numa_node"), "-1\n");
  EXPECT_NE(content(root + "/device/local_cpus"), "");
  EXPECT_FALSE(fs::exists(tree.root() + "/infiniband_verbs/uverbs0"));
}

// What ibstat and ibstatus insist on.
TEST_F(AbiSysfs, OffersWhatAKernelsPortHas) {
  SysfsTree tree = SysfsTree::create(base_);
  tree.show(device("hnic0"));
  const std::string port = tree.device_directory("hnic0") + "/ports/1";
  EXPECT_EQ(content(port + "/sm_lid"), "0x0\n");
  EXPECT_EQ(content(port + "/sm_sl"), "0\n");
  EXPECT_EQ(content(port + "/lid_mask_count"), "0\n");
  EXPECT_EQ(content(port + "/cap_mask"), "0x04010000\n");
  EXPECT_EQ(content(tree.device_directory("hnic0") + "/hca_type"), "hostnic\n");
  EXPECT_FALSE(fs::exists(tree.verbs_class_directory() + "/abi_version"))
      << "the real library would open what it finds there";
  EXPECT_TRUE(fs::exists(tree.dev_directory() + "/uverbs_hnic0"));
  tree.show_counters("hnic0",
                     "hnic0 tx_packets 7\nhnic0 rx_bytes 4001\nhnic1 tx_packets 9\n"
                     "hnic0 ../../x 3\nnonsense\n");
  EXPECT_EQ(content(port + "/hw_counters/tx_packets"), "7\n");
  EXPECT_EQ(content(port + "/counters/port_xmit_packets"), "7\n");
  EXPECT_EQ(content(port + "/counters/port_rcv_data"), "1000\n");
  EXPECT_EQ(content(port + "/counters/symbol_error"), "0\n");
  EXPECT_FALSE(fs::exists(port + "/x"));
}

TEST_F(AbiSysfs, RefreshesAShownDevice) {
  SysfsTree tree = SysfsTree::create(base_);
  DeviceInfo info = device("hnic0");
  tree.show(info);
  info.link_up = 0;
  tree.show(info);
  const std::string state = tree.device_directory("hnic0") + "/ports/1/state";
  EXPECT_EQ(content(state), "1: DOWN\n");
  struct stat status;
  ASSERT_EQ(stat(state.c_str(), &status), 0);
  EXPECT_NE(status.st_mode & S_IWUSR, 0u) << "root may write it in any case, others not";
}

TEST_F(AbiSysfs, AGidThatWentIsZerosWithoutAType) {
  SysfsTree tree = SysfsTree::create(base_);
  DeviceInfo info = device("hnic0");
  abi::set_gids(info, {gid_of(Ipv4Address{0x0a000001}), gid_of(Ipv4Address{0x0a000002}),
                       gid_of(Ipv4Address{0x0a000003})});
  tree.show(info);
  const std::string port = tree.device_directory("hnic0") + "/ports/1/";
  EXPECT_EQ(content(port + "gid_attrs/types/1"), "RoCE v2\n");
  memset(info.gids[1].gid, 0, sizeof info.gids[1].gid);
  tree.show(info);
  EXPECT_EQ(content(port + "gids/1"), "0000:0000:0000:0000:0000:0000:0000:0000\n");
  EXPECT_FALSE(fs::exists(port + "gid_attrs/types/1"));
  EXPECT_FALSE(fs::exists(port + "gid_attrs/ndevs/1"));
  EXPECT_EQ(content(port + "gids/2"), "0000:0000:0000:0000:0000:ffff:0a00:0003\n");
  EXPECT_EQ(content(port + "gid_attrs/types/2"), "RoCE v2\n");
}

TEST_F(AbiSysfs, IsPrivateAndGoesWithItsOwner) {
  {
    SysfsTree tree = SysfsTree::create(base_);
    tree.show(device("hnic0"));
    struct stat status;
    ASSERT_EQ(stat(tree.root().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0700u);
    EXPECT_EQ(trees(), 1u);
  }
  EXPECT_EQ(trees(), 0u);
}

TEST_F(AbiSysfs, AForkedChildLeavesItAlone) {
  SysfsTree tree = SysfsTree::create(base_);
  tree.show(device("hnic0"));
  const pid_t child = fork();
  if (child == 0) {
    { SysfsTree taken = std::move(tree); }
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(fs::exists(tree.device_directory("hnic0")));
}

TEST_F(AbiSysfs, CleansUpAfterTheKilledOnly) {
  SysfsTree living = SysfsTree::create(base_);
  const pid_t child = fork();
  if (child == 0) {
    SysfsTree tree = SysfsTree::create(base_);
    tree.show(device("hnic0"));
    _exit(tree.root().empty() ? 1 : 0);  // no destructor runs
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  ASSERT_EQ(trees(), 2u);
  SysfsTree next = SysfsTree::create(base_);
  EXPECT_EQ(trees(), 2u) << "the living one's and the new one's";
  EXPECT_TRUE(fs::exists(living.root()));
}

TEST_F(AbiSysfs, NoDirectoryNoTree) {
  SysfsTree tree = SysfsTree::create(base_ + "/missing");
  EXPECT_EQ(tree.root(), "");
  tree.show(device("hnic0"));  // has nowhere to write
  EXPECT_EQ(map_path("/sys/class/infiniband/hnic0", tree, {"hnic0"}), "");
}

class AbiPaths : public AbiSysfs {
 protected:
  std::string mapped(const char* path) const {
    if (!may_be_mapped(path)) return "";
    return map_path(std::string_view(path), tree_, {"hnic0", "hnic1"});
  }
  void SetUp() override {
    AbiSysfs::SetUp();
    tree_ = SysfsTree::create(base_);
  }
  void TearDown() override {
    tree_ = SysfsTree();
    AbiSysfs::TearDown();
  }
  SysfsTree tree_;
};

TEST_F(AbiPaths, DevicesLeadIntoTheTree) {
  const std::string& root = tree_.root();
  EXPECT_EQ(mapped("/sys/class/infiniband"), root + "/infiniband");
  EXPECT_EQ(mapped("/sys/class/infiniband/"), root + "/infiniband");
  EXPECT_EQ(mapped("/sys/class/infiniband/hnic1"), root + "/infiniband/hnic1");
  EXPECT_EQ(mapped("/sys/class/infiniband//hnic0/ports/1/state"),
            root + "/infiniband/hnic0/ports/1/state");
  EXPECT_EQ(mapped("/sys/class/infiniband_verbs/uverbs_hnic0/ibdev"),
            root + "/infiniband_verbs/uverbs_hnic0/ibdev");
  EXPECT_EQ(mapped("/dev/infiniband/uverbs_hnic1"), "/dev/null");
  EXPECT_EQ(mapped("/sys/class/infiniband_verbs"), root + "/infiniband_verbs");
  EXPECT_EQ(mapped("/dev/infiniband/"), root + "/dev");
}

TEST_F(AbiPaths, PlacesInATreeAreShownAsWhatTheyStandFor) {
  const std::string tree = sysfs_tree_base() + "/hostnic-sysfs.aBcDeF";
  EXPECT_EQ(unmap_path(tree + "/infiniband/hnic0/ports"), "/sys/class/infiniband/hnic0/ports");
  EXPECT_EQ(unmap_path(tree + "/infiniband"), "/sys/class/infiniband");
  EXPECT_EQ(unmap_path(tree + "/infiniband_verbs/uverbs_hnic0"),
            "/sys/class/infiniband_verbs/uverbs_hnic0");
  EXPECT_EQ(unmap_path(tree + "/dev"), "/dev/infiniband");
  for (const std::string& path :
       {tree, tree + "/infinibandx", sysfs_tree_base() + "/hostnic-sysfs.a",
        std::string("/nowhere/hostnic-sysfs.aBcDeF/infiniband")})
    EXPECT_EQ(unmap_path(path), "") << path;
}

TEST_F(AbiPaths, TheRdmaCmDeviceIsShown) {
  tree_.show(device("hnic0"));
  EXPECT_EQ(mapped("/dev/infiniband/rdma_cm"), "/dev/null") << "a character device";
  std::ifstream file(mapped("/sys/class/misc/rdma_cm/abi_version"));
  int version = 0;
  file >> version;
  EXPECT_EQ(version, 4);
  EXPECT_FALSE(may_be_mapped("/sys/class/misc/fuse"));
  EXPECT_FALSE(may_be_mapped("/sys/class"));
  EXPECT_FALSE(may_be_mapped("/sys/class/net/lo"));
}

// Scripts look whether /dev/infiniband/uverbs0 is there. An adapter's stays the adapter's.
TEST_F(AbiPaths, NumbersOfCharacterDevicesAreShownWhereNoAdapterHasThem) {
  tree_.link(tree_.dev_directory(), "uverbs1", "/dev/infiniband/uverbs1");
  DeviceInfo second = device("hnic1");
  second.index = 1;
  tree_.show(device("hnic0"));
  tree_.show(second);
  EXPECT_EQ(mapped("/dev/infiniband/uverbs0"), "/dev/null");
  EXPECT_TRUE(fs::is_symlink(tree_.dev_directory() + "/uverbs0"));
  EXPECT_EQ(mapped("/dev/infiniband/uverbs1"), "");
  EXPECT_EQ(mapped("/dev/infiniband/uverbs2"), "");
  tree_.show(device("hnic0"));
  EXPECT_EQ(mapped("/dev/infiniband/uverbs0"), "/dev/null");
}

TEST_F(AbiPaths, EverythingElseStays) {
  for (const char* path :
       {"/sys/class/infiniband/mlx5_0", "/sys/class/infiniband/hnic00",
        "/sys/class/infiniband/hnic", "/sys/class/infiniband_verbs/uverbs0",
        "/sys/class/infiniband_mad", "/sys/class/infinibandx/hnic0", "/dev/infiniband/uverbs0",
        "/dev/infiniband/uverbs_hnic0/x", "/dev/null", "/sys", "/", "", "hnic0"}) {
    EXPECT_EQ(mapped(path), "") << path;
  }
  EXPECT_FALSE(may_be_mapped(nullptr));
}

}  // namespace
}  // namespace hostnic::hooks
