// SPDX-License-Identifier: BSD-3-Clause
// Requests that devices get late: the program's post returns at once, as on an adapter whose send
// queue is not looked at for a while, and a thread of ours posts a copy of the request when it is
// due. Memory is read then, and inline data at the program's call. What stands behind such a
// request in its queue pair waits as well, so that the order within a queue pair stays.
//
// For any thread. A forked child has none of its parent's late requests.
#pragma once

#include <infiniband/verbs.h>

namespace hostnic::faults {

using PostSend = int (*)(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad);
// What posts to devices. Is called once, before any program's call.
void set_post(PostSend post);

// Whether some rule makes requests late: then, and only then, post_late() is to be called instead
// of the device's function. Once true it stays so.
bool holds_posts();

// As ibv_post_send. ENOMEM, too, if as many requests are late as the send queue has room for.
int post_late(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad);

// Posts what is late of a queue pair now, before anything else is done to it.
void hand_over(ibv_qp* qp);
// Forgets what is late of a queue pair that is destroyed or reset.
void drop_posts(const ibv_qp* qp);

}  // namespace hostnic::faults
