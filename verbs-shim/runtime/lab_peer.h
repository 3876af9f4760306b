// SPDX-License-Identifier: BSD-3-Clause
// Labs that run at once share this machine's TCP, by which programs tell each other their queue
// pairs: a client can reach the server of another lab, and waits then for answers of a queue pair
// that its own NICs have never heard of. In a lab on the virtual wire that is known at once.
#pragma once

#include <cstdint>

namespace hostnic::runtime {

// Says in one line, once in a process, that the queue pair a program has just connected to, `qpn`
// at the address `gid` of 16 bytes, is not there, though the address is that of one of the lab's
// NICs. Asks hostnicd, and so may wait; only in a plain lab, of its owner's programs, and for the
// first few connections. Any thread.
void warn_of_peer_outside_lab(const uint8_t* gid, uint32_t qpn);

}  // namespace hostnic::runtime
