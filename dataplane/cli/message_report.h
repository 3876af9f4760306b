// SPDX-License-Identifier: BSD-3-Clause
// `hostnic report` of a directory: what `trace points save` has written becomes the times of
// messages (message_times.h).
#pragma once

#include <span>
#include <string>

#include "dataplane/cli/ctf_reader.h"
#include "dataplane/cli/message_times.h"
#include "protocol/expected.h"

namespace hostnic::cli {

// Adds the events of a stream that are hostnic's. `daemon` is the number of the hostnicd, from 0,
// that it is of. Pure. An error is one line.
Expected<void, std::string> add_stream(const CtfMetadata& metadata, uint32_t daemon,
                                       std::span<const std::byte> stream, MessageTimes& times);
// Reads a directory, or those in it if it is no trace itself: traces of several hostnicds on one
// machine, whose clock they have in common. Returns what to print. An error is one line.
Expected<std::string, std::string> report_messages(const std::string& directory, bool json);

}  // namespace hostnic::cli
