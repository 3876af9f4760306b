// SPDX-License-Identifier: BSD-3-Clause
// RDMA netlink's answers: lists in datagrams that programs have room for, single objects,
// acknowledgements, and errors for what nobody can or may have.
#include "protocol/nldev/answer.h"

#include <gtest/gtest.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <rdma/rdma_netlink.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <optional>

#include "tests/unit/nldev/fake_objects.h"

namespace hostnic::nldev {
namespace {

constexpr uint32_t kPortId = 4711, kSequence = 99;
constexpr uint16_t kList = NLM_F_REQUEST | NLM_F_ACK | NLM_F_DUMP, kOne = NLM_F_REQUEST | NLM_F_ACK;

using Numbers = std::vector<std::pair<uint16_t, uint32_t>>;

Bytes request(uint16_t operation, uint16_t flags, const Numbers& numbers = {},
              const char* device_type = nullptr) {
  Bytes out;
  {
    MessageWriter message(
        out, {.type = static_cast<uint16_t>(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, operation)),
              .flags = flags,
              .sequence = kSequence});
    for (const auto& [type, number] : numbers) message.put_u32(type, number);
    if (device_type != nullptr) message.put_text(RDMA_NLDEV_ATTR_CHARDEV_TYPE, device_type);
  }
  return out;
}

std::vector<Message> messages_in(std::span<const std::byte> bytes) {
  std::vector<Message> messages;
  while (const auto message = next_message(bytes)) messages.push_back(*message);
  EXPECT_TRUE(bytes.empty());
  return messages;
}

std::map<uint16_t, Attribute> attributes_in(std::span<const std::byte> bytes) {
  std::map<uint16_t, Attribute> attributes;
  while (const auto attribute = next_attribute(bytes)) attributes[attribute->type] = *attribute;
  EXPECT_TRUE(bytes.empty());
  return attributes;
}

// The entries of a table, of all messages that have it.
std::vector<std::map<uint16_t, Attribute>> entries_in(const Bytes& bytes, uint16_t table) {
  std::vector<std::map<uint16_t, Attribute>> entries;
  for (const Message& message : messages_in(bytes)) {
    if (message.type < NLMSG_MIN_TYPE) continue;
    auto rest = attributes_in(message.payload).at(table).payload;
    while (const auto entry = next_attribute(rest))
      entries.push_back(attributes_in(entry->payload));
  }
  return entries;
}

// The error of an acknowledgement; nothing: the message is none.
std::optional<int> error_in(const Message& message) {
  int error = 0;
  if (message.type != NLMSG_ERROR || message.payload.size() < sizeof(error)) return std::nullopt;
  memcpy(&error, message.payload.data(), sizeof(error));
  return -error;
}

class NldevAnswer : public testing::Test {
 protected:
  Answer ask(const Bytes& datagram) { return answer(datagram, asker_, objects_); }
  // The error that is all of the answer; nothing: there is more, or none.
  std::optional<int> refusal(const Bytes& datagram) {
    const Answer answer = ask(datagram);
    const auto messages = messages_in(answer.messages);
    return messages.size() == 1 ? error_in(messages[0]) : std::nullopt;
  }

  FakeObjects objects_;
  Asker asker_{.port_id = kPortId, .rdma_cm_device = 0xa3a, .verbs_device = 0x103};
};

TEST_F(NldevAnswer, ListsDevices) {
  const Answer answer = ask(request(RDMA_NLDEV_CMD_GET, kList));
  const auto messages = messages_in(answer.messages);
  ASSERT_EQ(messages.size(), 3u);
  for (const Message& message : messages) {
    EXPECT_EQ(message.sequence, kSequence);
    EXPECT_EQ(message.flags, NLM_F_MULTI);
    nlmsghdr header;
    memcpy(&header, message.whole.data(), sizeof(header));
    EXPECT_EQ(header.nlmsg_pid, kPortId);
  }
  EXPECT_EQ(messages[2].type, NLMSG_DONE);
  auto device = attributes_in(messages[0].payload);
  EXPECT_EQ(device[RDMA_NLDEV_ATTR_DEV_INDEX].u32(), 4u);
  EXPECT_EQ(device[RDMA_NLDEV_ATTR_DEV_NAME].text(), "hnic0");
  EXPECT_EQ(device[RDMA_NLDEV_ATTR_PORT_INDEX].u32(), 1u) << "the number of ports";
  EXPECT_EQ(device[RDMA_NLDEV_ATTR_FW_VERSION].text(), "1.0");
  EXPECT_EQ(device[RDMA_NLDEV_ATTR_DEV_PROTOCOL].text(), "roce");
  uint64_t guid = 0;
  memcpy(&guid, device[RDMA_NLDEV_ATTR_NODE_GUID].payload.data(), sizeof(guid));
  EXPECT_EQ(guid, 0x1122334455667788u);
  EXPECT_EQ(attributes_in(messages[1].payload)[RDMA_NLDEV_ATTR_DEV_NAME].text(), "hnic1");
}

TEST_F(NldevAnswer, ADeviceComesBeforeItsAcknowledgement) {
  const Answer answer = ask(request(RDMA_NLDEV_CMD_GET, kOne, {{RDMA_NLDEV_ATTR_DEV_INDEX, 5}}));
  const auto messages = messages_in(answer.messages);
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(messages[0].flags, 0);
  EXPECT_EQ(attributes_in(messages[0].payload)[RDMA_NLDEV_ATTR_DEV_NAME].text(), "hnic1");
  EXPECT_EQ(error_in(messages[1]), 0);
  EXPECT_EQ(datagrams_of(answer.messages).size(), 2u);
  const Answer unasked =
      ask(request(RDMA_NLDEV_CMD_GET, NLM_F_REQUEST, {{RDMA_NLDEV_ATTR_DEV_INDEX, 5}}));
  EXPECT_EQ(messages_in(unasked.messages).size(), 1u);
}

TEST_F(NldevAnswer, APortHasItsStateAndInterface) {
  const Numbers first{{RDMA_NLDEV_ATTR_DEV_INDEX, 4}, {RDMA_NLDEV_ATTR_PORT_INDEX, 1}};
  const Answer answer = ask(request(RDMA_NLDEV_CMD_PORT_GET, kOne, first));
  auto port = attributes_in(messages_in(answer.messages).at(0).payload);
  EXPECT_EQ(port[RDMA_NLDEV_ATTR_PORT_STATE].payload[0], std::byte{4});
  EXPECT_EQ(port[RDMA_NLDEV_ATTR_NDEV_NAME].text(), "lo");
  EXPECT_EQ(port[RDMA_NLDEV_ATTR_NDEV_INDEX].u32(), 1u);
  const Numbers other{{RDMA_NLDEV_ATTR_DEV_INDEX, 5}, {RDMA_NLDEV_ATTR_PORT_INDEX, 1}};
  const Answer down = ask(request(RDMA_NLDEV_CMD_PORT_GET, kOne, other));
  auto without = attributes_in(messages_in(down.messages).at(0).payload);
  EXPECT_EQ(without[RDMA_NLDEV_ATTR_PORT_STATE].payload[0], std::byte{1});
  EXPECT_FALSE(without.contains(RDMA_NLDEV_ATTR_NDEV_NAME)) << "the asker has no such interface";
  EXPECT_EQ(refusal(request(RDMA_NLDEV_CMD_PORT_GET, kOne, {{RDMA_NLDEV_ATTR_DEV_INDEX, 4}})),
            EINVAL);
  EXPECT_EQ(refusal(request(RDMA_NLDEV_CMD_PORT_GET, kOne,
                            {{RDMA_NLDEV_ATTR_DEV_INDEX, 4}, {RDMA_NLDEV_ATTR_PORT_INDEX, 2}})),
            EINVAL);
}

TEST_F(NldevAnswer, QueuePairsHaveWhatRdmaShows) {
  const Answer answer =
      ask(request(RDMA_NLDEV_CMD_RES_QP_GET, kList,
                  {{RDMA_NLDEV_ATTR_DEV_INDEX, 4}, {RDMA_NLDEV_ATTR_PORT_INDEX, 1}}));
  auto entries = entries_in(answer.messages, RDMA_NLDEV_ATTR_RES_QP);
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0][RDMA_NLDEV_ATTR_RES_LQPN].u32(), 17u);
  EXPECT_EQ(entries[0][RDMA_NLDEV_ATTR_RES_RQPN].u32(), 18u);
  EXPECT_EQ(entries[0][RDMA_NLDEV_ATTR_RES_SQ_PSN].u32(), 7u);
  EXPECT_EQ(entries[0][RDMA_NLDEV_ATTR_RES_RQ_PSN].u32(), 8u);
  EXPECT_EQ(entries[0][RDMA_NLDEV_ATTR_RES_TYPE].payload[0], std::byte{2});
  EXPECT_EQ(entries[0][RDMA_NLDEV_ATTR_RES_STATE].payload[0], std::byte{3});
  EXPECT_EQ(entries[0][RDMA_NLDEV_ATTR_RES_PDN].u32(), 3u);
  EXPECT_EQ(entries[0][RDMA_NLDEV_ATTR_RES_PID].u32(), 100u);
  EXPECT_FALSE(entries[1].contains(RDMA_NLDEV_ATTR_RES_RQPN)) << "UD has no peer";
  EXPECT_EQ(messages_in(answer.messages).back().type, NLMSG_DONE);
}

TEST_F(NldevAnswer, LongListsComeInDatagramsThatProgramsHaveRoomFor) {
  objects_.all_qps.resize(1, {});
  objects_.all_qps[0] = {
      .qpn = 0, .has_peer = true, .peer = "[fd00:1111:2222:3333:4444:5555:6666:7777]"};
  objects_.all_qps.resize(500, objects_.all_qps[0]);
  for (uint32_t i = 0; i < 500; ++i) objects_.all_qps[i].qpn = i;
  const Answer answer =
      ask(request(RDMA_NLDEV_CMD_RES_QP_GET, kList, {{RDMA_NLDEV_ATTR_DEV_INDEX, 4}}));
  const auto datagrams = datagrams_of(answer.messages);
  EXPECT_GT(datagrams.size(), 10u);
  for (const auto& each : datagrams) EXPECT_LE(each.size(), kDatagramBytes);
  auto entries = entries_in(answer.messages, RDMA_NLDEV_ATTR_RES_QP);
  ASSERT_EQ(entries.size(), 500u);
  for (uint32_t i = 0; i < 500; ++i) EXPECT_EQ(entries[i][RDMA_NLDEV_ATTR_RES_LQPN].u32(), i);
}

TEST_F(NldevAnswer, AnEmptyListIsItsEnd) {
  const Answer answer =
      ask(request(RDMA_NLDEV_CMD_RES_MR_GET, kList, {{RDMA_NLDEV_ATTR_DEV_INDEX, 5}}));
  const auto messages = messages_in(answer.messages);
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_EQ(messages[0].type, NLMSG_DONE);
}

TEST_F(NldevAnswer, EachKindOfObjectIsFoundByItsNumber) {
  struct Kind {
    uint16_t operation, number_attribute;
    uint32_t number;
    bool per_port;
  };
  for (const Kind& kind : {Kind{RDMA_NLDEV_CMD_RES_QP_GET, RDMA_NLDEV_ATTR_RES_LQPN, 17, true},
                           Kind{RDMA_NLDEV_CMD_RES_CQ_GET, RDMA_NLDEV_ATTR_RES_CQN, 5, false},
                           Kind{RDMA_NLDEV_CMD_RES_MR_GET, RDMA_NLDEV_ATTR_RES_MRN, 9, false},
                           Kind{RDMA_NLDEV_CMD_RES_PD_GET, RDMA_NLDEV_ATTR_RES_PDN, 3, false},
                           Kind{RDMA_NLDEV_CMD_RES_CM_ID_GET, RDMA_NLDEV_ATTR_RES_CM_IDN, 2, true},
                           Kind{RDMA_NLDEV_CMD_RES_CTX_GET, RDMA_NLDEV_ATTR_RES_CTXN, 1, false},
                           Kind{RDMA_NLDEV_CMD_RES_SRQ_GET, RDMA_NLDEV_ATTR_RES_SRQN, 6, false}}) {
    Numbers numbers{{RDMA_NLDEV_ATTR_DEV_INDEX, 4}, {kind.number_attribute, kind.number}};
    if (kind.per_port) numbers.emplace_back(RDMA_NLDEV_ATTR_PORT_INDEX, 1);
    const Answer answer = ask(request(kind.operation, kOne, numbers));
    const auto messages = messages_in(answer.messages);
    ASSERT_EQ(messages.size(), 2u) << kind.operation;
    auto object = attributes_in(messages[0].payload);
    EXPECT_EQ(object[kind.number_attribute].u32(), kind.number);
    EXPECT_EQ(object[RDMA_NLDEV_ATTR_RES_PID].u32(), 100u);
    numbers[1].second = 12345;
    EXPECT_EQ(refusal(request(kind.operation, kOne, numbers)), ENOENT) << kind.operation;
    EXPECT_EQ(refusal(request(kind.operation, kOne, {{RDMA_NLDEV_ATTR_DEV_INDEX, 4}})), EINVAL);
    EXPECT_EQ(refusal(request(kind.operation, kList)), EINVAL) << "of no device";
  }
}

TEST_F(NldevAnswer, ConnectionsHaveTheirAddresses) {
  const Answer answer =
      ask(request(RDMA_NLDEV_CMD_RES_CM_ID_GET, kList, {{RDMA_NLDEV_ATTR_DEV_INDEX, 4}}));
  auto entries = entries_in(answer.messages, RDMA_NLDEV_ATTR_RES_CM_ID);
  ASSERT_EQ(entries.size(), 1u);
  const auto& source = entries[0][RDMA_NLDEV_ATTR_RES_SRC_ADDR].payload;
  ASSERT_EQ(source.size(), sizeof(sockaddr_storage));
  sockaddr_in address;
  memcpy(&address, source.data(), sizeof(address));
  EXPECT_EQ(address.sin_family, AF_INET);
  EXPECT_EQ(ntohs(address.sin_port), 7471);
  EXPECT_EQ(ntohl(address.sin_addr.s_addr), 0x0a000001u);
  EXPECT_EQ(entries[0][RDMA_NLDEV_ATTR_RES_PS].u32(), 0x106u);
}

TEST_F(NldevAnswer, ASummaryCounts) {
  const Answer answer =
      ask(request(RDMA_NLDEV_CMD_RES_GET, kOne, {{RDMA_NLDEV_ATTR_DEV_INDEX, 4}}));
  auto summary = attributes_in(messages_in(answer.messages).at(0).payload);
  std::map<std::string, uint32_t> counts;
  auto rest = summary[RDMA_NLDEV_ATTR_RES_SUMMARY].payload;
  while (const auto entry = next_attribute(rest)) {
    auto fields = attributes_in(entry->payload);
    counts[std::string(fields[RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME].text())] =
        fields[RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR].u32().value_or(0);
  }
  EXPECT_EQ(counts,
            (std::map<std::string, uint32_t>{
                {"pd", 1}, {"cq", 1}, {"qp", 2}, {"cm_id", 1}, {"mr", 1}, {"ctx", 1}, {"srq", 1}}));
  EXPECT_EQ(messages_in(ask(request(RDMA_NLDEV_CMD_RES_GET, kList)).messages).size(), 3u);
}

TEST_F(NldevAnswer, CountersComeInSeveralMessagesOfThePort) {
  objects_.all_counters.clear();
  for (uint32_t i = 0; i < 200; ++i)
    objects_.all_counters.emplace_back("a_counter_with_a_long_name_" + std::to_string(i), i);
  const Numbers port{{RDMA_NLDEV_ATTR_DEV_INDEX, 4}, {RDMA_NLDEV_ATTR_PORT_INDEX, 1}};
  const Answer answer = ask(request(RDMA_NLDEV_CMD_STAT_GET, kOne, port));
  for (const auto& each : datagrams_of(answer.messages)) EXPECT_LE(each.size(), kDatagramBytes);
  auto entries = entries_in(answer.messages, RDMA_NLDEV_ATTR_STAT_HWCOUNTERS);
  ASSERT_EQ(entries.size(), 200u);
  for (uint32_t i = 0; i < 200; ++i) {
    EXPECT_EQ(entries[i][RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME].text(),
              objects_.all_counters[i].first);
    EXPECT_EQ(entries[i][RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE].u32(), i);
  }
  // Queue pairs have no counters of their own.
  Numbers of_qps = port;
  of_qps.emplace_back(RDMA_NLDEV_ATTR_STAT_RES, RDMA_NLDEV_ATTR_RES_QP);
  EXPECT_EQ(messages_in(ask(request(RDMA_NLDEV_CMD_STAT_GET, kList, of_qps)).messages).at(0).type,
            NLMSG_DONE);
  of_qps.emplace_back(RDMA_NLDEV_ATTR_STAT_MODE, 0);
  const Answer mode = ask(request(RDMA_NLDEV_CMD_STAT_GET, kOne, of_qps));
  EXPECT_EQ(
      attributes_in(messages_in(mode.messages).at(0).payload)[RDMA_NLDEV_ATTR_STAT_MODE].u32(),
      uint32_t{RDMA_COUNTER_MODE_NONE});
}

TEST_F(NldevAnswer, CharacterDevicesHaveNamesAndNumbers) {
  const Answer verbs =
      ask(request(RDMA_NLDEV_CMD_GET_CHARDEV, kOne, {{RDMA_NLDEV_ATTR_DEV_INDEX, 4}}, "uverbs"));
  auto found = attributes_in(messages_in(verbs.messages).at(0).payload);
  EXPECT_EQ(found[RDMA_NLDEV_ATTR_CHARDEV_NAME].text(), "uverbs4");
  EXPECT_EQ(found[RDMA_NLDEV_ATTR_CHARDEV].u32(), 0x103u);
  const Answer cm = ask(request(RDMA_NLDEV_CMD_GET_CHARDEV, kOne, {}, "rdma_cm"));
  EXPECT_EQ(attributes_in(messages_in(cm.messages).at(0).payload)[RDMA_NLDEV_ATTR_CHARDEV].u32(),
            0xa3au);
  EXPECT_EQ(refusal(request(RDMA_NLDEV_CMD_GET_CHARDEV, kOne, {}, "issm")), ENOENT);
  EXPECT_EQ(refusal(request(RDMA_NLDEV_CMD_GET_CHARDEV, kOne, {}, "uverbs")), EINVAL);
  EXPECT_EQ(refusal(request(RDMA_NLDEV_CMD_GET_CHARDEV, kOne)), EINVAL);
}

TEST_F(NldevAnswer, AHostOfALabHasANetworkNamespaceOfItsOwn) {
  const Bytes question = request(RDMA_NLDEV_CMD_SYS_GET, kOne);
  const auto mode = [&] {
    const Answer answer = ask(question);
    return attributes_in(messages_in(answer.messages).at(0).payload)[RDMA_NLDEV_SYS_ATTR_NETNS_MODE]
        .payload[0];
  };
  EXPECT_EQ(mode(), std::byte{1}) << "shared";
  asker_.sees_one_host = true;
  EXPECT_EQ(mode(), std::byte{0}) << "exclusive";
}

TEST_F(NldevAnswer, WhatWouldChangeSomethingIsRefusedInWords) {
  for (const auto& [operation, refused] : {std::pair{RDMA_NLDEV_CMD_NEWLINK, Refusal::kNewLink},
                                           {RDMA_NLDEV_CMD_DELLINK, Refusal::kDeleteLink},
                                           {RDMA_NLDEV_CMD_SET, Refusal::kSet},
                                           {RDMA_NLDEV_CMD_SYS_SET, Refusal::kSystem},
                                           {RDMA_NLDEV_CMD_STAT_SET, Refusal::kCounters},
                                           {RDMA_NLDEV_CMD_STAT_DEL, Refusal::kCounters}}) {
    const Bytes question = request(static_cast<uint16_t>(operation), kOne);
    asker_.wants_words = false;
    const Answer plain = ask(question);
    EXPECT_EQ(plain.refused, refused);
    const auto messages = messages_in(plain.messages);
    ASSERT_EQ(messages.size(), 1u);
    EXPECT_EQ(error_in(messages[0]), EOPNOTSUPP);
    EXPECT_EQ(messages[0].flags, 0) << "it repeats the request, and has no words";
    EXPECT_EQ(messages[0].payload.size(), sizeof(int) + question.size());
    asker_.wants_words = true;
    asker_.short_acks = true;
    const Answer wordy = ask(question);
    const Message message = messages_in(wordy.messages).at(0);
    EXPECT_EQ(message.flags, NLM_F_CAPPED | NLM_F_ACK_TLVS);
    auto words = attributes_in(message.payload.subspan(sizeof(nlmsgerr)));
    EXPECT_EQ(words[NLMSGERR_ATTR_MSG].text(), words_of(refused));
    asker_.short_acks = false;
  }
  EXPECT_EQ(words_of(static_cast<Refusal>(99)), "");
}

TEST_F(NldevAnswer, WhatIsUnknownIsNotSupported) {
  EXPECT_EQ(refusal(request(RDMA_NLDEV_CMD_RES_QP_GET_RAW, NLM_F_REQUEST)), EOPNOTSUPP);
  EXPECT_EQ(refusal(request(1000, NLM_F_REQUEST)), EOPNOTSUPP);
  Bytes other;
  {
    const MessageWriter message(other,
                                {.type = RDMA_NL_GET_TYPE(RDMA_NL_LS, 1), .flags = NLM_F_REQUEST});
  }
  EXPECT_EQ(refusal(other), EOPNOTSUPP);
}

TEST_F(NldevAnswer, MalformedRequestsAreErrorsOrNothing) {
  Bytes question;
  {
    MessageWriter message(question, {.type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_GET),
                                     .flags = NLM_F_REQUEST});
    message.put_u8(RDMA_NLDEV_ATTR_DEV_INDEX, 4);
  }
  EXPECT_EQ(refusal(question), EINVAL) << "a number of one byte";
  const Bytes whole = request(RDMA_NLDEV_CMD_GET, kList);
  for (size_t bytes = 0; bytes < whole.size(); ++bytes)
    EXPECT_TRUE(
        ask(Bytes(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(bytes))).messages.empty());
  EXPECT_TRUE(ask(request(RDMA_NLDEV_CMD_GET, 0)).messages.empty()) << "no request";
}

TEST_F(NldevAnswer, ADatagramMayHaveSeveralRequestsAndNotTooMany) {
  const Bytes one = request(RDMA_NLDEV_CMD_SYS_GET, NLM_F_REQUEST);
  Bytes many;
  for (uint32_t i = 0; i < kMostRequests + 5; ++i) many.insert(many.end(), one.begin(), one.end());
  EXPECT_EQ(messages_in(ask(many).messages).size(), kMostRequests);
  const Bytes refused = refuse_all(many, asker_, ENODEV);
  EXPECT_EQ(messages_in(refused).size(), kMostRequests);
  EXPECT_EQ(error_in(messages_in(refused).at(0)), ENODEV);
}

}  // namespace
}  // namespace hostnic::nldev
