// SPDX-License-Identifier: BSD-3-Clause
// ibv_create_cq_ex: each field that can be asked for, the polling calls, clocks, and what is
// refused.
#include <endian.h>
#include <time.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "tests/conformance/bench.h"

namespace hostnic::conformance {
namespace {

using Clock = std::chrono::steady_clock;

uint64_t now_ns(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// Both ends' queue pairs report to extended queues.
class ExtendedCq : public Conformance {
 protected:
  static ibv_cq_init_attr_ex attributes(uint64_t wc_flags) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 64;
    attr.wc_flags = wc_flags;
    return attr;
  }
  void with_flags(uint64_t wc_flags, uint32_t cq_flags = 0) {
    ASSERT_NO_FATAL_FAILURE(create());
    for (Endpoint* end : {near.get(), far.get()}) {
      ASSERT_EQ(ibv_destroy_qp(end->qp), 0);
      end->qp = nullptr;
      ASSERT_EQ(ibv_destroy_cq(end->cq), 0);
      ibv_cq_init_attr_ex attr = attributes(wc_flags);
      attr.cq_context = end;
      if (cq_flags != 0) {
        attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
        attr.flags = cq_flags;
      }
      ibv_cq_ex* cq = ibv_create_cq_ex(end->host.context, &attr);
      end->cq = cq == nullptr ? nullptr : ibv_cq_ex_to_cq(cq);
      ASSERT_NE(end->cq, nullptr) << strerror(errno);
      EXPECT_EQ(end->cq->cq_context, end);
      ibv_qp_init_attr init{};
      init.send_cq = init.recv_cq = end->cq;
      init.cap = end->options.caps;
      init.qp_type = IBV_QPT_RC;
      end->qp = ibv_create_qp(end->host.pd, &init);
      ASSERT_NE(end->qp, nullptr);
    }
    connect_endpoints(*near, *far);
    near_cq = extended(*near);
    far_cq = extended(*far);
  }
  // The public structures have one address (ibv_cq_ex_to_cq, the other way round).
  static ibv_cq_ex* extended(const Endpoint& end) { return reinterpret_cast<ibv_cq_ex*>(end.cq); }
  // Starts a poll that finds something.
  static bool begin(ibv_cq_ex* cq) {
    const auto give_up = Clock::now() + kPatience;
    ibv_poll_cq_attr attr{};
    int result = 0;
    while ((result = ibv_start_poll(cq, &attr)) == ENOENT && Clock::now() < give_up)
      std::this_thread::yield();
    return result == 0;
  }
  void write(uint64_t wr_id, uint32_t bytes = 8) {
    ibv_sge sge = near_host->sge(bytes);
    ASSERT_EQ(near->post(request(wr_id, IBV_WR_RDMA_WRITE, &sge, *far_host)), 0);
  }
  void send_imm(uint64_t wr_id, uint32_t bytes, uint32_t imm) {
    ibv_sge sge = near_host->sge(bytes);
    ibv_send_wr wr = request(wr_id, IBV_WR_SEND_WITH_IMM, &sge, *far_host);
    wr.imm_data = htobe32(imm);
    ASSERT_EQ(near->post(wr), 0);
  }

  ibv_cq_ex *near_cq = nullptr, *far_cq = nullptr;
};

TEST_F(ExtendedCq, AnEmptyQueueSaysEnoent) {
  with_flags(0);
  ibv_poll_cq_attr attr{};
  EXPECT_EQ(ibv_start_poll(near_cq, &attr), ENOENT);
  EXPECT_EQ(ibv_start_poll(near_cq, &attr), ENOENT) << "and no ibv_end_poll was needed";
}

TEST_F(ExtendedCq, NextPollGoesThroughAllAndThenSaysEnoent) {
  with_flags(0);
  for (uint64_t i = 0; i < 10; ++i) write(i);
  uint64_t seen = 0;
  while (seen < 10) {
    ASSERT_TRUE(begin(near_cq));
    int result = 0;
    do {
      EXPECT_EQ(near_cq->wr_id, seen);
      EXPECT_EQ(near_cq->status, IBV_WC_SUCCESS);
      EXPECT_EQ(ibv_wc_read_opcode(near_cq), IBV_WC_RDMA_WRITE);
      ++seen;
    } while ((result = ibv_next_poll(near_cq)) == 0);
    EXPECT_EQ(result, ENOENT);
    ibv_end_poll(near_cq);
  }
  ibv_poll_cq_attr attr{};
  EXPECT_EQ(ibv_start_poll(near_cq, &attr), ENOENT);
}

TEST_F(ExtendedCq, WhatAPollLeavesIsThereForTheNext) {
  with_flags(0);
  for (uint64_t i = 0; i < 3; ++i) write(i);
  for (uint64_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(begin(near_cq));
    EXPECT_EQ(near_cq->wr_id, i);
    ibv_end_poll(near_cq);
  }
}

TEST_F(ExtendedCq, TheOldPollWorksToo) {
  with_flags(0);
  write(1);
  near->expect(1);
}

TEST_F(ExtendedCq, AttributesOfAPollThatThereAreNot) {
  with_flags(0);
  write(1);
  ibv_poll_cq_attr attr{.comp_mask = 1};
  EXPECT_EQ(ibv_start_poll(near_cq, &attr), EINVAL);
  ASSERT_TRUE(begin(near_cq));
  EXPECT_EQ(near_cq->wr_id, 1u);
  ibv_end_poll(near_cq);
}

TEST_F(ExtendedCq, StandardFieldsOfAReceive) {
  with_flags(IBV_WC_STANDARD_FLAGS);
  ASSERT_EQ(far->post_receive(7, 100), 0);
  send_imm(1, 33, 0x1234);
  ASSERT_TRUE(begin(far_cq));
  EXPECT_EQ(far_cq->wr_id, 7u);
  EXPECT_EQ(far_cq->status, IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_wc_read_opcode(far_cq), IBV_WC_RECV);
  EXPECT_EQ(ibv_wc_read_vendor_err(far_cq), 0u);
  EXPECT_EQ(ibv_wc_read_byte_len(far_cq), 33u);
  EXPECT_EQ(ibv_wc_read_imm_data(far_cq), htobe32(0x1234));
  EXPECT_EQ(ibv_wc_read_qp_num(far_cq), far->qp->qp_num);
  EXPECT_EQ(ibv_wc_read_src_qp(far_cq), near->qp->qp_num);
  EXPECT_EQ(ibv_wc_read_wc_flags(far_cq), static_cast<unsigned int>(IBV_WC_WITH_IMM));
  EXPECT_EQ(ibv_wc_read_slid(far_cq), 0u);
  EXPECT_EQ(ibv_wc_read_sl(far_cq), 0u);
  EXPECT_EQ(ibv_wc_read_dlid_path_bits(far_cq), 0u);
  ibv_end_poll(far_cq);
}

TEST_F(ExtendedCq, ErrorsHaveAStatusAndAReason) {
  with_flags(IBV_WC_STANDARD_FLAGS);
  ibv_sge sge = near_host->sge(8);
  ibv_send_wr wr = request(9, IBV_WR_RDMA_WRITE, &sge, *far_host);
  set_remote(wr, far_host->address(), kBadKey);
  ASSERT_EQ(near->post(wr), 0);
  ASSERT_TRUE(begin(near_cq));
  EXPECT_EQ(near_cq->wr_id, 9u);
  EXPECT_EQ(near_cq->status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_NE(ibv_wc_read_vendor_err(near_cq), 0u);
  EXPECT_EQ(ibv_wc_read_qp_num(near_cq), near->qp->qp_num);
  ibv_end_poll(near_cq);
}

// ---- clocks

// Devices can be without (rdma_rxe): they refuse such queues (offer_test.cc).
class Timestamps : public ExtendedCq {
 protected:
  void SetUp() override {
    ExtendedCq::SetUp();
    ibv_device_attr_ex attr{};
    ASSERT_EQ(ibv_query_device_ex(near_host->context, nullptr, &attr), 0);
    if (attr.completion_timestamp_mask == 0) GTEST_SKIP() << "the device has none";
  }
};

TEST_F(Timestamps, AreOfTheClockThatRtValuesShow) {
  with_flags(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP);
  const auto raw_clock = [this] {
    ibv_values_ex values{};
    values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
    EXPECT_EQ(ibv_query_rt_values_ex(near_host->context, &values), 0);
    EXPECT_NE(values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK, 0u);
    return static_cast<uint64_t>(values.raw_clock.tv_sec) * 1'000'000'000 +
           static_cast<uint64_t>(values.raw_clock.tv_nsec);
  };
  uint64_t before = raw_clock();
  for (uint64_t i = 0; i < 10; ++i) {
    write(i);
    ASSERT_TRUE(begin(near_cq));
    const uint64_t stamp = ibv_wc_read_completion_ts(near_cq);
    ibv_end_poll(near_cq);
    EXPECT_GE(stamp, before) << "time doesn't go back";
    before = stamp;
  }
  EXPECT_GE(raw_clock(), before);
}

TEST_F(Timestamps, TheDeviceTellsTheClocksFrequencyAndWidth) {
  ibv_device_attr_ex attr{};
  ASSERT_EQ(ibv_query_device_ex(near_host->context, nullptr, &attr), 0);
  EXPECT_EQ(attr.hca_core_clock, 1'000'000u) << "kHz: nanoseconds";
  EXPECT_EQ(attr.completion_timestamp_mask, UINT64_MAX);
}

TEST_F(Timestamps, OfTheWallclock) {
  with_flags(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK);
  const uint64_t before = now_ns(CLOCK_REALTIME);
  write(1);
  ASSERT_TRUE(begin(near_cq));
  const uint64_t stamp = ibv_wc_read_completion_wallclock_ns(near_cq);
  ibv_end_poll(near_cq);
  EXPECT_GE(stamp, before);
  EXPECT_LE(stamp, now_ns(CLOCK_REALTIME));
}

TEST_F(Timestamps, OfBothClocks) {
  with_flags(uint64_t{IBV_WC_EX_WITH_COMPLETION_TIMESTAMP} |
             uint64_t{IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK});
  const uint64_t clock = now_ns(CLOCK_MONOTONIC), wall = now_ns(CLOCK_REALTIME);
  write(1);
  ASSERT_TRUE(begin(near_cq));
  EXPECT_GE(ibv_wc_read_completion_ts(near_cq), clock);
  EXPECT_LE(ibv_wc_read_completion_ts(near_cq), now_ns(CLOCK_MONOTONIC));
  EXPECT_GE(ibv_wc_read_completion_wallclock_ns(near_cq), wall);
  EXPECT_LE(ibv_wc_read_completion_wallclock_ns(near_cq), now_ns(CLOCK_REALTIME));
  ibv_end_poll(near_cq);
}

TEST_F(ExtendedCq, RtValuesThatThereAreNot) {
  ibv_values_ex values{};
  values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK << 1;
  EXPECT_EQ(ibv_query_rt_values_ex(near_host->context, &values), EINVAL);
}

// ---- creation

TEST_F(ExtendedCq, FieldsThatThereAreNot) {
  for (const uint64_t flag : {uint64_t{IBV_WC_EX_WITH_CVLAN}, uint64_t{IBV_WC_EX_WITH_FLOW_TAG},
                              uint64_t{IBV_WC_EX_WITH_TM_INFO}, uint64_t{1} << 20}) {
    ibv_cq_init_attr_ex attr = attributes(flag);
    errno = 0;
    EXPECT_EQ(ibv_create_cq_ex(near_host->context, &attr), nullptr) << flag;
    EXPECT_EQ(errno, EOPNOTSUPP) << flag;
  }
}

TEST_F(ExtendedCq, AttributesThatThereAreNot) {
  ibv_cq_init_attr_ex attr = attributes(0);
  attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
  attr.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
  errno = 0;
  EXPECT_EQ(ibv_create_cq_ex(near_host->context, &attr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  attr.comp_mask = 1u << 10;
  attr.flags = 0;
  errno = 0;
  EXPECT_EQ(ibv_create_cq_ex(near_host->context, &attr), nullptr);
  EXPECT_NE(errno, 0);
}

TEST_F(ExtendedCq, SizesAndVectorsThatAreNone) {
  ibv_device_attr device{};
  ASSERT_EQ(ibv_query_device(near_host->context, &device), 0);
  for (const uint32_t entries : {0u, static_cast<uint32_t>(device.max_cqe) + 1, UINT32_MAX}) {
    ibv_cq_init_attr_ex attr = attributes(0);
    attr.cqe = entries;
    errno = 0;
    EXPECT_EQ(ibv_create_cq_ex(near_host->context, &attr), nullptr) << entries;
    EXPECT_EQ(errno, EINVAL);
  }
  ibv_cq_init_attr_ex attr = attributes(0);
  attr.comp_vector = static_cast<uint32_t>(near_host->context->num_comp_vectors);
  errno = 0;
  EXPECT_EQ(ibv_create_cq_ex(near_host->context, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(ExtendedCq, SingleThreaded) {
  with_flags(0, IBV_CREATE_CQ_ATTR_SINGLE_THREADED);
  for (uint64_t i = 0; i < 20; ++i) write(i);
  for (uint64_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(begin(near_cq));
    EXPECT_EQ(near_cq->wr_id, i);
    ibv_end_poll(near_cq);
  }
}

TEST_F(ExtendedCq, ThreadsTakeTurnsToPoll) {
  with_flags(IBV_WC_EX_WITH_BYTE_LEN);
  for (uint64_t i = 0; i < 40; ++i) write(i);
  std::atomic<uint64_t> ids{0};
  std::atomic<int> left{40};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      const auto give_up = Clock::now() + kPatience;
      while (left.load() > 0 && Clock::now() < give_up) {
        ibv_poll_cq_attr attr{};
        if (ibv_start_poll(near_cq, &attr) != 0) continue;
        do {
          ids.fetch_add(near_cq->wr_id);
          left.fetch_sub(1);
        } while (ibv_next_poll(near_cq) == 0);
        ibv_end_poll(near_cq);
      }
    });
  for (std::thread& one : threads) one.join();
  EXPECT_EQ(left.load(), 0);
  EXPECT_EQ(ids.load(), 39u * 40u / 2) << "each completion was read once";
}

TEST_F(ExtendedCq, EventsComeThroughAChannel) {
  ibv_comp_channel* channel = ibv_create_comp_channel(near_host->context);
  ASSERT_NE(channel, nullptr);
  ibv_cq_init_attr_ex attr = attributes(0);
  attr.channel = channel;
  attr.cq_context = channel;
  ibv_cq_ex* cq = ibv_create_cq_ex(near_host->context, &attr);
  ASSERT_NE(cq, nullptr);
  ASSERT_NO_FATAL_FAILURE(create());
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = ibv_cq_ex_to_cq(cq);
  init.cap = near->options.caps;
  init.qp_type = IBV_QPT_RC;
  ASSERT_EQ(ibv_destroy_qp(near->qp), 0);
  near->qp = ibv_create_qp(near_host->pd, &init);
  ASSERT_NE(near->qp, nullptr);
  connect_endpoints(*near, *far);
  ASSERT_EQ(ibv_req_notify_cq(ibv_cq_ex_to_cq(cq), 0), 0);
  write(5);
  ibv_cq* about = nullptr;
  void* context = nullptr;
  ASSERT_EQ(ibv_get_cq_event(channel, &about, &context), 0);
  EXPECT_EQ(about, ibv_cq_ex_to_cq(cq));
  EXPECT_EQ(context, channel);
  ibv_ack_cq_events(about, 1);
  ASSERT_TRUE(begin(cq));
  EXPECT_EQ(cq->wr_id, 5u);
  ibv_end_poll(cq);
  near.reset();
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
  EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

}  // namespace
}  // namespace hostnic::conformance
