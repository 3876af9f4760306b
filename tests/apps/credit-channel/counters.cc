// SPDX-License-Identifier: BSD-3-Clause
#include "tests/apps/credit-channel/counters.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <filesystem>
#include <fstream>

namespace hostnic::credit {
namespace {

// hostnic: rnr_nak_sent, rnr_nak_received. mlx5: rnr_nak_retry_err, out_of_buffer. rxe:
// send_rnr_err, rcvd_rnr_err, retry_rnr_exceeded_err.
bool counts_rnr(const std::string& name) {
  return (name.find("rnr") != std::string::npos && !name.starts_with("repeated")) ||
         name == "out_of_buffer";
}

}  // namespace

RnrCounters rnr_counters(const std::string& device) {
  const std::string directory = "/sys/class/infiniband/" + device + "/ports/1/hw_counters";
  RnrCounters found;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(directory, none)) {
    if (!counts_rnr(entry.path().filename())) continue;
    uint64_t value = 0;
    if (std::ifstream(directory + "/" + entry.path().filename().string()) >> value) {
      found.sum += value;
      ++found.counters;
    }
  }
  return found;
}

unsigned take_cq_overruns(ibv_context* context) {
  fcntl(context->async_fd, F_SETFL, fcntl(context->async_fd, F_GETFL) | O_NONBLOCK);
  unsigned overruns = 0;
  std::string fatal;
  for (ibv_async_event event{}; ibv_get_async_event(context, &event) == 0;) {
    const ibv_event_type type = event.event_type;
    ibv_ack_async_event(&event);
    if (type == IBV_EVENT_CQ_ERR)
      ++overruns;
    else if (type == IBV_EVENT_QP_FATAL || type == IBV_EVENT_QP_REQ_ERR ||
             type == IBV_EVENT_QP_ACCESS_ERR || type == IBV_EVENT_DEVICE_FATAL)
      fatal = ibv_event_type_str(type);
  }
  if (overruns == 0 && !fatal.empty())
    throw verify::Failure{fmt::format("asynchronous event: {}", fatal)};
  return overruns;
}

}  // namespace hostnic::credit
