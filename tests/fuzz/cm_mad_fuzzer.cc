// SPDX-License-Identifier: BSD-3-Clause
// Management datagrams: what is understood survives being built and parsed again, and the IP header
// in front of a REQ's private data likewise, what hosts say of what they speak, and of connections.
#include <algorithm>
#include <cstdlib>

#include "protocol/cm/inquiry.h"

using namespace hostnic::cm;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  MadBytes bytes{};
  std::copy_n(reinterpret_cast<const std::byte*>(data), std::min(size, bytes.size()),
              bytes.begin());
  const auto mad = parse(bytes);
  if (!mad) return 0;
  if (parse(build(*mad)) != mad) std::abort();
  if (const auto question = question_in(*mad);
      question && question_in(mad_of(*question)) != question)
    std::abort();
  if (const auto answer = answer_in(*mad); answer && answer_in(mad_of(*answer)) != answer)
    std::abort();
  if (const auto asked = inquiry_in(*mad); asked && inquiry_in(mad_of(*asked)) != asked)
    std::abort();
  if (const auto heard = inquiry_answer_in(*mad); heard && heard->known) {
    const auto again = inquiry_answer_in(mad_of(heard->answer));
    if (!again || !again->known || again->answer != heard->answer) std::abort();
  }
  if (const auto* req = std::get_if<Req>(&mad->message)) {
    const auto ip = parse_ip_header(std::span(req->private_data).first<kIpHeaderBytes>());
    std::array<std::byte, kIpHeaderBytes> again;
    if (ip) {
      emit(*ip, again);
      if (parse_ip_header(again) != ip) std::abort();
    }
  }
  return 0;
}
