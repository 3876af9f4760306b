// SPDX-License-Identifier: BSD-3-Clause
// How a capture begins, on the control socket (control_message.h): kCapture, from the user who runs
// hostnicd or from root. The connection is the capture's from then on, and ends with it.
#pragma once

#include <cstdint>

#include "protocol/hostif/capture_ring.h"
#include "protocol/hostif/control_message.h"

namespace hostnic {

struct CaptureRequest {
  uint32_t device_index = 0;
  uint32_t snap_bytes = kMaxSnapBytes;  // kMinSnapBytes .. kMaxSnapBytes: bytes kept of a packet
  uint64_t ring_bytes = 0;              // is_capture_size()
};

// Descriptors: the ring (a page of CaptureHeader, then the records; for reading), and the page with
// CaptureIndex. Behind this the names of the NIC's counters, each with a 0 behind it.
struct CaptureReply {
  DeviceInfo device;
  uint64_t ring_bytes;
  uint32_t counter_count;
  uint32_t names_bytes;
};

// kDumpCaptures, from the same users: -> ControlReply, CaptureState[count], of the captures that
// keep packets.
struct DumpCapturesRequest {
  uint32_t wish = 0;  // 1: they are to write what they keep; 0: how far are they?
  uint32_t reserved = 0;
};

struct CaptureState {
  uint32_t pid = 0;  // of who captures, as hostnicd sees it
  uint32_t dumps_wanted = 0, dumps_done = 0, dump_error = 0;  // CaptureHeader, CaptureIndex
  char nic[16] = {};
  char file[kCaptureFileBytes] = {};
};

}  // namespace hostnic
