// SPDX-License-Identifier: BSD-3-Clause
// The trace points themselves. Times are of the TSC, as in the events' own headers; `nic` is the
// address, in host byte order, and `qpn` the queue pair that messages are from.
#pragma once

#include <rte_trace_point.h>

#include <cstdint>

RTE_TRACE_POINT(hostnic_trace_posted,
                RTE_TRACE_POINT_ARGS(uint64_t at, uint32_t nic, uint32_t qpn, uint32_t client,
                                     uint32_t sequence, uint32_t number, uint64_t wr_id,
                                     uint32_t first_psn, uint32_t psns, uint32_t first_answer,
                                     uint32_t answers, uint32_t length_bytes, uint8_t op,
                                     uint8_t type, uint8_t signalled),
                rte_trace_point_emit_u64(at);
                rte_trace_point_emit_u32(nic); rte_trace_point_emit_u32(qpn);
                rte_trace_point_emit_u32(client); rte_trace_point_emit_u32(sequence);
                rte_trace_point_emit_u32(number); rte_trace_point_emit_u64(wr_id);
                rte_trace_point_emit_u32(first_psn); rte_trace_point_emit_u32(psns);
                rte_trace_point_emit_u32(first_answer); rte_trace_point_emit_u32(answers);
                rte_trace_point_emit_u32(length_bytes); rte_trace_point_emit_u8(op);
                rte_trace_point_emit_u8(type); rte_trace_point_emit_u8(signalled);)

RTE_TRACE_POINT(hostnic_trace_polled,
                RTE_TRACE_POINT_ARGS(uint64_t at, uint32_t nic, uint32_t qpn, uint32_t client,
                                     uint32_t sequence, uint32_t number, uint64_t wr_id,
                                     uint32_t status),
                rte_trace_point_emit_u64(at);
                rte_trace_point_emit_u32(nic); rte_trace_point_emit_u32(qpn);
                rte_trace_point_emit_u32(client); rte_trace_point_emit_u32(sequence);
                rte_trace_point_emit_u32(number); rte_trace_point_emit_u64(wr_id);
                rte_trace_point_emit_u32(status);)

RTE_TRACE_POINT(hostnic_trace_sent,
                RTE_TRACE_POINT_ARGS(uint64_t at, uint32_t nic, uint32_t qpn, uint32_t until),
                rte_trace_point_emit_u64(at);
                rte_trace_point_emit_u32(nic); rte_trace_point_emit_u32(qpn);
                rte_trace_point_emit_u32(until);)

RTE_TRACE_POINT(hostnic_trace_arrived,
                RTE_TRACE_POINT_ARGS(uint64_t at, uint32_t nic, uint32_t qpn, uint32_t until),
                rte_trace_point_emit_u64(at);
                rte_trace_point_emit_u32(nic); rte_trace_point_emit_u32(qpn);
                rte_trace_point_emit_u32(until);)

RTE_TRACE_POINT(hostnic_trace_placed,
                RTE_TRACE_POINT_ARGS(uint64_t at, uint32_t nic, uint32_t qpn, uint32_t until,
                                     uint8_t alone),
                rte_trace_point_emit_u64(at);
                rte_trace_point_emit_u32(nic); rte_trace_point_emit_u32(qpn);
                rte_trace_point_emit_u32(until); rte_trace_point_emit_u8(alone);)

RTE_TRACE_POINT(hostnic_trace_acknowledged,
                RTE_TRACE_POINT_ARGS(uint64_t at, uint32_t nic, uint32_t qpn, uint32_t until),
                rte_trace_point_emit_u64(at);
                rte_trace_point_emit_u32(nic); rte_trace_point_emit_u32(qpn);
                rte_trace_point_emit_u32(until);)

RTE_TRACE_POINT(hostnic_trace_answered,
                RTE_TRACE_POINT_ARGS(uint64_t at, uint32_t nic, uint32_t qpn, uint32_t until),
                rte_trace_point_emit_u64(at);
                rte_trace_point_emit_u32(nic); rte_trace_point_emit_u32(qpn);
                rte_trace_point_emit_u32(until);)

RTE_TRACE_POINT(hostnic_trace_reported,
                RTE_TRACE_POINT_ARGS(uint64_t at, uint32_t nic, uint32_t qpn, uint32_t until,
                                     uint32_t answered),
                rte_trace_point_emit_u64(at);
                rte_trace_point_emit_u32(nic); rte_trace_point_emit_u32(qpn);
                rte_trace_point_emit_u32(until); rte_trace_point_emit_u32(answered);)
