// SPDX-License-Identifier: BSD-3-Clause
// An open device and its asynchronous events.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>

#include <cstring>

#include "tests/apps/stress/common.h"
#include "tests/apps/stress/connection.h"
#include "tests/apps/stress/objects.h"
#include "tests/support/verbs_pair.h"

namespace hostnic::stress {
namespace {

ibv_context* open_device(const std::string& name) {
  ibv_context* context = verbs::open_device(name);
  if (context == nullptr)
    die(fmt::format("device {} can't be opened: hostnic lab -- hostnic-stress", name));
  return context;
}

}  // namespace

Device::Device(const std::string& device_name, unsigned number)
    : name(fmt::format("{}/{}", device_name, number)), context(open_device(device_name)) {
  must(ibv_query_gid(context, 1, 0, &gid), "ibv_query_gid");
  fcntl(context->async_fd, F_SETFL, fcntl(context->async_fd, F_GETFL) | O_NONBLOCK);
  events_ = std::jthread([this](const std::stop_token& stop) { take_events(stop); });
}

Device::~Device() {
  events_.request_stop();
  events_.join();
  must(ibv_close_device(context), "ibv_close_device");
}

void Device::enter(uint32_t qpn, End* end) {
  const std::lock_guard lock(mutex_);
  if (!by_qpn_.emplace(qpn, end).second)
    die(fmt::format("{} gives number 0x{:x} to two queue pairs", name, qpn));
}

void Device::leave(uint32_t qpn) {
  const std::lock_guard lock(mutex_);
  by_qpn_.erase(qpn);
}

End* Device::find(uint32_t qpn) {
  const std::lock_guard lock(mutex_);
  const auto found = by_qpn_.find(qpn);
  return found == by_qpn_.end() ? nullptr : found->second;
}

void Device::take_events(const std::stop_token& stop) {
  constexpr int kLookMs = 50;
  while (!stop.stop_requested()) {
    pollfd readable{context->async_fd, POLLIN, 0};
    if (poll(&readable, 1, kLookMs) != 1) continue;
    ibv_async_event event{};
    if (ibv_get_async_event(context, &event) != 0) continue;
    count(tally().async_events);
    handle(event);
    ibv_ack_async_event(&event);
  }
}

// Until it is acknowledged, what the event is about can't be destroyed.
void Device::handle(const ibv_async_event& event) {
  switch (event.event_type) {
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      if (auto* end = static_cast<End*>(event.element.qp->qp_context); end != nullptr)
        end->last_wqe_reached();
      break;
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
      if (auto* end = static_cast<End*>(event.element.qp->qp_context); end != nullptr)
        end->refused_a_request(event.event_type);
      break;
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
    case IBV_EVENT_PORT_ACTIVE:
      break;
    default:
      die(fmt::format("{}: unexpected event: {}", name, ibv_event_type_str(event.event_type)));
  }
}

}  // namespace hostnic::stress
