// SPDX-License-Identifier: BSD-3-Clause
// Registers the trace points with DPDK, under their names. This header makes of them what tells
// DPDK of their fields, and so this file has nothing else.
#include <rte_trace_point_register.h>

#include "dataplane/daemon/observe/message_point_list.h"

RTE_TRACE_POINT_REGISTER(hostnic_trace_posted, hostnic.posted)
RTE_TRACE_POINT_REGISTER(hostnic_trace_polled, hostnic.polled)
RTE_TRACE_POINT_REGISTER(hostnic_trace_sent, hostnic.sent)
RTE_TRACE_POINT_REGISTER(hostnic_trace_arrived, hostnic.arrived)
RTE_TRACE_POINT_REGISTER(hostnic_trace_placed, hostnic.placed)
RTE_TRACE_POINT_REGISTER(hostnic_trace_acknowledged, hostnic.acknowledged)
RTE_TRACE_POINT_REGISTER(hostnic_trace_answered, hostnic.answered)
RTE_TRACE_POINT_REGISTER(hostnic_trace_reported, hostnic.reported)
