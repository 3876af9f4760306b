// SPDX-License-Identifier: BSD-3-Clause
#include "tests/unit/abi/fake_driver.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>

#include "protocol/transport_kind.h"
#include "tests/unit/abi/gids.h"
#include "verbs-shim/memory/fork_init.h"
#include "verbs-shim/runtime/context.h"
#include "verbs-shim/runtime/discovery.h"

namespace hostnic {
namespace fake {

Behaviour& behaviour() {
  static Behaviour instance;
  return instance;
}

Seen& seen() {
  static Seen instance;
  return instance;
}

}  // namespace fake

namespace memory {
void set_fork_init() {}
void watch_forks() {}
}  // namespace memory

namespace driver {

class Qp {
 public:
  uint32_t qpn = 0;
  QpInit init;
  QpAttr attr;
  std::deque<uint64_t> receives;
  std::atomic<uint32_t> freed_slots{0};
  uint32_t posted = 0;

  // Here because Driver lets Qp see its inside.
  static void raise(Driver& driver, AsyncEvent event, Qp* qp, Cq* cq);
};

class Srq {
 public:
  SrqInit init;
  std::deque<uint64_t> receives;
  uint32_t limit = 0;
};

struct DriverCore {
  std::map<uint32_t, std::unique_ptr<Qp>> qps;
  Driver::AsyncFn async = nullptr;
  void* async_argument = nullptr;
  uint32_t last_qpn = 1;
};

void Qp::raise(Driver& driver, AsyncEvent event, Qp* qp, Cq* cq) {
  DriverCore& impl = *driver.core_;
  impl.async(impl.async_argument, event, qp != nullptr ? qp->init.user : nullptr, cq);
}

Driver::Driver(NicLink&, SegmentMemory&, const DriverSettings& settings)
    : settings_(settings), core_(std::make_unique<DriverCore>()) {}
Driver::~Driver() = default;

void Driver::set_async_handler(AsyncFn fn, void* argument) {
  core_->async = fn;
  core_->async_argument = argument;
}

std::unique_ptr<Cq> Driver::create_cq(uint32_t entries, Cq::EventFn event, void* argument) {
  return std::make_unique<Cq>(entries, event, argument);
}

Expected<Qp*, int> Driver::create_qp(const QpInit& init) {
  auto qp = std::make_unique<Qp>();
  qp->qpn = ++core_->last_qpn;
  qp->init = init;
  Qp* raw = qp.get();
  core_->qps[qp->qpn] = std::move(qp);
  ++fake::seen().qps;
  return raw;
}

int Driver::destroy_qp(Qp* qp) {
  qp->init.send_cq->remove_qp(qp->qpn);
  qp->init.recv_cq->remove_qp(qp->qpn);
  core_->qps.erase(qp->qpn);
  --fake::seen().qps;
  return 0;
}

int Driver::find_host(Ipv4Address ip) {
  fake::seen().hosts_asked_for.push_back(ip);
  return 0;
}

int Driver::modify_qp(Qp* qp, const QpAttr& attr, uint32_t mask) {
  fake::seen().attr = attr;
  fake::seen().attr_mask = mask;
  if (fake::behaviour().modify_error) return fake::behaviour().modify_error;
  const QpState before = qp->attr.state;
  const uint32_t dest_before = qp->attr.dest_qpn;
  qp->attr = attr;
  if (!(mask & kQpState)) qp->attr.state = before;
  if (!(mask & kQpDestQpn)) qp->attr.dest_qpn = dest_before;
  return 0;
}

void Driver::query_qp(Qp* qp, QpAttr& attr, QpCaps& caps) {
  attr = qp->attr;
  caps = qp->init.caps;
}

void Driver::set_mrc_limits(Qp*, const MrcLimits& limits) { fake::seen().attr.mrc = limits; }

Expected<Srq*, int> Driver::create_srq(const SrqInit& init) {
  if (int error = fake::behaviour().create_srq_error) return Unexpected(error);
  ++fake::seen().srqs;
  return new Srq{init, {}, 0};
}

int Driver::destroy_srq(Srq* srq) {
  delete srq;
  --fake::seen().srqs;
  return 0;
}

int Driver::arm_srq(Srq* srq, uint32_t limit) {
  if (limit > srq->init.max_wr) return EINVAL;
  srq->limit = limit;
  if (limit > srq->receives.size() && limit != 0) {
    srq->limit = 0;
    core_->async(core_->async_argument, AsyncEvent::kSrqLimitReached, srq->init.user, nullptr);
  }
  return 0;
}

uint32_t Driver::srq_limit(Srq* srq) { return srq->limit; }

int Driver::post_srq_recv(Srq* srq, const RecvRequest& request) {
  if (request.sges.size() > srq->init.max_sge) return EINVAL;
  if (srq->receives.size() == srq->init.max_wr) return ENOMEM;
  srq->receives.push_back(request.wr_id);
  return 0;
}

Expected<uint32_t, int> Driver::create_window(uint32_t, WindowType) {
  if (int error = fake::behaviour().window_error) return Unexpected(error);
  return kWindowKeyBit | ++fake::seen().windows << kWindowTagBits | 0x12300;
}
int Driver::destroy_window(uint32_t) {
  --fake::seen().windows;
  return 0;
}

int Driver::attach_group(Qp*, Ipv4Address group) {
  if (int error = fake::behaviour().group_error) return error;
  fake::seen().groups.push_back(group);
  return 0;
}
int Driver::detach_group(Qp*, Ipv4Address group) {
  std::erase(fake::seen().groups, group);
  return fake::behaviour().group_error;
}

uint32_t Driver::free_send_slots(Qp* qp) {
  if (fake::behaviour().send_slots_free) return fake::behaviour().send_slots_free;
  return qp->init.caps.max_send_wr - (qp->posted - qp->freed_slots.load());
}

namespace {

WcOpcode completed_opcode(SendOp op) {
  switch (op) {
    case SendOp::kSend:
    case SendOp::kSendImm:
    case SendOp::kSendInv:
      return WcOpcode::kSend;
    case SendOp::kBindWindow:
      return WcOpcode::kBindMw;
    case SendOp::kLocalInvalidate:
      return WcOpcode::kLocalInv;
    case SendOp::kRead:
      return WcOpcode::kRdmaRead;
    case SendOp::kCompareSwap:
      return WcOpcode::kCompSwap;
    case SendOp::kFetchAdd:
      return WcOpcode::kFetchAdd;
    default:
      return WcOpcode::kRdmaWrite;
  }
}

void remember(const SendRequest& request) {
  fake::Seen& seen = fake::seen();
  ++seen.posts;
  seen.send = request;
  seen.send.sges = {};
  seen.sges.assign(request.sges.begin(), request.sges.end());
  if (!request.inline_data) return;
  seen.inline_bytes.clear();
  for (const Sge& sge : request.sges) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(sge.addr);
    seen.inline_bytes.insert(seen.inline_bytes.end(), bytes, bytes + sge.length_bytes);
  }
}

}  // namespace

int Driver::post_send(Qp* qp, const SendRequest& request, TimeNs) {
  if (fake::behaviour().post_error) return fake::behaviour().post_error;
  if (qp->attr.state != QpState::kRts) return EINVAL;
  if (request.sges.size() > qp->init.caps.max_send_sge && !request.inline_data) return EINVAL;
  if (free_send_slots(qp) == 0) return ENOMEM;
  remember(request);
  ++qp->posted;
  uint32_t bytes = 0;
  for (const Sge& sge : request.sges) bytes += sge.length_bytes;
  const bool datagram = qp->init.type == QpType::kUd;
  const auto peer = core_->qps.find(datagram ? request.ud.qpn : qp->attr.dest_qpn);
  const bool sends = request.op == SendOp::kSend || request.op == SendOp::kSendImm ||
                     request.op == SendOp::kSendInv;
  std::deque<uint64_t>* receives = nullptr;
  if (sends && peer != core_->qps.end()) {
    Srq* srq = peer->second->init.srq;
    receives = srq != nullptr ? &srq->receives : &peer->second->receives;
  }
  if (receives != nullptr && !receives->empty()) {
    Completion done;
    done.wr_id = receives->front();
    receives->pop_front();
    done.opcode = WcOpcode::kRecv;
    done.byte_len = bytes;
    done.qpn = peer->first;
    done.src_qpn = qp->qpn;
    done.imm_data = request.imm_data;
    if (request.op == SendOp::kSendImm) done.flags = kWcWithImm;
    if (request.op == SendOp::kSendInv) done.flags = kWcWithInv;
    if (datagram) done.flags |= kWcGrh;
    peer->second->init.recv_cq->push(done, request.solicited, nullptr, 0);
  }
  if (request.signalled || qp->init.signal_all) {
    Completion done;
    done.wr_id = request.wr_id;
    done.opcode = completed_opcode(request.op);
    done.qpn = qp->qpn;
    qp->init.send_cq->push(done, false, &qp->freed_slots, 1);
  }
  return 0;
}

int Driver::post_recv(Qp* qp, const RecvRequest& request) {
  if (qp->receives.size() == qp->init.caps.max_recv_wr) return ENOMEM;
  qp->receives.push_back(request.wr_id);
  return 0;
}

uint32_t qpn_of(const Qp& qp) { return qp.qpn; }

}  // namespace driver

namespace runtime {

using namespace driver;

struct Context::Parts : NicLink {
  void kick() override {}
  void wait_for_response() override {}
  void pause(uint32_t) override {}
  SegmentMemory segment;
};

Context::Context() = default;
Context::~Context() = default;
void Context::kick() {}
void Context::wait_for_response() {}
void Context::take_unreliable_writes() {}
void Context::pause(uint32_t) {}
std::optional<driver::Why> Context::ask_why(const ExplainRequest&) { return driver::Why{}; }
void Context::owe_line(const driver::OwedLine&) {}

std::string counters_text(std::string_view) { return {}; }

Expected<NetlinkAnswer, int> ask_netlink(const RdmaNetlinkRequest& as,
                                         std::span<const std::byte> datagram) {
  if (fake::behaviour().no_hostnicd) return Unexpected(EIO);
  fake::seen().netlink = as;
  fake::seen().netlink_datagrams.emplace_back(datagram.begin(), datagram.end());
  return NetlinkAnswer{fake::behaviour().netlink_answer, 0};
}

Expected<std::vector<DeviceInfo>, ContextError> list_devices() {
  if (fake::behaviour().no_hostnicd) {
    return Unexpected(ContextError{ECONNREFUSED, "/nowhere: nobody listens; start hostnicd"});
  }
  std::vector<DeviceInfo> devices(2);
  for (uint32_t i = 0; i < devices.size(); ++i) {
    DeviceInfo& info = devices[i];
    snprintf(info.name, sizeof info.name, "hnic%u", i);
    info.index = i;
    info.ip = 0x0a000001 + i;
    abi::set_gids(info, {gid_of(Ipv4Address{info.ip})});
    info.gid_table_length = 1;
    info.prefix_length = 24;
    info.mtu_bytes = 4096;
    info.link_up = 1;
    info.speed_mbps = 100'000;
    info.max_qps = 1024;
    info.max_mrs = 4096;
    info.asks_for_hosts = i;
    info.window = 512;
    info.transport = static_cast<uint32_t>(i == 0 ? Transport::kMrc : Transport::kHostnic);
    info.entropy_values = 32;
    info.offer = fake::behaviour().offer;
    const uint8_t guid[8] = {0x02, 0, 0, 0xff, 0xfe, 0, 0, static_cast<uint8_t>(i + 1)};
    memcpy(&info.node_guid, guid, sizeof guid);
    snprintf(info.port, sizeof info.port, "net_ring%u", i);
  }
  return devices;
}

Expected<std::unique_ptr<Context>, ContextError> Context::open(uint32_t index) {
  auto devices = list_devices();
  if (!devices) return Unexpected(devices.error());
  std::unique_ptr<Context> context(new Context);
  context->parts_ = std::make_unique<Parts>();
  context->device_ = (*devices)[index];
  context->driver_ =
      std::make_unique<Driver>(*context->parts_, context->parts_->segment, DriverSettings{});
  context->alive_ = true;
  return context;
}

Expected<Ipv4Address, int> Context::number_of(const Gid& host) {
  return abi::LastByteNumbers().number_of(host);
}

Expected<MemoryRegistration, ContextError> Context::register_memory(
    uint32_t, uint64_t va, uint64_t length_bytes, uint64_t iova, uint32_t access,
    const MemoryRegistration* replaced) {
  if (int error = fake::behaviour().register_error) {
    return Unexpected(ContextError{error, "refused by the test"});
  }
  if (int error = fake::behaviour().deregister_error; replaced != nullptr && error != 0) {
    return Unexpected(ContextError{error, "refused by the test"});
  }
  static uint32_t last_key = 0x1000;
  if (replaced == nullptr) ++fake::seen().mrs;
  fake::seen().iova = iova;
  fake::seen().access = access;
  const uint32_t key = replaced != nullptr ? replaced->lkey : ++last_key;
  return MemoryRegistration{key, key, va, length_bytes};
}

int Context::deregister_memory(const MemoryRegistration&) {
  if (int error = fake::behaviour().deregister_error) return error;
  --fake::seen().mrs;
  return 0;
}

int Context::prefetch(uint64_t va, uint64_t length_bytes, bool for_writing) {
  fake::seen().prefetches.push_back({va, length_bytes, for_writing});
  return fake::behaviour().prefetch_error;
}

int Context::resize_cq(Cq& cq, uint32_t entries) { return cq.resize(entries); }
int Context::poll_cq(Cq& cq, Completion* out, int max) { return cq.poll(out, max); }
int Context::post_send(Qp& qp, const SendRequest& request) {
  return driver_->post_send(&qp, request, 0);
}
int Context::post_recv(Qp& qp, const RecvRequest& request) {
  return driver_->post_recv(&qp, request);
}
int Context::post_srq_recv(Srq& srq, const RecvRequest& request) {
  return driver_->post_srq_recv(&srq, request);
}
bool Context::port_up() const { return !fake::behaviour().port_down; }
uint32_t Context::port_mtu_bytes() const {
  const uint32_t lowered = fake::behaviour().port_mtu_bytes;
  return lowered == 0 ? device_.mtu_bytes : lowered;
}
void Context::abandon_after_fork() {
  fake::seen().abandoned = true;
  alive_ = false;
}

}  // namespace runtime

namespace fake {

void raise(driver::Driver& driver, driver::AsyncEvent event, driver::Qp* qp, driver::Cq* cq) {
  driver::Qp::raise(driver, event, qp, cq);
}

}  // namespace fake
}  // namespace hostnic
