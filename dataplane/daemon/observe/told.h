// SPDX-License-Identifier: BSD-3-Clause
// What a NIC tells another host of a queue pair that is asked about (protocol/cm/inquiry.h), and
// what is made of it there: the same views as of a NIC's own. This file decides what is told to
// whom (SECURITY.md). Pure functions, any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "dataplane/nic/views.h"
#include "protocol/cm/inquiry.h"
#include "protocol/hostif/descriptors.h"

namespace hostnic {

// The operation that a packet is of.
SendOp op_of(wire::Opcode opcode);
// The right that it needs at the peer.
uint32_t right_of(SendOp op);
bool is_atomic_op(SendOp op);
bool is_send_op(SendOp op);

// What a NIC knows of the number that was asked about.
struct Seen {
  std::optional<QpView> qp;
  std::optional<DeadQpView> dead;
  uint32_t other_qpn = 0;   // a queue pair that names the asker as its peer; 0: none
  KeyView key;              // of the request that `qp` has refused
  bool is_stopped = false;  // qp's program is
  TimeNs now_ns = 0;
};

// The asker, by address and number.
struct Asking {
  Ipv4Address host{};
  uint32_t qpn = 0;
};

// Whether a connection has carried nothing yet: then its PSNs, and who its peer is, help to make
// it, and are of no use to whoever would forge packets into it.
bool is_unused(const QpView& qp);
// Puts what that asker may know into the answer.
void tell(const Seen& seen, const Asking& asking, cm::InquiryAnswer& answer);

// A queue pair at another host as its NIC has told of it to `own`; nothing: it is not there.
std::optional<QpView> told_qp(const cm::InquiryAnswer& answer, const QpView& own);
// What was wrong with the key of a request; `key`, `va` and `length_bytes` are the request's.
KeyView told_key(const cm::ToldRefusal& refusal, uint32_t key, uint64_t va, uint64_t length_bytes);

}  // namespace hostnic
