// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/trace/words.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <cerrno>
#include <string>

#include "verbs-shim/trace/recorder.h"

namespace hostnic::trace {
namespace {

std::string text_of(const Text& text) { return std::string(text.bytes(), text.size()); }

TEST(TraceWords, AttributesThatTheMaskNames) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = 0x12ab;
  attr.rq_psn = 77;
  attr.timeout = 14;  // not named
  Text text;
  add_qp_attr(text, attr, IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN);
  EXPECT_EQ(text_of(text), ", state RTR, path_mtu 1024, dest_qp 0x12ab, rq_psn 77");
}

TEST(TraceWords, AddressWithoutAGrhSaysSo) {
  ibv_ah_attr attr{};
  attr.dlid = 5;
  attr.port_num = 1;
  Text text;
  add_ah(text, attr);
  EXPECT_EQ(text_of(text), "{dlid 0x5, no GRH port 1}");
}

TEST(TraceWords, RequestsOfAList) {
  ibv_sge sge{.addr = 0x1000, .length = 64, .lkey = 9};
  ibv_send_wr second{};
  second.wr_id = 2;
  second.opcode = IBV_WR_SEND_WITH_IMM;
  second.imm_data = htonl(7);
  ibv_send_wr first{};
  first.wr_id = 1;
  first.next = &second;
  first.opcode = IBV_WR_RDMA_WRITE;
  first.sg_list = &sge;
  first.num_sge = 1;
  first.send_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE;
  first.wr.rdma.remote_addr = 0x2000;
  first.wr.rdma.rkey = 0x30;
  Text text;
  add_send_requests(text, &first);
  EXPECT_EQ(text_of(text),
            ", [WRITE wr_id 0x1, 64 bytes at 0x1000 lkey 0x9, remote 0x2000 rkey 0x30, "
            "FENCE|SIGNALED], [SEND_WITH_IMM wr_id 0x2, 0 bytes, imm 0x7]");
}

TEST(TraceWords, AListInACircleEndsWithTheText) {
  ibv_send_wr wr{};
  wr.next = &wr;
  Text text;
  add_send_requests(text, &wr);
  EXPECT_TRUE(text.full());
  EXPECT_TRUE(text_of(text).ends_with("..."));
  text.begin_result();
  text.add(" = 0");
  EXPECT_TRUE(text_of(text).ends_with("... = 0")) << "the result has room of its own";
}

TEST(TraceWords, CompletionsThatFailedHaveNoOpcode) {
  ibv_wc completions[2] = {};
  completions[0].opcode = IBV_WC_RECV;
  completions[0].byte_len = 100;
  completions[0].qp_num = 0x11;
  completions[1].status = IBV_WC_REM_ACCESS_ERR;
  completions[1].opcode = IBV_WC_RECV;  // means nothing
  completions[1].vendor_err = 4;
  Text text;
  add_completions(text, completions, 2);
  EXPECT_EQ(text_of(text),
            " [RECV wr_id 0x0 qp 0x11 100 bytes], [REM_ACCESS_ERR wr_id 0x0 qp 0x0 vendor_err 4]");
}

TEST(TraceWords, NumbersWithoutANameStayNumbers) {
  Text text;
  add_access(text, IBV_ACCESS_REMOTE_READ | 1u << 30);
  text.add(" ");
  add_qp_type(text, 99);
  text.add(" ");
  add_access(text, 0);
  EXPECT_EQ(text_of(text), "REMOTE_READ|0x40000000 99 0");
}

TEST(TraceWords, SocketAddresses) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(80);
  inet_pton(AF_INET, "127.77.0.1", &address.sin_addr);
  Text text;
  add_socket_address(text, reinterpret_cast<const sockaddr*>(&address));
  EXPECT_EQ(text_of(text), "127.77.0.1:80");
}

TEST(TraceRecorder, IsOffWithoutARing) {
  EXPECT_FALSE(is_on());
  Call call("ibv_alloc_pd");
  errno = 17;
  call.begins();
  EXPECT_EQ(call.ends(-1), -1);
  EXPECT_EQ(errno, 17);
  EXPECT_STREQ(errno_name(EINVAL), "EINVAL");
  EXPECT_EQ(errno_name(12345), nullptr);
}

}  // namespace
}  // namespace hostnic::trace
