// SPDX-License-Identifier: BSD-3-Clause
// Devices and objects: what can be created, what is refused, what keeps what alive.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "tests/unit/abi/gids.h"
#include "tests/unit/abi/testing.h"

namespace hostnic {
namespace {

using AbiDevices = AbiTest;
using AbiObjects = AbiTest;
using AbiHandles = AbiTest;
using AbiMemory = AbiTest;

#define EXPECT_FAILS(call, error) \
  do {                            \
    errno = 0;                    \
    EXPECT_EQ(call, error);       \
    EXPECT_EQ(errno, error);      \
  } while (0)
#define EXPECT_NULL(call, error) \
  do {                           \
    errno = 0;                   \
    EXPECT_EQ(call, nullptr);    \
    EXPECT_EQ(errno, error);     \
  } while (0)

TEST_F(AbiDevices, ListShowsBothAndIsOneMallocBlock) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  ASSERT_EQ(count, 2);
  EXPECT_STREQ(list[0]->name, "hnic0");
  EXPECT_STREQ(list[1]->name, "hnic1");
  EXPECT_EQ(list[2], nullptr);
  EXPECT_EQ(list[0], list_[0]) << "a device keeps its address";
  EXPECT_EQ(list[0]->node_type, IBV_NODE_CA);
  EXPECT_NE(ibv_get_device_guid(list[0]), ibv_get_device_guid(list[1]));
  EXPECT_EQ(ibv_get_device_index(list[0]), -1);
  // libmlx5 reads behind ibv_device and must see zeros.
  const auto* behind = reinterpret_cast<const uint8_t*>(list[0] + 1);
  for (int i = 0; i < 512; ++i) ASSERT_EQ(behind[i], 0) << i;
  free(list);  // as qperf does
}

TEST_F(AbiDevices, NobodyListening) {
  fake::behaviour().no_hostnicd = true;
  int count = -1;
  ibv_device** list = ibv_get_device_list(&count);
  EXPECT_EQ(count, 0) << "this test wants a machine without RDMA adapters";
  ibv_free_device_list(list);
  EXPECT_NULL(ibv_open_device(list_[1]), ECONNREFUSED);
}

TEST_F(AbiDevices, QueriesAnswer) {
  ibv_device_attr attr;
  ASSERT_EQ(ibv_query_device(context_, &attr), 0);
  EXPECT_EQ(attr.node_guid, ibv_get_device_guid(list_[0]));
  ibv_device_attr_ex extended;
  ASSERT_EQ(ibv_query_device_ex(context_, nullptr, &extended), 0);
  EXPECT_EQ(extended.hca_core_clock, 1'000'000u);
  ibv_port_attr port;
  ASSERT_EQ(ibv_query_port(context_, 1, &port), 0);
  EXPECT_EQ(port.gid_tbl_len, 1);
  EXPECT_FAILS(ibv_query_port(context_, 2, &port), EINVAL);
  ibv_values_ex values{IBV_VALUES_MASK_RAW_CLOCK, {}};
  ASSERT_EQ(ibv_query_rt_values_ex(context_, &values), 0);
  EXPECT_GT(values.raw_clock.tv_nsec, 0);
  __be16 pkey = 0;
  EXPECT_EQ(ibv_query_pkey(context_, 1, 0, &pkey), 0);
  EXPECT_EQ(pkey, 0xffff);
  EXPECT_EQ(ibv_query_pkey(context_, 1, 1, &pkey), -1);
  EXPECT_EQ(ibv_get_pkey_index(context_, 1, 0xffff), 0);
  EXPECT_EQ(ibv_get_pkey_index(context_, 1, 0x1234), -1);
}

TEST_F(AbiDevices, GidZeroIsTheRoceV2Address) {
  ibv_gid gid;
  ASSERT_EQ(ibv_query_gid(context_, 1, 0, &gid), 0);
  EXPECT_EQ(abi::ip_from_gid(gid), Ipv4Address{0x0a000001});
  EXPECT_EQ(ibv_query_gid(context_, 1, 1, &gid), -1);
  EXPECT_EQ(ibv_query_gid(context_, 1, -1, &gid), -1);
  EXPECT_EQ(ibv_query_gid(context_, 2, 0, &gid), -1);
  ibv_gid_entry entries[4];
  ASSERT_EQ(ibv_query_gid_table(context_, entries, 4, 0), 1);
  EXPECT_EQ(entries[0].gid_type, static_cast<uint32_t>(IBV_GID_TYPE_ROCE_V2));
  EXPECT_EQ(memcmp(&entries[0].gid, &gid, sizeof gid), 0);
  EXPECT_FAILS(ibv_query_gid_ex(context_, 1, 5, entries, 0), EINVAL);
  EXPECT_FAILS(ibv_query_gid_ex(context_, 1, 0, entries, 1), EINVAL);
}

TEST_F(AbiObjects, PdIsBusyWhileUsed) {
  char buffer[16];
  ibv_mr* mr = ibv_reg_mr(pd_, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(mr, nullptr);
  EXPECT_FAILS(ibv_dealloc_pd(pd_), EBUSY);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  ibv_qp* qp = create_qp();
  EXPECT_FAILS(ibv_dealloc_pd(pd_), EBUSY);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  ibv_ah_attr attr{};
  attr.port_num = 1;
  attr.is_global = 1;
  attr.grh.dgid = abi::gid_from_ip(0x0a000002);
  ibv_ah* ah = ibv_create_ah(pd_, &attr);
  ASSERT_NE(ah, nullptr);
  EXPECT_FAILS(ibv_dealloc_pd(pd_), EBUSY);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd_), 0);
}

TEST_F(AbiObjects, CqAndChannelAreBusyWhileUsed) {
  ibv_comp_channel* channel = ibv_create_comp_channel(context_);
  ASSERT_NE(channel, nullptr);
  ibv_cq* cq = ibv_create_cq(context_, 1, nullptr, channel, 0);
  ASSERT_NE(cq, nullptr);
  EXPECT_FAILS(ibv_destroy_comp_channel(channel), EBUSY);
  ibv_qp_init_attr init = init_attr(cq);
  init.recv_cq = cq_;
  ibv_qp* qp = ibv_create_qp(pd_, &init);
  EXPECT_FAILS(ibv_destroy_cq(cq), EBUSY);
  EXPECT_FAILS(ibv_destroy_cq(cq_), EBUSY);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

TEST_F(AbiObjects, FailedCreationHoldsNothing) {
  ibv_qp_init_attr init = init_attr(cq_);
  init.cap.max_send_sge = 17;
  EXPECT_NULL(ibv_create_qp(pd_, &init), EINVAL);
  char buffer[16];
  fake::behaviour().register_error = EFAULT;
  EXPECT_NULL(ibv_reg_mr(pd_, buffer, sizeof buffer, 0), EFAULT);
  EXPECT_EQ(ibv_dealloc_pd(pd_), 0);
  EXPECT_EQ(ibv_destroy_cq(cq_), 0);
}

TEST_F(AbiObjects, CqLimits) {
  ibv_device_attr attr;
  ASSERT_EQ(ibv_query_device(context_, &attr), 0);
  EXPECT_NULL(ibv_create_cq(context_, 0, nullptr, nullptr, 0), EINVAL);
  EXPECT_NULL(ibv_create_cq(context_, -1, nullptr, nullptr, 0), EINVAL);
  EXPECT_NULL(ibv_create_cq(context_, attr.max_cqe + 1, nullptr, nullptr, 0), EINVAL);
  EXPECT_NULL(ibv_create_cq(context_, 1, nullptr, nullptr, context_->num_comp_vectors), EINVAL);
  EXPECT_NULL(ibv_create_cq(context_, 1, nullptr, nullptr, -1), EINVAL);
  ibv_cq* large = ibv_create_cq(context_, 262'144, nullptr, nullptr, 0);
  ASSERT_NE(large, nullptr);
  EXPECT_GE(large->cqe, 262'144);
  EXPECT_EQ(ibv_resize_cq(large, 100), 0);
  EXPECT_GE(large->cqe, 100);
  EXPECT_FAILS(ibv_resize_cq(large, 0), EINVAL);
}

TEST_F(AbiObjects, CqModerationIsAccepted) {
  ibv_modify_cq_attr attr{IBV_CQ_ATTR_MODERATE, {16, 100}};
  EXPECT_EQ(ibv_modify_cq(cq_, &attr), 0);
  attr.attr_mask = 0;
  EXPECT_FAILS(ibv_modify_cq(cq_, &attr), EINVAL);
  attr.attr_mask = IBV_CQ_ATTR_RESERVED;
  EXPECT_FAILS(ibv_modify_cq(cq_, &attr), EOPNOTSUPP);
}

TEST_F(AbiObjects, QpTypesAndLimits) {
  ibv_qp_init_attr init = init_attr(cq_);
  for (ibv_qp_type type :
       {IBV_QPT_RAW_PACKET, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV, IBV_QPT_DRIVER}) {
    init.qp_type = type;
    EXPECT_NULL(ibv_create_qp(pd_, &init), EOPNOTSUPP);
  }
  init = init_attr(cq_);
  init.cap.max_send_wr = 16385;
  EXPECT_NULL(ibv_create_qp(pd_, &init), EINVAL);
  init = init_attr(cq_);
  init.cap.max_inline_data = 513;
  EXPECT_NULL(ibv_create_qp(pd_, &init), EINVAL);
  init = init_attr(nullptr);
  EXPECT_NULL(ibv_create_qp(pd_, &init), EINVAL);
}

TEST_F(AbiObjects, ImportsAreRefused) {
  EXPECT_NULL(ibv_import_pd(context_, 1), EOPNOTSUPP);
  EXPECT_NULL(ibv_import_device(context_->cmd_fd), EOPNOTSUPP);
}

// Programs duplicate it, pass it on and try it; a device file it is not.
TEST_F(AbiObjects, TheCommandDescriptorCanBeDuplicatedAndDoesNothing) {
  const int copy = dup(context_->cmd_fd);
  ASSERT_GE(copy, 0);
  EXPECT_NE(fcntl(context_->cmd_fd, F_GETFD) & FD_CLOEXEC, 0);
  constexpr unsigned long kVerbsIoctl = _IOWR(0x1b, 1, uint64_t);
  uint64_t buffer[8]{};
  errno = 0;
  EXPECT_EQ(ioctl(copy, kVerbsIoctl, buffer), -1);
  EXPECT_EQ(errno, ENOTTY);
  EXPECT_EQ(write(copy, buffer, sizeof buffer), -1);
  EXPECT_EQ(errno, ENOTCONN);
  EXPECT_EQ(read(copy, buffer, sizeof buffer), -1);
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ, MAP_SHARED, copy, 0), MAP_FAILED);
  EXPECT_EQ(errno, ENODEV);
  EXPECT_NULL(ibv_import_device(copy), EOPNOTSUPP);
  EXPECT_EQ(close(copy), 0);
  EXPECT_EQ(ibv_import_device(open("/dev/null", O_RDONLY | O_CLOEXEC)), nullptr);
  EXPECT_NE(errno, EOPNOTSUPP) << "this one is not ours";
}

TEST_F(AbiObjects, ParentDomainsHoldWhatTheyExtend) {
  ibv_td_init_attr td_attr{};
  ibv_td* td = ibv_alloc_td(context_, &td_attr);
  ASSERT_NE(td, nullptr);
  ibv_parent_domain_init_attr attr{};
  attr.pd = pd_;
  attr.td = td;
  ibv_pd* parent = ibv_alloc_parent_domain(context_, &attr);
  ASSERT_NE(parent, nullptr);
  EXPECT_EQ(parent->handle, pd_->handle) << "to the NIC it is the same domain";
  EXPECT_FAILS(ibv_dealloc_td(td), EBUSY);
  EXPECT_FAILS(ibv_dealloc_pd(pd_), EBUSY);
  ibv_cq_init_attr_ex cq_attr{};
  cq_attr.cqe = 4;
  cq_attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
  cq_attr.parent_domain = parent;
  ibv_cq_ex* cq = ibv_create_cq_ex(context_, &cq_attr);
  ASSERT_NE(cq, nullptr);
  EXPECT_FAILS(ibv_dealloc_pd(parent), EBUSY);
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
  cq_attr.parent_domain = pd_;
  EXPECT_NULL(ibv_create_cq_ex(context_, &cq_attr), EINVAL);
  EXPECT_EQ(ibv_dealloc_pd(parent), 0);
  EXPECT_EQ(ibv_dealloc_td(td), 0);
  // What a program leaves goes with the context.
  attr.td = nullptr;
  EXPECT_NE(ibv_alloc_parent_domain(context_, &attr), nullptr);
  EXPECT_NE(ibv_alloc_td(context_, &td_attr), nullptr);
}

TEST_F(AbiObjects, QpStateFollowsModifyAndQuery) {
  ibv_qp* qp = create_qp();
  EXPECT_EQ(qp->state, IBV_QPS_RESET);
  connect(qp);
  EXPECT_EQ(qp->state, IBV_QPS_RTS);
  EXPECT_EQ(fake::seen().attr_mask, static_cast<uint32_t>(IBV_QP_STATE | IBV_QP_DEST_QPN));
  ibv_qp_attr attr;
  ibv_qp_init_attr init;
  ASSERT_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_RTS);
  EXPECT_EQ(init.send_cq, cq_);
  EXPECT_EQ(init.qp_type, IBV_QPT_RC);
  EXPECT_EQ(init.cap.max_send_wr, 4u);
  fake::behaviour().modify_error = EINVAL;
  attr.qp_state = IBV_QPS_INIT;
  EXPECT_FAILS(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
  EXPECT_EQ(qp->state, IBV_QPS_RTS);
}

TEST_F(AbiHandles, StrangersAreRefused) {
  // Nothing of these is an object of ours, and there is no adapter whose they could be.
  alignas(16) static uint8_t zeros[4096];
  EXPECT_FAILS(ibv_dealloc_pd(reinterpret_cast<ibv_pd*>(zeros)), ENOENT);
  EXPECT_FAILS(ibv_dereg_mr(reinterpret_cast<ibv_mr*>(zeros)), ENOENT);
  EXPECT_FAILS(ibv_destroy_cq(reinterpret_cast<ibv_cq*>(zeros)), ENOENT);
  EXPECT_FAILS(ibv_destroy_qp(reinterpret_cast<ibv_qp*>(zeros)), ENOENT);
  EXPECT_FAILS(ibv_destroy_ah(reinterpret_cast<ibv_ah*>(zeros)), ENOENT);
  EXPECT_FAILS(ibv_destroy_comp_channel(reinterpret_cast<ibv_comp_channel*>(zeros)), ENOENT);
  EXPECT_FAILS(ibv_close_device(reinterpret_cast<ibv_context*>(zeros)), ENOENT);
  EXPECT_FAILS(ibv_destroy_qp(nullptr), ENOENT);
  EXPECT_FAILS(ibv_destroy_cq(nullptr), ENOENT);
  EXPECT_FAILS(ibv_destroy_qp(reinterpret_cast<ibv_qp*>(cq_)), ENOENT);
  EXPECT_NULL(ibv_alloc_pd(reinterpret_cast<ibv_context*>(zeros)), ENOENT);
}

TEST_F(AbiHandles, ASecondDestroyIsRefused) {
  ibv_qp* qp = create_qp();
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_FAILS(ibv_destroy_qp(qp), ENOENT);
}

// The handle is what the kernel knows an object by.
template <typename Object, typename Call>
void refuses_damaged_handle(Object* object, Call call) {
  const uint32_t handle = object->handle;
  object->handle ^= 0xdeadbeef;
  call();
  object->handle = handle;
}

TEST_F(AbiHandles, DamagedOnesNameNothing) {
  ibv_qp* qp = create_qp();
  refuses_damaged_handle(pd_, [&] {
    char buffer[64];
    ibv_srq_init_attr srq{nullptr, {4, 1, 0}};
    ibv_qp_init_attr init = init_attr(cq_);
    EXPECT_NULL(ibv_reg_mr(pd_, buffer, sizeof buffer, 0), ENOENT);
    EXPECT_NULL(ibv_alloc_mw(pd_, IBV_MW_TYPE_1), ENOENT);
    EXPECT_NULL(ibv_create_qp(pd_, &init), ENOENT);
    EXPECT_NULL(ibv_create_srq(pd_, &srq), ENOENT);
    EXPECT_FAILS(ibv_dealloc_pd(pd_), ENOENT);
  });
  refuses_damaged_handle(cq_, [&] {
    ibv_qp_init_attr init = init_attr(cq_);
    EXPECT_NULL(ibv_create_qp(pd_, &init), ENOENT);
    EXPECT_FAILS(ibv_req_notify_cq(cq_, 0), ENOENT);
    EXPECT_FAILS(ibv_resize_cq(cq_, 100), ENOENT);
    EXPECT_FAILS(ibv_destroy_cq(cq_), ENOENT);
  });
  refuses_damaged_handle(qp, [&] {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init;
    EXPECT_FAILS(ibv_modify_qp(qp, &attr, IBV_QP_STATE), ENOENT);
    EXPECT_FAILS(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), ENOENT);
    EXPECT_FAILS(ibv_destroy_qp(qp), ENOENT);
  });
  EXPECT_EQ(ibv_destroy_qp(qp), 0) << "none of that harmed it";
}

TEST_F(AbiHandles, DamagedOnesOfMemoryAndQueuesNameNothing) {
  char buffer[64];
  ibv_mr* mr = ibv_reg_mr(pd_, buffer, sizeof buffer, 0);
  refuses_damaged_handle(mr, [&] {
    EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0),
              IBV_REREG_MR_ERR_INPUT);
    EXPECT_EQ(errno, ENOENT);
    EXPECT_FAILS(ibv_dereg_mr(mr), ENOENT);
  });
  ibv_mw* mw = ibv_alloc_mw(pd_, IBV_MW_TYPE_2);
  refuses_damaged_handle(mw, [&] { EXPECT_FAILS(ibv_dealloc_mw(mw), ENOENT); });
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
  ibv_ah_attr to{};
  to.is_global = 1;
  to.port_num = 1;
  to.grh.dgid = abi::gid_from_ip(0x0a000002);
  ibv_ah* ah = ibv_create_ah(pd_, &to);
  ASSERT_NE(ah, nullptr);
  refuses_damaged_handle(ah, [&] { EXPECT_FAILS(ibv_destroy_ah(ah), ENOENT); });
  ibv_srq_init_attr init{nullptr, {4, 1, 0}};
  ibv_srq* srq = ibv_create_srq(pd_, &init);
  ASSERT_NE(srq, nullptr);
  refuses_damaged_handle(srq, [&] {
    ibv_srq_attr attr{};
    EXPECT_FAILS(ibv_query_srq(srq, &attr), ENOENT);
    EXPECT_FAILS(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), ENOENT);
    EXPECT_FAILS(ibv_destroy_srq(srq), ENOENT);
  });
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
  EXPECT_FAILS(ibv_dealloc_pd(pd_), EBUSY);  // the region and the address handle are still of it
}

TEST_F(AbiHandles, ObjectsOfAnotherContextAreRefused) {
  ibv_context* other = ibv_open_device(list_[1]);
  ASSERT_NE(other, nullptr);
  ibv_cq* cq = ibv_create_cq(other, 1, nullptr, nullptr, 0);
  ibv_comp_channel* channel = ibv_create_comp_channel(other);
  ibv_qp_init_attr init = init_attr(cq);
  EXPECT_NULL(ibv_create_qp(pd_, &init), ENOENT);
  EXPECT_NULL(ibv_create_cq(context_, 1, nullptr, channel, 0), ENOENT);
  EXPECT_EQ(ibv_close_device(other), 0);
  EXPECT_FAILS(ibv_destroy_cq(cq), ENOENT);  // it went with its device
}

TEST_F(AbiMemory, AccessRules) {
  char buffer[64];
  EXPECT_NULL(ibv_reg_mr(pd_, buffer, 64, IBV_ACCESS_REMOTE_WRITE), EINVAL);
  EXPECT_NULL(ibv_reg_mr(pd_, buffer, 64, IBV_ACCESS_REMOTE_ATOMIC), EINVAL);
  ibv_mr* empty = ibv_reg_mr(pd_, buffer, 0, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(empty, nullptr) << "a key that reaches nothing";
  EXPECT_EQ(empty->length, 0u);
  EXPECT_EQ(ibv_dereg_mr(empty), 0);
  ibv_mr* mr = ibv_reg_mr_iova(pd_, buffer, 64, 0x1000, IBV_ACCESS_REMOTE_READ);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->addr, buffer);
  EXPECT_EQ(mr->length, 64u);
  EXPECT_NE(mr->lkey, 0u);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(AbiMemory, ReregistrationReplacesOrLeavesAlone) {
  char buffer[64];
  ibv_mr* mr = ibv_reg_mr(pd_, buffer, 64, 0);
  ASSERT_NE(mr, nullptr);
  const uint32_t key = mr->lkey;
  fake::behaviour().register_error = ENOMEM;
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0),
            IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(mr->lkey, key);
  fake::behaviour().register_error = 0;
  ibv_pd* other = ibv_alloc_pd(context_);
  ASSERT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_TRANSLATION, other,
                         buffer + 8, 16, 0),
            0);
  EXPECT_EQ(mr->lkey, key) << "peers know it";
  EXPECT_EQ(mr->rkey, key);
  EXPECT_EQ(mr->addr, buffer + 8);
  EXPECT_EQ(mr->length, 16u);
  EXPECT_EQ(fake::seen().mrs, 1u);
  EXPECT_EQ(ibv_dealloc_pd(pd_), 0) << "the MR moved away";
  EXPECT_FAILS(ibv_dealloc_pd(other), EBUSY);
  EXPECT_EQ(ibv_rereg_mr(mr, 0, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
}

TEST_F(AbiMemory, ReregistrationChecksItsArguments) {
  char buffer[64];
  ibv_mr* mr = ibv_reg_mr(pd_, buffer, 64, 0);
  ASSERT_NE(mr, nullptr);
  const auto refused = [&](int flags, ibv_pd* pd, void* address, size_t length, int access) {
    errno = 0;
    const int code = ibv_rereg_mr(mr, flags, pd, address, length, access);
    return code == IBV_REREG_MR_ERR_INPUT && errno == EINVAL;
  };
  EXPECT_TRUE(refused(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, nullptr, 16, 0));
  EXPECT_TRUE(refused(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, buffer, 0, 0));
  EXPECT_TRUE(refused(IBV_REREG_MR_CHANGE_PD, nullptr, nullptr, 0, 0));
  EXPECT_TRUE(refused(IBV_REREG_MR_CHANGE_PD, pd_, nullptr, 0, IBV_ACCESS_LOCAL_WRITE))
      << "access given, and no flag for it";
  EXPECT_TRUE(refused(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_WRITE));
  EXPECT_TRUE(refused(1 << 5, nullptr, nullptr, 0, 0));
  fake::behaviour().register_error = EIO;
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0),
            IBV_REREG_MR_ERR_CMD)
      << "a dead device leaves nothing to use";
  fake::behaviour().register_error = 0;
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE),
            0);
}

TEST_F(AbiMemory, ZeroBasedRegionsStartAtZero) {
  char buffer[64];
  ibv_mr* mr = ibv_reg_mr(pd_, buffer, 64, IBV_ACCESS_ZERO_BASED);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(fake::seen().iova, 0u);
  EXPECT_EQ(mr->addr, buffer);
  ASSERT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, buffer + 8, 16, 0), 0);
  EXPECT_EQ(fake::seen().iova, 0u) << "the right stays, so does where it starts";
  ASSERT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0), 0);
  EXPECT_EQ(fake::seen().iova, reinterpret_cast<uintptr_t>(buffer + 8));
  ASSERT_NE(ibv_reg_mr_iova2(pd_, buffer, 64, 0x1000, IBV_ACCESS_ZERO_BASED), nullptr);
  EXPECT_EQ(fake::seen().iova, 0u);
  ASSERT_NE(ibv_reg_mr_iova2(pd_, buffer, 64, 0x1000, 0), nullptr);
  EXPECT_EQ(fake::seen().iova, 0x1000u);
}

TEST_F(AbiObjects, AForkedChildHasADeadDevice) {
  ibv_qp* qp = create_qp();
  const pid_t child = fork();
  if (child == 0) {
    char buffer[16];
    ibv_qp_attr attr{};
    int wrong = 0;
    wrong += !fake::seen().abandoned;
    wrong += ibv_reg_mr(pd_, buffer, sizeof buffer, 0) != nullptr || errno != EIO;
    wrong += ibv_create_cq(context_, 1, nullptr, nullptr, 0) != nullptr || errno != EIO;
    wrong += ibv_modify_qp(qp, &attr, IBV_QP_STATE) != EIO;
    wrong += ibv_destroy_qp(qp) != 0;
    wrong += ibv_close_device(context_) != 0;
    _exit(wrong);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(fake::seen().qps, 1u);
  EXPECT_FALSE(fake::seen().abandoned);
}

}  // namespace
}  // namespace hostnic
