// SPDX-License-Identifier: BSD-3-Clause
// Says why a request failed, or why nothing comes, in one line with names and numbers. Where both
// ends are this hostnicd's, both are looked at; else the peer's host is asked (inquiries.h), which
// nobody waits for here. Any thread but an lcore: the NICs' lcores are asked one after the other.
#pragma once

#include <optional>
#include <string>

#include "dataplane/daemon/daemon.h"
#include "dataplane/nic/views.h"
#include "protocol/hostif/control_message.h"

namespace hostnic {

// What is said; or, with the queue pair as it was, that its peer's host is being asked: then
// explain_peer() says it a little later.
struct Explanation {
  std::string text;
  std::optional<QpView> comes_later;
};
// The answer to a program's question about its queue pair of the NIC. Empty: nothing is known, or
// the queue pair is not the client's. Of a peer that is another user's, and does not name this
// queue pair as its own peer, nothing is said but that.
Explanation explain(Daemon& daemon, NicInstance& own, uint32_t client_id,
                    const ExplainRequest& request);
// This one asks by the queue pair as it was, for questions about its peer.
Explanation explain_peer(Daemon& daemon, NicInstance& instance, const QpView& qp,
                         uint32_t client_id, const ExplainRequest& request);

// A queue pair in sentences, one a line: state, peer, what is outstanding, what it waits for.
// `more`: its peer's host is being asked, and more is known a little later.
std::string describe(Daemon& daemon, NicInstance& instance, const QpView& qp, bool& more);
// Its round trip, its retransmission timeout, and what it has sent again, for which causes; lines.
std::string describe_timing(const QpView& qp);
// The request of its peer that a queue pair has refused, and why: "WRITE of its peer: rkey ...".
std::string describe_refusal(NicInstance& instance, const QpView& qp);
// Says it of a queue pair that is no more, by its NAK: its keys can't be looked at any more.
std::string describe_old_refusal(const QpView& qp);
// A queue pair that is no more, in one line: whose it was, and how it ended.
std::string describe(NicInstance& instance, const DeadQpView& dead);

// What is wrong with a key, as part of a sentence; empty: nothing is.
std::string to_text(const KeyView& view, const std::string& nic, bool is_remote);

// The names of access flags, with commas.
std::string access_names(uint32_t access);

}  // namespace hostnic
