// SPDX-License-Identifier: BSD-3-Clause
// Any datagram of RDMA netlink is answered by whole messages, in datagrams that programs have room
// for. The first byte says what the asker has set.
#include <cstdint>
#include <vector>

#include "protocol/nldev/answer.h"
#include "tests/fuzz/input.h"
#include "tests/unit/nldev/fake_objects.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hostnic;
  using fuzz::require;
  if (size == 0) return 0;
  const nldev::FakeObjects objects;
  const nldev::Asker asker{.port_id = 7,
                           .short_acks = (data[0] & 1) != 0,
                           .wants_words = (data[0] & 2) != 0,
                           .sees_one_host = (data[0] & 4) != 0};
  // A copy, so that a read behind the end is noticed.
  const std::vector<uint8_t> datagram(data + 1, data + size);
  const auto bytes = std::as_bytes(std::span(datagram));
  const nldev::Answer answer = nldev::answer(bytes, asker, objects);
  require(answer.refused == nldev::Refusal::kNone || !nldev::words_of(answer.refused).empty());
  size_t total = 0;
  for (const auto& each : nldev::datagrams_of(answer.messages)) {
    total += each.size();
    // What repeats a request may be as long as that.
    require(each.size() <= nldev::kDatagramBytes + datagram.size());
  }
  require(total == answer.messages.size());
  for (const auto& each : nldev::datagrams_of(nldev::refuse_all(bytes, asker, 5)))
    require(each.size() >= 20);
  return 0;
}
