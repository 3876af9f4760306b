// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/nldev/answer.h"

#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <rdma/rdma_user_cm.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>

#include "protocol/nldev/fill.h"
#include "protocol/nldev/request.h"

namespace hostnic::nldev {
namespace {

using Nest = MessageWriter::Nest;

// A message of a table ends with the entry that makes it longer than this: no entry has as much as
// is left of a datagram.
constexpr size_t kTableBytes = kDatagramBytes - 1024;
constexpr uint64_t kUverbsAbi = 1, kCmAbi = RDMA_USER_CM_ABI_VERSION;

// What a kind of objects is called in messages.
template <typename Object>
struct Table {
  uint16_t table = 0, entry = 0;
  bool per_port = false;
  std::vector<Object> (Objects::*all)(const Device&) const = nullptr;
  uint32_t Object::*number = nullptr;
};
constexpr Table<Qp> kQps{RDMA_NLDEV_ATTR_RES_QP, RDMA_NLDEV_ATTR_RES_QP_ENTRY, true, &Objects::qps,
                         &Qp::qpn};
constexpr Table<CmId> kCmIds{RDMA_NLDEV_ATTR_RES_CM_ID, RDMA_NLDEV_ATTR_RES_CM_ID_ENTRY, true,
                             &Objects::cm_ids, &CmId::number};
constexpr Table<Cq> kCqs{RDMA_NLDEV_ATTR_RES_CQ, RDMA_NLDEV_ATTR_RES_CQ_ENTRY, false, &Objects::cqs,
                         &Cq::number};
constexpr Table<Mr> kMrs{RDMA_NLDEV_ATTR_RES_MR, RDMA_NLDEV_ATTR_RES_MR_ENTRY, false, &Objects::mrs,
                         &Mr::number};
constexpr Table<Pd> kPds{RDMA_NLDEV_ATTR_RES_PD, RDMA_NLDEV_ATTR_RES_PD_ENTRY, false, &Objects::pds,
                         &Pd::number};
constexpr Table<OpenContext> kContexts{RDMA_NLDEV_ATTR_RES_CTX, RDMA_NLDEV_ATTR_RES_CTX_ENTRY,
                                       false, &Objects::contexts, &OpenContext::number};
constexpr Table<Srq> kSrqs{RDMA_NLDEV_ATTR_RES_SRQ, RDMA_NLDEV_ATTR_RES_SRQ_ENTRY, false,
                           &Objects::srqs, &Srq::number};

// One request, and where its answer goes. Its functions return 0 or an errno value.
class Answering {
 public:
  Answering(const Message& message, const Request& request, const Asker& asker,
            const Objects& objects, Bytes& out)
      : message_(message), request_(request), asker_(asker), objects_(objects), out_(out) {}

  int run();
  // Why run() has refused what would change something.
  Refusal refused() const { return refused_; }

 private:
  bool lists() const { return request_.lists; }
  // The header of a message of the answer.
  MessageWriter::Header header() const {
    const uint16_t flags = lists() ? NLM_F_MULTI : 0;
    return {message_.type, flags, message_.sequence, asker_.port_id};
  }
  void end_list();
  std::optional<Device> device() const;
  bool names_wrong_port() const { return request_.port && *request_.port != kPort; }
  int refuse(Refusal refusal);
  int get_devices();
  int get_ports();
  int get_summaries();
  int get_system();
  int get_character_device();
  int get_statistics();
  int get_counters(const Device& device);
  void fill_summary(MessageWriter& message, const Device& device) const;
  template <typename Object>
  int get(const Table<Object>& table);
  template <typename Object>
  void list(const Table<Object>& table, const Device& device);

  const Message& message_;
  const Request& request_;
  const Asker& asker_;
  const Objects& objects_;
  Bytes& out_;
  Refusal refused_ = Refusal::kNone;
};

int Answering::run() {
  if (request_.client != RDMA_NL_NLDEV) return EOPNOTSUPP;
  switch (request_.operation) {
    case RDMA_NLDEV_CMD_GET:
      return get_devices();
    case RDMA_NLDEV_CMD_PORT_GET:
      return get_ports();
    case RDMA_NLDEV_CMD_RES_GET:
      return get_summaries();
    case RDMA_NLDEV_CMD_SYS_GET:
      return get_system();
    case RDMA_NLDEV_CMD_RES_QP_GET:
      return get(kQps);
    case RDMA_NLDEV_CMD_RES_CM_ID_GET:
      return get(kCmIds);
    case RDMA_NLDEV_CMD_RES_CQ_GET:
      return get(kCqs);
    case RDMA_NLDEV_CMD_RES_MR_GET:
      return get(kMrs);
    case RDMA_NLDEV_CMD_RES_PD_GET:
      return get(kPds);
    case RDMA_NLDEV_CMD_RES_CTX_GET:
      return get(kContexts);
    case RDMA_NLDEV_CMD_RES_SRQ_GET:
      return get(kSrqs);
    case RDMA_NLDEV_CMD_GET_CHARDEV:
      return get_character_device();
    case RDMA_NLDEV_CMD_STAT_GET:
      return get_statistics();
    case RDMA_NLDEV_CMD_NEWLINK:
      return refuse(Refusal::kNewLink);
    case RDMA_NLDEV_CMD_DELLINK:
      return refuse(Refusal::kDeleteLink);
    case RDMA_NLDEV_CMD_SET:
      return refuse(Refusal::kSet);
    case RDMA_NLDEV_CMD_SYS_SET:
      return refuse(Refusal::kSystem);
    case RDMA_NLDEV_CMD_STAT_SET:
    case RDMA_NLDEV_CMD_STAT_DEL:
      return refuse(Refusal::kCounters);
    default:
      return EOPNOTSUPP;
  }
}

int Answering::refuse(Refusal refusal) {
  refused_ = refusal;
  return EOPNOTSUPP;
}

void Answering::end_list() {
  MessageWriter::Header end = header();
  end.type = NLMSG_DONE;
  MessageWriter message(out_, end);
  constexpr int kNoError = 0;
  message.append(std::as_bytes(std::span(&kNoError, 1)));
}

std::optional<Device> Answering::device() const {
  if (!request_.device) return std::nullopt;
  for (Device& each : objects_.devices())
    if (each.index == *request_.device) return std::move(each);
  return std::nullopt;
}

int Answering::get_devices() {
  if (lists()) {
    for (const Device& each : objects_.devices()) {
      MessageWriter message(out_, header());
      fill_device(message, each);
    }
    end_list();
    return 0;
  }
  const auto found = device();
  if (!found) return EINVAL;
  MessageWriter message(out_, header());
  fill_device(message, *found);
  return 0;
}

int Answering::get_ports() {
  const auto found = device();
  if (!found || (!lists() && !request_.port) || names_wrong_port()) return EINVAL;
  {
    MessageWriter message(out_, header());
    fill_port(message, *found);
  }
  if (lists()) end_list();
  return 0;
}

void Answering::fill_summary(MessageWriter& message, const Device& device) const {
  fill_handle(message, device);
  const Nest summary(message, RDMA_NLDEV_ATTR_RES_SUMMARY);
  fill_count(message, "pd", objects_.pds(device).size());
  fill_count(message, "cq", objects_.cqs(device).size());
  fill_count(message, "qp", objects_.qps(device).size());
  fill_count(message, "cm_id", objects_.cm_ids(device).size());
  fill_count(message, "mr", objects_.mrs(device).size());
  fill_count(message, "ctx", objects_.contexts(device).size());
  fill_count(message, "srq", objects_.srqs(device).size());
}

int Answering::get_summaries() {
  if (lists()) {
    for (const Device& each : objects_.devices()) {
      MessageWriter message(out_, header());
      fill_summary(message, each);
    }
    end_list();
    return 0;
  }
  const auto found = device();
  if (!found) return EINVAL;
  MessageWriter message(out_, header());
  fill_summary(message, *found);
  return 0;
}

int Answering::get_system() {
  MessageWriter message(out_, header());
  message.put_u8(RDMA_NLDEV_SYS_ATTR_NETNS_MODE, asker_.sees_one_host ? 0 : 1);
  message.put_u8(RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK, 1);
  return 0;
}

int Answering::get_character_device() {
  const bool is_cm = request_.character_device == "rdma_cm";
  if (!is_cm && request_.character_device != "uverbs")
    return request_.character_device.empty() ? EINVAL : ENOENT;
  const auto found = device();
  if ((request_.device && !found) || (!is_cm && !found)) return EINVAL;
  MessageWriter message(out_, header());
  message.put_u64(RDMA_NLDEV_ATTR_CHARDEV, is_cm ? asker_.rdma_cm_device : asker_.verbs_device);
  message.put_u64(RDMA_NLDEV_ATTR_CHARDEV_ABI, is_cm ? kCmAbi : kUverbsAbi);
  message.put_text(RDMA_NLDEV_ATTR_CHARDEV_NAME,
                   is_cm ? std::string("rdma_cm") : "uverbs" + std::to_string(found->index));
  return 0;
}

// Counters are a port's. Queue pairs and regions have none of their own: lists of these are empty.
int Answering::get_statistics() {
  const auto found = device();
  if (!found || names_wrong_port()) return EINVAL;
  if (lists()) {
    if (!request_.statistics_of) return EINVAL;
    end_list();
    return 0;
  }
  if (!request_.port) return EINVAL;
  if (!request_.statistics_of) return get_counters(*found);
  if (!request_.asks_for_mode || *request_.statistics_of != RDMA_NLDEV_ATTR_RES_QP) return EINVAL;
  MessageWriter message(out_, header());
  fill_handle(message, *found);
  message.put_u32(RDMA_NLDEV_ATTR_PORT_INDEX, kPort);
  message.put_u32(RDMA_NLDEV_ATTR_STAT_MODE, RDMA_COUNTER_MODE_NONE);
  return 0;
}

// Several messages, since there are more counters than programs have room for in one: each is of
// the same port.
int Answering::get_counters(const Device& device) {
  const auto counters = objects_.counters(device);
  auto next = counters.begin();
  do {
    MessageWriter message(out_, header());
    fill_handle(message, device);
    message.put_u32(RDMA_NLDEV_ATTR_PORT_INDEX, kPort);
    const Nest table(message, RDMA_NLDEV_ATTR_STAT_HWCOUNTERS);
    for (; next != counters.end() && message.size_bytes() < kTableBytes; ++next)
      fill_counter(message, next->first, next->second);
  } while (next != counters.end());
  return 0;
}

template <typename Object>
int Answering::get(const Table<Object>& table) {
  const auto found = device();
  if (!found || names_wrong_port()) return EINVAL;
  if (lists()) {
    list(table, *found);
    end_list();
    return 0;
  }
  if (!request_.id || request_.port.has_value() != table.per_port) return EINVAL;
  const std::vector<Object> all = (objects_.*table.all)(*found);
  const auto object = std::ranges::find(all, *request_.id, table.number);
  if (object == all.end()) return ENOENT;
  MessageWriter message(out_, header());
  fill_handle(message, *found);
  fill(message, *object);
  return 0;
}

template <typename Object>
void Answering::list(const Table<Object>& table, const Device& device) {
  const std::vector<Object> all = (objects_.*table.all)(device);
  for (auto next = all.begin(); next != all.end();) {
    MessageWriter message(out_, header());
    fill_handle(message, device);
    const Nest entries(message, table.table);
    for (; next != all.end() && message.size_bytes() < kTableBytes; ++next) {
      const Nest entry(message, table.entry);
      fill(message, *next);
    }
  }
}

// Says how a request ended, as netlink does.
void acknowledge(const Message& to, int error, Refusal refused, const Asker& asker, Bytes& out) {
  const bool repeats = error != 0 && !asker.short_acks;
  const std::string_view words = asker.wants_words ? words_of(refused) : std::string_view();
  const auto flags =
      static_cast<uint16_t>((repeats ? 0 : NLM_F_CAPPED) | (words.empty() ? 0 : NLM_F_ACK_TLVS));
  MessageWriter message(out, {NLMSG_ERROR, flags, to.sequence, asker.port_id});
  const int negative = -error;
  message.append(std::as_bytes(std::span(&negative, 1)));
  message.append(repeats ? to.whole : to.whole.first(sizeof(nlmsghdr)));
  if (!words.empty()) message.put_text(NLMSGERR_ATTR_MSG, words);
}

}  // namespace

std::string_view words_of(Refusal refusal) {
  switch (refusal) {
    case Refusal::kNone:
      break;
    case Refusal::kNewLink:
      return "hostnic's devices are made by its configuration: hostnic lab --nics N, or hostnicd "
             "--nic netdev=INTERFACE";
    case Refusal::kDeleteLink:
      return "hostnic's devices go when their hostnicd or lab ends: nothing deletes one before";
    case Refusal::kSet:
      return "hostnic's devices are named by configuration (hostnic lab --nic name=NAME) and stay "
             "in their network namespace";
    case Refusal::kSystem:
      return "hostnic has no netns mode to set: hostnic lab --hosts makes hosts that see their own "
             "NIC alone";
    case Refusal::kCounters:
      return "hostnic's queue pairs have no counters to bind: hostnic ctl 'show qp' says what each "
             "did";
  }
  return {};
}

Answer answer(std::span<const std::byte> datagram, const Asker& asker, const Objects& objects) {
  Answer answer;
  auto rest = datagram.first(std::min(datagram.size(), kMostRequestBytes));
  for (uint32_t i = 0; i < kMostRequests; ++i) {
    const auto message = next_message(rest);
    if (!message) break;
    int error = 0;
    bool listed = false;
    Refusal refused = Refusal::kNone;
    if ((message->flags & NLM_F_REQUEST) != 0 && message->type >= NLMSG_MIN_TYPE) {
      const auto request = parse_request(*message);
      if (request) {
        Answering answering(*message, *request, asker, objects, answer.messages);
        error = answering.run();
        refused = answering.refused();
        listed = request->lists && error == 0;
      } else {
        error = request.error();
      }
    }
    if (refused != Refusal::kNone) answer.refused = refused;
    // A list has its own end, and no other acknowledgement.
    if (error != 0 || ((message->flags & NLM_F_ACK) != 0 && !listed))
      acknowledge(*message, error, refused, asker, answer.messages);
  }
  return answer;
}

Bytes refuse_all(std::span<const std::byte> datagram, const Asker& asker, int error) {
  Bytes out;
  auto rest = datagram.first(std::min(datagram.size(), kMostRequestBytes));
  for (uint32_t i = 0; i < kMostRequests; ++i) {
    const auto message = next_message(rest);
    if (!message) break;
    acknowledge(*message, error, Refusal::kNone, asker, out);
  }
  return out;
}

}  // namespace hostnic::nldev
