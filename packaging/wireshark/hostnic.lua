-- SPDX-License-Identifier: BSD-3-Clause
-- Wireshark's dissector for hostnic's native transport (docs/wire.md): opcodes 0xc0 to 0xc5 and 0xe6 to 0xe9
-- of RoCEv2, and what WRITE Only carries in BTH beside the standard; and for MRC (docs/mrc.md), whose opcodes from 0xc6
-- to 0xde are no others'. All other packets go on to Wireshark's own dissector. Expert infos tell of retransmissions,
-- gaps, duplicates, NAKs and NACKs; what the NIC decided is in the packets' comments (hostnic capture).
--
-- Installed where Wireshark looks for plugins; from elsewhere: tshark -X lua_script:hostnic.lua -r FILE

local ROCE_PORT = 4791
local BTH_BYTES, ICRC_BYTES = 12, 4
local WRITE_ONLY = 0x0a
local MOST_MISSING = 65536  -- PSNs of one flow that are remembered as missing

local hostnic = Proto("hostnic", "hostnic native RDMA transport")

local OPCODES = {
  [0x0a] = "WRITE", [0xc0] = "WRITE_IMM", [0xc1] = "SEND", [0xc2] = "SEND_IMM", [0xc3] = "READ",
  [0xc4] = "READ_RESPONSE", [0xc5] = "COMPARE_SWAP", [0xe6] = "FETCH_ADD", [0xe7] = "ATOMIC_RESPONSE",
  [0xe8] = "ACK", [0xe9] = "SEND_INV"}
-- The extension headers of each, in order.
local LAYOUT = {
  [0xc0] = {"neth", "reth", "imm", "recv"}, [0xc1] = {"neth", "reth"}, [0xc2] = {"neth", "reth", "imm"},
  [0xc3] = {"neth", "reth", "read"}, [0xc4] = {"neth", "reth", "resp"}, [0xc5] = {"neth", "atomic", "read"},
  [0xe6] = {"neth", "atomic", "read"}, [0xe7] = {"neth", "reth", "resp"}, [0xe8] = {"neth", "aeth", "sack"},
  [0xe9] = {"neth", "reth", "ieth"}}
local RESPONSES = {[0xc4] = true, [0xe7] = true}
local ACK = 0xe8
local POLICIES = {[0] = "selective", [1] = "go-back-n", [2] = "whole-message"}
local NAKS = {[0] = "PSN sequence", [1] = "invalid request", [2] = "remote access", [3] = "remote operation"}
local KINDS = {[0] = "ACK", [1] = "RNR NAK", [3] = "NAK"}

local f = hostnic.fields
f.opcode = ProtoField.uint8("hostnic.opcode", "Opcode", base.HEX, OPCODES)
f.solicited = ProtoField.bool("hostnic.solicited", "Solicited", 8, nil, 0x80)
f.pad = ProtoField.uint8("hostnic.pad", "Pad count", base.DEC, nil, 0x30)
f.pkey = ProtoField.uint16("hostnic.pkey", "P_Key", base.HEX)
f.fecn = ProtoField.bool("hostnic.fecn", "FECN", 8, nil, 0x80)
f.becn = ProtoField.bool("hostnic.becn", "BECN", 8, nil, 0x40)
f.destqp = ProtoField.uint24("hostnic.destqp", "Destination queue pair", base.HEX)
f.ackreq = ProtoField.bool("hostnic.ackreq", "ACK requested", 8, nil, 0x80)
f.cont = ProtoField.bool("hostnic.cont", "Not the first packet of its message", 8, nil, 0x40)
f.more = ProtoField.bool("hostnic.more", "Not the last packet of its message", 8, nil, 0x20)
f.attempt = ProtoField.uint8("hostnic.attempt", "Attempt", base.DEC, nil, 0x18)
f.policy = ProtoField.uint8("hostnic.policy", "Recovery policy", base.DEC, POLICIES, 0x06)
f.psn = ProtoField.uint24("hostnic.psn", "PSN", base.DEC)
f.version = ProtoField.uint8("hostnic.version", "Native version", base.DEC)
f.srcqp = ProtoField.uint24("hostnic.srcqp", "Source queue pair", base.HEX)
f.va = ProtoField.uint64("hostnic.va", "Virtual address", base.HEX)
f.offset = ProtoField.uint64("hostnic.offset", "Offset", base.DEC)
f.rkey = ProtoField.uint32("hostnic.rkey", "Remote key", base.HEX)
f.recv_sn = ProtoField.uint32("hostnic.recv_sn", "Receive sequence number", base.DEC)
f.read_number = ProtoField.uint32("hostnic.read_number", "Read number", base.DEC)
f.length = ProtoField.uint32("hostnic.length", "Length", base.DEC)
f.message = ProtoField.uint32("hostnic.message", "Length of the message", base.DEC)
f.imm = ProtoField.bytes("hostnic.imm", "Immediate data")
f.invalidates = ProtoField.uint32("hostnic.invalidates", "Key to invalidate", base.HEX)
f.first_response_psn = ProtoField.uint24("hostnic.first_response_psn", "First response PSN", base.DEC)
f.epoch = ProtoField.uint8("hostnic.epoch", "Epoch", base.DEC)
f.range_offset = ProtoField.uint32("hostnic.range_offset", "Offset of the range", base.DEC)
f.range_length = ProtoField.uint32("hostnic.range_length", "Length of the range", base.DEC)
f.swap_or_add = ProtoField.uint64("hostnic.swap_or_add", "Swap or add", base.HEX)
f.compare = ProtoField.uint64("hostnic.compare", "Compare", base.HEX)
f.kind = ProtoField.uint8("hostnic.kind", "Kind", base.DEC, KINDS, 0x60)
f.code = ProtoField.uint8("hostnic.code", "Code", base.DEC, nil, 0x1f)
f.msn = ProtoField.uint24("hostnic.msn", "MSN", base.DEC)
f.base = ProtoField.uint24("hostnic.base", "Base: the PSN that is expected", base.DEC)
f.words = ProtoField.uint8("hostnic.words", "Words of the bitmap", base.DEC)
f.window_end = ProtoField.uint24("hostnic.window_end", "Highest acceptable PSN", base.DEC)
f.echo_valid = ProtoField.bool("hostnic.echo_valid", "Echo is valid", 8, nil, 0x01)
f.echo_duplicate = ProtoField.bool("hostnic.echo_duplicate", "Of a duplicate", 8, nil, 0x02)
f.has_credit = ProtoField.bool("hostnic.has_credit", "Has credit", 8, nil, 0x04)
f.congested = ProtoField.bool("hostnic.congested", "Congestion mark", 8, nil, 0x08)
f.echo_attempt = ProtoField.uint8("hostnic.echo_attempt", "Attempt that is echoed", base.DEC, nil, 0x30)
f.credit = ProtoField.uint32("hostnic.credit", "Receive SN limit", base.DEC)
f.echo_psn = ProtoField.uint24("hostnic.echo_psn", "Echo PSN", base.DEC)
f.nak_sn = ProtoField.uint32("hostnic.nak_sn", "NAK SN or PSN", base.DEC)
f.bitmap = ProtoField.bytes("hostnic.bitmap", "Bitmap")
f.payload = ProtoField.bytes("hostnic.payload", "Payload")
f.padding = ProtoField.bytes("hostnic.padding", "Pad")
f.icrc = ProtoField.uint32("hostnic.icrc", "ICRC", base.HEX)

local e = hostnic.experts
e.retransmission = ProtoExpert.new("hostnic.retransmission", "Retransmission", expert.group.SEQUENCE,
  expert.severity.NOTE)
e.gap = ProtoExpert.new("hostnic.gap", "Packets are missing before this one", expert.group.SEQUENCE,
  expert.severity.WARN)
e.fills = ProtoExpert.new("hostnic.fills", "Fills a gap", expert.group.SEQUENCE, expert.severity.CHAT)
e.duplicate = ProtoExpert.new("hostnic.duplicate", "Duplicate", expert.group.SEQUENCE, expert.severity.NOTE)
e.nak = ProtoExpert.new("hostnic.nak", "NAK", expert.group.RESPONSE_CODE, expert.severity.ERROR)
e.rnr = ProtoExpert.new("hostnic.rnr", "Receiver not ready", expert.group.RESPONSE_CODE, expert.severity.WARN)
e.short = ProtoExpert.new("hostnic.short", "Shorter than its headers", expert.group.MALFORMED, expert.severity.ERROR)

local interface_of, comment_of = Field.new("frame.interface_id"), Field.new("frame.comment")
local standard = DissectorTable.get("udp.port"):get_dissector(ROCE_PORT)
-- By flow, as this capture goes on; and what was found, by packet.
local flows, found = {}, {}

function hostnic.init()
  flows, found = {}, {}
end

-- Places PSN in its flow: {gap = n} where n are missing before it, {fills = true}, {duplicate = true}, or {}. Packets
-- that are captured where they leave and where they arrive are of two interfaces, and so of two flows.
local function place(pinfo, key, psn)
  if found[pinfo.number] ~= nil then return found[pinfo.number] end
  local flow, result = flows[key], {}
  if flow == nil then
    flows[key] = {lowest = psn, highest = psn, missing = {}}
  else
    local ahead = (psn - flow.highest) % 0x1000000
    if ahead == 0 then
      result.duplicate = true
    elseif ahead < 0x800000 then
      if ahead > 1 then
        result.gap = ahead - 1
        for i = 1, math.min(ahead - 1, MOST_MISSING) do flow.missing[(flow.highest + i) % 0x1000000] = true end
      end
      flow.highest = psn
    elseif (flow.lowest - psn) % 0x1000000 - 1 < 0x7fffff and psn ~= flow.lowest then
      flow.lowest = psn  -- from before the capture saw its flow
    elseif flow.missing[psn] then
      flow.missing[psn] = nil
      result.fills = true
    else
      result.duplicate = true
    end
  end
  found[pinfo.number] = result
  return result
end

-- Each takes the bytes of its header, adds them to the tree and returns what the info column says.
local HEADERS = {}
HEADERS.neth = {4, function(tvb, tree)
  tree:add(f.version, tvb(0, 1))
  tree:add(f.srcqp, tvb(1, 3))
end}
HEADERS.reth = {16, function(tvb, tree, opcode)
  if opcode == 0xc0 or opcode == 0xc3 or opcode == WRITE_ONLY then
    tree:add(f.va, tvb(0, 8))
    tree:add(f.rkey, tvb(8, 4))
    tree:add(f.length, tvb(12, 4))
    return string.format("va 0x%s rkey 0x%x len %d", tvb(0, 8):uint64():tohex(), tvb(8, 4):uint(), tvb(12, 4):uint())
  end
  tree:add(f.offset, tvb(0, 8))
  if RESPONSES[opcode] then
    tree:add(f.read_number, tvb(8, 4))
    tree:add(f.length, tvb(12, 4))
    return string.format("read %d offset %s len %d", tvb(8, 4):uint(), tostring(tvb(0, 8):uint64()), tvb(12, 4):uint())
  end
  tree:add(f.recv_sn, tvb(8, 4))
  tree:add(f.message, tvb(12, 4))
  return string.format("sn %d offset %s of %d", tvb(8, 4):uint(), tostring(tvb(0, 8):uint64()), tvb(12, 4):uint())
end}
HEADERS.imm = {4, function(tvb, tree) tree:add(f.imm, tvb(0, 4)) end}
HEADERS.ieth = {4, function(tvb, tree) tree:add(f.invalidates, tvb(0, 4)) end}
HEADERS.recv = {8, function(tvb, tree)
  tree:add(f.recv_sn, tvb(0, 4))
  tree:add(f.message, tvb(4, 4))
end}
HEADERS.read = {16, function(tvb, tree)
  tree:add(f.read_number, tvb(0, 4))
  tree:add(f.first_response_psn, tvb(4, 3))
  tree:add(f.epoch, tvb(7, 1))
  tree:add(f.range_offset, tvb(8, 4))
  tree:add(f.range_length, tvb(12, 4))
  return string.format("read %d range %d+%d", tvb(0, 4):uint(), tvb(8, 4):uint(), tvb(12, 4):uint())
end}
HEADERS.resp = {4, function(tvb, tree) tree:add(f.epoch, tvb(0, 1)) end}
HEADERS.atomic = {28, function(tvb, tree)
  tree:add(f.va, tvb(0, 8))
  tree:add(f.rkey, tvb(8, 4))
  tree:add(f.swap_or_add, tvb(12, 8))
  tree:add(f.compare, tvb(20, 8))
end}
HEADERS.aeth = {4, function(tvb, tree)
  local syndrome = tvb(0, 1):uint()
  local kind, code = bit.band(bit.rshift(syndrome, 5), 3), bit.band(syndrome, 0x1f)
  local item = tree:add(f.kind, tvb(0, 1))
  tree:add(f.code, tvb(0, 1))
  tree:add(f.msn, tvb(1, 3))
  if kind == 3 then
    item:add_proto_expert_info(e.nak, "NAK: " .. (NAKS[code] or "reserved"))
    return "NAK " .. (NAKS[code] or "reserved")
  elseif kind == 1 then
    item:add_proto_expert_info(e.rnr)
    return "RNR NAK"
  end
end}
HEADERS.sack = {20, function(tvb, tree)
  tree:add(f.base, tvb(0, 3))
  tree:add(f.words, tvb(3, 1))
  tree:add(f.window_end, tvb(4, 3))
  for _, flag in ipairs({"echo_valid", "echo_duplicate", "has_credit", "congested", "echo_attempt"}) do
    tree:add(f[flag], tvb(7, 1))
  end
  tree:add(f.credit, tvb(8, 4))
  tree:add(f.echo_psn, tvb(12, 3))
  tree:add(f.nak_sn, tvb(16, 4))
  return string.format("base %d window-end %d", tvb(0, 3):uint(), tvb(4, 3):uint())
end}

local function add_bth(tvb, tree)
  tree:add(f.opcode, tvb(0, 1))
  tree:add(f.solicited, tvb(1, 1))
  tree:add(f.pad, tvb(1, 1))
  tree:add(f.pkey, tvb(2, 2))
  tree:add(f.fecn, tvb(4, 1))
  tree:add(f.becn, tvb(4, 1))
  tree:add(f.destqp, tvb(5, 3))
  tree:add(f.ackreq, tvb(8, 1))
  tree:add(f.cont, tvb(8, 1))
  tree:add(f.more, tvb(8, 1))
end

-- Whether the packet never came to be on the wire.
local function is_dropped()
  local comment = comment_of()
  return comment and comment.value:find("dropped by", 1, true) ~= nil
end

-- Where the PSN lies in its flow, which `kind` distinguishes from others of the same addresses.
local function place_of(tvb, pinfo, kind)
  local interface = interface_of()
  local key = table.concat({interface and tostring(interface.value) or "", tostring(pinfo.src), tostring(pinfo.dst),
                            tvb(5, 3):uint(), kind}, " ")
  return place(pinfo, key, tvb(9, 3):uint())
end

-- What BTH and the PSN say about recovery; returns words for the info column.
local function add_recovery(tvb, pinfo, tree, opcode)
  local words = ""
  local attempt = bit.band(bit.rshift(tvb(8, 1):uint(), 3), 3)
  local item = tree:add(f.attempt, tvb(8, 1))
  tree:add(f.policy, tvb(8, 1))
  local psn_item = tree:add(f.psn, tvb(9, 3))
  if attempt ~= 0 then
    item:add_proto_expert_info(e.retransmission, "Retransmission: attempt " .. attempt)
    words = " [retransmission]"
  end
  if opcode == ACK then return words end
  if is_dropped() then return words .. " [dropped]" end
  local result = place_of(tvb, pinfo, tostring(RESPONSES[opcode] or false))
  if result.gap then
    psn_item:add_proto_expert_info(e.gap, result.gap .. " PSNs are missing before this one")
    return words .. " [gap]"
  elseif result.fills then
    psn_item:add_proto_expert_info(e.fills)
  elseif result.duplicate and attempt == 0 then
    psn_item:add_proto_expert_info(e.duplicate)
    return words .. " [duplicate]"
  end
  return words
end

-- Adds what is behind the headers, which end at `at`: payload, pad, ICRC. Of a packet that was cut off the rest may
-- lack its end.
local function add_rest(tvb, tree, at, payload, fields, experts)
  local pad = bit.band(bit.rshift(tvb(1, 1):uint(), 4), 3)
  local payload_end = tvb:reported_len() - ICRC_BYTES - pad
  if payload_end < at then return tree:add_proto_expert_info(experts.short) end
  local here = math.min(payload_end, tvb:len())
  if here > at then tree:add(payload, tvb(at, here - at)) end
  if tvb:len() < tvb:reported_len() then return end
  if pad > 0 then tree:add(fields.padding, tvb(payload_end, pad)) end
  tree:add_le(fields.icrc, tvb(payload_end + pad, ICRC_BYTES))
end

local function dissect_native(tvb, pinfo, root, opcode)
  local tree = root:add(hostnic, tvb(), "hostnic " .. OPCODES[opcode])
  pinfo.cols.protocol = "hostnic"
  add_bth(tvb, tree)
  local words = add_recovery(tvb, pinfo, tree, opcode)
  local info = string.format("%s QP=0x%06x PSN=%d", OPCODES[opcode], tvb(5, 3):uint(), tvb(9, 3):uint())
  local at = BTH_BYTES
  for _, name in ipairs(LAYOUT[opcode]) do
    local bytes, add = HEADERS[name][1], HEADERS[name][2]
    if tvb:len() < at + bytes then
      if tvb:reported_len() < at + bytes then tree:add_proto_expert_info(e.short) end
      pinfo.cols.info = info .. words
      return
    end
    local said = add(tvb(at, bytes), tree, opcode)
    if said then info = info .. " " .. said end
    at = at + bytes
  end
  pinfo.cols.info = info .. words
  add_rest(tvb, tree, at, opcode == ACK and f.bitmap or f.payload, f, e)
end

-- ---- MRC, by the names and layouts of docs/mrc.md

local mrc = Proto("mrc", "Multipath Reliable Connection")

local MRC_OPCODES = {
  [0xc6] = "MRC_WRITE_FIRST", [0xc7] = "MRC_WRITE_MIDDLE", [0xc8] = "MRC_WRITE_LAST", [0xc9] = "MRC_WRITE_LAST_IMM",
  [0xca] = "MRC_WRITE", [0xcb] = "MRC_WRITE_IMM", [0xd1] = "MRC_ACK", [0xd8] = "MRC_ENDPOINT_REQUEST",
  [0xd9] = "MRC_ENDPOINT_RESPONSE", [0xdc] = "MRC_SACK", [0xdd] = "MRC_NACK", [0xde] = "MRC_PROBE"}
-- The headers behind BTH of those that are no WRITEs.
local MRC_LAYOUT = {
  [0xd1] = {"aeth"}, [0xd8] = {"erth"}, [0xd9] = {"eeth"}, [0xdc] = {"seth", "cc_state"}, [0xdd] = {"neth"},
  [0xde] = {"peth"}}
local MRC_LAST_WRITE = 0xcb
local MRC_HAS_IMM = {[0xc9] = true, [0xcb] = true}
local MARKS = {[0] = "none", [1] = "skip once", [2] = "always skip", [3] = "reserved"}
local REASONS = {
  [1] = "TRIMMED", [2] = "TRIMMED_LASTHOP", [6] = "NO_BITMAP", [7] = "NO_PKT_BUFFER", [10] = "NO_RESOURCE",
  [11] = "PSN_OOR_WINDOW", [25] = "UNEXP_EVENT"}
local OPERATIONS = {[0] = "port status", [1] = "EV probe", [2] = "reserved", [3] = "reserved"}

local m = mrc.fields
m.opcode = ProtoField.uint8("mrc.opcode", "Opcode", base.HEX, MRC_OPCODES)
m.solicited = ProtoField.bool("mrc.solicited", "Solicited", 8, nil, 0x80)
m.pad = ProtoField.uint8("mrc.pad", "Pad count", base.DEC, nil, 0x30)
m.pkey = ProtoField.uint16("mrc.pkey", "P_Key", base.HEX)
m.destqp = ProtoField.uint24("mrc.destqp", "Destination queue pair", base.HEX)
m.ackreq = ProtoField.bool("mrc.ackreq", "ACK requested", 8, nil, 0x80)
m.rtx = ProtoField.bool("mrc.rtx", "rtx: has left before", 8, nil, 0x20)
m.ts = ProtoField.bool("mrc.ts", "ts: a TSETH follows METH", 8, nil, 0x10)
m.psn = ProtoField.uint24("mrc.psn", "PSN", base.DEC)
m.rqmsn = ProtoField.uint16("mrc.meth.rqmsn", "RQMSN", base.DEC)
m.msn = ProtoField.uint16("mrc.meth.msn", "MSN", base.DEC)
m.timestamp = ProtoField.uint16("mrc.timestamp", "Timestamp", base.DEC)
m.tsr = ProtoField.bool("mrc.tsr", "tsr: a unit of the sender's own", 8, nil, 0x80)
m.format = ProtoField.uint8("mrc.timestamp_format", "Format type of the timestamp", base.DEC, nil, 0x0f)
m.va = ProtoField.uint64("mrc.reth.va", "Virtual address", base.HEX)
m.rkey = ProtoField.uint32("mrc.reth.rkey", "Remote key", base.HEX)
m.length = ProtoField.uint32("mrc.reth.length", "Length of the message", base.DEC)
m.imm = ProtoField.bytes("mrc.immdt", "Immediate data")
m.kind = ProtoField.uint8("mrc.aeth.kind", "Kind", base.DEC, KINDS, 0x60)
m.code = ProtoField.uint8("mrc.aeth.code", "Code", base.DEC, nil, 0x1f)
m.aeth_msn = ProtoField.uint24("mrc.aeth.msn", "MSN", base.DEC)
m.entropy = ProtoField.uint32("mrc.entropy", "Entropy value of the packet that is answered", base.HEX)
m.source_context = ProtoField.uint16("mrc.source_context", "Source context", base.HEX)
m.destination_context = ProtoField.uint16("mrc.destination_context", "Destination context", base.HEX)
m.cc_type = ProtoField.uint8("mrc.cc_type", "CC type", base.DEC, nil, 0xf0)
m.cc_flags = ProtoField.uint8("mrc.cc_flags", "CC flags", base.HEX, nil, 0x0f)
m.vendor = ProtoField.uint8("mrc.vendor", "Vendor", base.HEX)
m.probe_id = ProtoField.uint16("mrc.probe_id", "Probe id", base.DEC)
m.mark = ProtoField.uint8("mrc.seth.m", "M", base.DEC, MARKS, 0x60)
m.pr = ProtoField.bool("mrc.seth.pr", "pr: answers a probe", 8, nil, 0x02)
m.ack_offset = ProtoField.int16("mrc.seth.ack_psn_offset", "ACK PSN offset", base.DEC)
m.ack_psn = ProtoField.uint24("mrc.seth.ack_psn", "PSN that is answered", base.DEC)
m.cumulative = ProtoField.uint24("mrc.seth.cumulative_psn", "Cumulative PSN", base.DEC)
m.mpr = ProtoField.uint8("mrc.seth.mpr", "MPR, in 128 PSNs", base.DEC)
m.sack_offset = ProtoField.int16("mrc.seth.sack_offset", "SACK offset", base.DEC)
m.sack_psn = ProtoField.uint24("mrc.seth.sack_psn", "PSN of the bitmap's lowest bit", base.DEC)
m.bitmap = ProtoField.uint64("mrc.seth.bitmap", "Bitmap", base.HEX)
m.out_of_order = ProtoField.uint16("mrc.cc_state.out_of_order", "Out-of-order count", base.DEC, nil, 0x7fff)
m.restore_cwnd = ProtoField.bool("mrc.cc_state.restore_cwnd", "restore_cwnd", 8, nil, 0x80)
m.rcv_cwnd_pen = ProtoField.uint8("mrc.cc_state.rcv_cwnd_pen", "rcv_cwnd_pen", base.DEC, nil, 0x7f)
m.received = ProtoField.uint24("mrc.cc_state.received", "Received bytes, in 256", base.DEC)
m.reason = ProtoField.uint8("mrc.neth.reason", "Reason", base.DEC, REASONS)
m.refused = ProtoField.uint24("mrc.neth.psn", "Refused PSN", base.DEC)
m.request = ProtoField.uint8("mrc.erth.operation", "Operation", base.DEC, OPERATIONS, 0x03)
m.port_status = ProtoField.uint32("mrc.erth.port_status_mask", "Port status mask", base.HEX)
m.response = ProtoField.uint8("mrc.eeth.operation", "Operation", base.DEC, OPERATIONS, 0x0c)
m.id = ProtoField.uint16("mrc.endpoint_id", "Id of the request", base.HEX)
m.payload = ProtoField.bytes("mrc.payload", "Payload")
m.padding = ProtoField.bytes("mrc.padding", "Pad")
m.icrc = ProtoField.uint32("mrc.icrc", "ICRC", base.HEX)

local x = mrc.experts
x.retransmission = ProtoExpert.new("mrc.retransmission", "Retransmission", expert.group.SEQUENCE, expert.severity.NOTE)
x.gap = ProtoExpert.new("mrc.gap", "Packets are missing before this one", expert.group.SEQUENCE, expert.severity.NOTE)
x.fills = ProtoExpert.new("mrc.fills", "Fills a gap", expert.group.SEQUENCE, expert.severity.CHAT)
x.duplicate = ProtoExpert.new("mrc.duplicate", "Duplicate", expert.group.SEQUENCE, expert.severity.NOTE)
x.nak = ProtoExpert.new("mrc.nak", "NAK", expert.group.RESPONSE_CODE, expert.severity.ERROR)
x.nack = ProtoExpert.new("mrc.nack", "NACK", expert.group.RESPONSE_CODE, expert.severity.WARN)
x.skip = ProtoExpert.new("mrc.skip", "The path is to be skipped", expert.group.SEQUENCE, expert.severity.CHAT)
x.trimmed = ProtoExpert.new("mrc.trimmed", "A switch has cut the payload off", expert.group.SEQUENCE,
  expert.severity.NOTE)
x.short = ProtoExpert.new("mrc.short", "Shorter than its headers", expert.group.MALFORMED, expert.severity.ERROR)

local function add_timestamp(tvb, tree)
  tree:add(m.timestamp, tvb(0, 2))
  tree:add(m.tsr, tvb(2, 1))
  tree:add(m.format, tvb(3, 1))
end
local function add_contexts(tvb, tree)
  tree:add(m.source_context, tvb(0, 2))
  tree:add(m.destination_context, tvb(2, 2))
end
local function add_cc(tvb, tree)
  tree:add(m.cc_type, tvb(0, 1))
  tree:add(m.cc_flags, tvb(0, 1))
end

-- As HEADERS: size, and a function that says what the info column has.
local MRC_HEADERS = {}
MRC_HEADERS.meth = {4, "METH", function(tvb, tree, opcode)
  tree:add(m.rqmsn, tvb(0, 2))
  tree:add(m.msn, tvb(2, 2))
  local rqmsn = MRC_HAS_IMM[opcode] and string.format(" rqmsn %d", tvb(0, 2):uint()) or ""
  return string.format("msn %d%s", tvb(2, 2):uint(), rqmsn)
end}
MRC_HEADERS.tseth = {4, "TSETH", add_timestamp}
MRC_HEADERS.reth = {16, "RETH", function(tvb, tree)
  tree:add(m.va, tvb(0, 8))
  tree:add(m.rkey, tvb(8, 4))
  tree:add(m.length, tvb(12, 4))
  return string.format("va 0x%s rkey 0x%x len %d", tvb(0, 8):uint64():tohex(), tvb(8, 4):uint(), tvb(12, 4):uint())
end}
MRC_HEADERS.immdt = {4, "ImmDt", function(tvb, tree) tree:add(m.imm, tvb(0, 4)) end}
MRC_HEADERS.aeth = {4, "AETH", function(tvb, tree)
  local kind, code = bit.band(bit.rshift(tvb(0, 1):uint(), 5), 3), bit.band(tvb(0, 1):uint(), 0x1f)
  local item = tree:add(m.kind, tvb(0, 1))
  tree:add(m.code, tvb(0, 1))
  tree:add(m.aeth_msn, tvb(1, 3))
  if kind == 0 then return end
  local name = kind == 3 and NAKS[code] or "reserved"
  item:add_proto_expert_info(x.nak, "NAK: " .. name)
  return "NAK " .. name
end}
MRC_HEADERS.seth = {28, "SETH", function(tvb, tree)
  local cumulative, mark = tvb(13, 3):uint(), bit.band(bit.rshift(tvb(1, 1):uint(), 5), 3)
  local item = tree:add(m.mark, tvb(1, 1))
  if mark ~= 0 then item:add_proto_expert_info(x.skip, "The path is to be skipped: " .. MARKS[mark]) end
  tree:add(m.pr, tvb(1, 1))
  local answers
  if bit.band(tvb(1, 1):uint(), 2) ~= 0 then
    tree:add(m.probe_id, tvb(2, 2))
    answers = string.format("probe %d", tvb(2, 2):uint())
  else
    local psn = (cumulative + tvb(2, 2):int()) % 0x1000000
    tree:add(m.ack_offset, tvb(2, 2))
    tree:add(m.ack_psn, tvb(2, 2), psn):set_generated()
    answers = string.format("acks %d", psn)
  end
  tree:add(m.entropy, tvb(4, 4))
  add_contexts(tvb(8, 4), tree)
  tree:add(m.cumulative, tvb(13, 3))
  add_cc(tvb(16, 1), tree)
  tree:add(m.mpr, tvb(17, 1))
  tree:add(m.sack_offset, tvb(18, 2))
  tree:add(m.sack_psn, tvb(18, 2), (cumulative + tvb(18, 2):int()) % 0x1000000):set_generated()
  tree:add(m.bitmap, tvb(20, 8))
  return string.format("cumulative %d %s bitmap 0x%s%s", cumulative, answers, tvb(20, 8):uint64():tohex(),
    mark ~= 0 and " " .. MARKS[mark] or "")
end}
MRC_HEADERS.cc_state = {8, "CC_STATE", function(tvb, tree)
  tree:add(m.timestamp, tvb(0, 2))
  tree:add(m.out_of_order, tvb(2, 2))
  tree:add(m.restore_cwnd, tvb(4, 1))
  tree:add(m.rcv_cwnd_pen, tvb(4, 1))
  tree:add(m.received, tvb(5, 3))
end}
MRC_HEADERS.neth = {20, "NETH", function(tvb, tree)
  local reason = REASONS[tvb(2, 1):uint()] or string.format("reason %d", tvb(2, 1):uint())
  tree:add(m.reason, tvb(2, 1)):add_proto_expert_info(x.nack, "NACK: " .. reason)
  tree:add(m.vendor, tvb(3, 1))
  tree:add(m.entropy, tvb(4, 4))
  add_contexts(tvb(8, 4), tree)
  tree:add(m.refused, tvb(13, 3))
  add_cc(tvb(16, 1), tree)
  tree:add(m.timestamp, tvb(18, 2))
  return string.format("%s refused %d", reason, tvb(13, 3):uint())
end}
MRC_HEADERS.peth = {16, "PETH", function(tvb, tree)
  tree:add(m.vendor, tvb(3, 1))
  tree:add(m.probe_id, tvb(4, 2))
  add_contexts(tvb(8, 4), tree)
  add_timestamp(tvb(12, 4), tree)
  return string.format("probe %d", tvb(4, 2):uint())
end}
MRC_HEADERS.erth = {16, "ERTH", function(tvb, tree)
  tree:add(m.request, tvb(1, 1))
  tree:add(m.vendor, tvb(3, 1))
  tree:add(m.port_status, tvb(4, 4))
  add_timestamp(tvb(12, 4), tree)
  return OPERATIONS[bit.band(tvb(1, 1):uint(), 3)]
end}
MRC_HEADERS.eeth = {36, "EETH", function(tvb, tree)
  tree:add(m.response, tvb(1, 1))
  tree:add(m.timestamp, tvb(28, 2))
  return OPERATIONS[bit.band(bit.rshift(tvb(1, 1):uint(), 2), 3)]
end}

local function mrc_layout(tvb, opcode)
  if opcode > MRC_LAST_WRITE then return MRC_LAYOUT[opcode] end
  local layout = {"meth"}
  if bit.band(tvb(8, 1):uint(), 0x10) ~= 0 then table.insert(layout, "tseth") end
  table.insert(layout, "reth")
  if MRC_HAS_IMM[opcode] then table.insert(layout, "immdt") end
  return layout
end

-- As add_bth() and add_recovery(), of MRC: by several paths what left later may well come first.
local function add_mrc_bth(tvb, pinfo, tree, opcode)
  tree:add(m.opcode, tvb(0, 1))
  tree:add(m.solicited, tvb(1, 1))
  tree:add(m.pad, tvb(1, 1))
  tree:add(m.pkey, tvb(2, 2))
  tree:add(m.destqp, tvb(5, 3))
  tree:add(m.ackreq, tvb(8, 1))
  local rtx_item = tree:add(m.rtx, tvb(8, 1))
  tree:add(m.ts, tvb(8, 1))
  local psn_item = tree:add(m.psn, tvb(9, 3))
  if opcode == 0xd8 or opcode == 0xd9 then tree:add(m.id, tvb(10, 2)) end
  if opcode > MRC_LAST_WRITE then return "" end
  local words, is_again = "", bit.band(tvb(8, 1):uint(), 0x20) ~= 0
  if is_again then
    rtx_item:add_proto_expert_info(x.retransmission)
    words = " [retransmission]"
  end
  if is_dropped() then return words .. " [dropped]" end
  local result = place_of(tvb, pinfo, "mrc")
  if result.gap then
    psn_item:add_proto_expert_info(x.gap, result.gap .. " PSNs are missing before this one, or come by other paths")
    return words .. " [gap]"
  elseif result.fills then
    psn_item:add_proto_expert_info(x.fills)
  elseif result.duplicate and not is_again then
    psn_item:add_proto_expert_info(x.duplicate)
    return words .. " [duplicate]"
  end
  return words
end

local function dissect_mrc(tvb, pinfo, root, opcode)
  local tree = root:add(mrc, tvb(), "Multipath Reliable Connection, " .. MRC_OPCODES[opcode])
  pinfo.cols.protocol = "MRC"
  local words = add_mrc_bth(tvb, pinfo, tree, opcode)
  local info = string.format("%s QP=0x%06x PSN=%d", MRC_OPCODES[opcode], tvb(5, 3):uint(), tvb(9, 3):uint())
  local at = BTH_BYTES
  for _, name in ipairs(mrc_layout(tvb, opcode)) do
    local bytes, title, add = MRC_HEADERS[name][1], MRC_HEADERS[name][2], MRC_HEADERS[name][3]
    if tvb:len() < at + bytes then
      if name == "reth" and tvb:reported_len() == at then
        tree:add_proto_expert_info(x.trimmed)
        words = words .. " [trimmed]"
      elseif tvb:reported_len() < at + bytes then
        tree:add_proto_expert_info(x.short)
      end
      pinfo.cols.info = info .. words
      return
    end
    local said = add(tvb(at, bytes), tree:add(mrc, tvb(at, bytes), title), opcode)
    if said then info = info .. " " .. said end
    at = at + bytes
  end
  pinfo.cols.info = info .. words
  add_rest(tvb, tree, at, m.payload, m, x)
end

function hostnic.dissector(tvb, pinfo, root)
  if tvb:len() >= BTH_BYTES then
    local opcode = tvb(0, 1):uint()
    if LAYOUT[opcode] then
      dissect_native(tvb, pinfo, root, opcode)
      return tvb:len()
    elseif MRC_OPCODES[opcode] then
      dissect_mrc(tvb, pinfo, root, opcode)
      return tvb:len()
    end
    local taken = standard and standard:call(tvb, pinfo, root) or 0
    -- The standard's other senders leave these bits 0, as a whole message of the native transport does.
    if opcode == WRITE_ONLY and bit.band(tvb(8, 1):uint(), 0x7e) ~= 0 then
      local tree = root:add(hostnic, tvb(0, BTH_BYTES), "hostnic WRITE")
      tree:add(f.cont, tvb(8, 1))
      tree:add(f.more, tvb(8, 1))
      local words = add_recovery(tvb, pinfo, tree, opcode)
      if words ~= "" then pinfo.cols.info:append(words) end
    end
    return taken
  end
  return standard and standard:call(tvb, pinfo, root) or 0
end

DissectorTable.get("udp.port"):add(ROCE_PORT, hostnic)
