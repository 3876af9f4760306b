// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/simulation/study/recovery_cells.h"

#include <algorithm>
#include <iterator>

namespace hostnic::study {
namespace {

constexpr Recovery kRecoveries[] = {{"selective", wire::Policy::kSelective},
                                    {"go-back-n", wire::Policy::kGoBackN},
                                    {"whole-message", wire::Policy::kWholeMessage},
                                    {"roce-hold", wire::Policy::kSelective, /*roce=*/true},
                                    {"roce", wire::Policy::kGoBackN, /*roce=*/true}};
constexpr uint32_t kKiB = 1024;
constexpr uint32_t kSizes[] = {32 * kKiB, 64 * kKiB, 128 * kKiB, 256 * kKiB};
constexpr uint32_t kLossesPpm[] = {0,     1000,  2000,  3000,   4000,   5000,
                                   10000, 20000, 50000, 100000, 200000, 300000};
constexpr uint32_t kWindows[] = {32, 64, 128, 1024};
constexpr uint32_t kReorderPpm[] = {10000, 100000};
constexpr uint32_t kDistances[] = {8, 16, 32, 64, 128, 256};
// Enough to keep the link busy while a message waits for what it has lost.
constexpr uint32_t kOutstandingBytes = 2048 * kKiB;
constexpr uint32_t kManyQps = 64;

// Messages per QP, so that every cell moves about as many packets.
uint32_t messages_for(uint32_t packets, uint32_t message_bytes, uint32_t qps) {
  return std::max(packets / (message_bytes / Cell{}.mtu_bytes) / qps, 4u);
}

// One transfer at a time: how long does it take?
void add_single(std::vector<Cell>& cells, uint32_t messages) {
  for (const Recovery& recovery : kRecoveries)
    for (const uint32_t bytes : kSizes)
      for (const uint32_t loss_ppm : kLossesPpm)
        cells.push_back({.study = "single",
                         .policy = recovery.policy,
                         .roce = recovery.roce,
                         .message_bytes = bytes,
                         .loss_ppm = loss_ppm,
                         .messages = messages});
}

// One QP with enough outstanding: how much gets through?
void add_stream(std::vector<Cell>& cells, uint32_t packets) {
  for (const Recovery& recovery : kRecoveries)
    for (const uint32_t bytes : kSizes)
      for (const uint32_t loss_ppm : kLossesPpm)
        cells.push_back({.study = "stream",
                         .policy = recovery.policy,
                         .roce = recovery.roce,
                         .message_bytes = bytes,
                         .depth = kOutstandingBytes / bytes,
                         .loss_ppm = loss_ppm,
                         .messages = messages_for(packets, bytes, 1)});
}

// READs, one transfer at a time and with enough outstanding. They recover in one way, whatever the
// policy.
void add_reads(std::vector<Cell>& cells, uint32_t messages, uint32_t packets) {
  for (const bool stream : {false, true})
    for (const uint32_t bytes : kSizes)
      for (const uint32_t loss_ppm : kLossesPpm)
        cells.push_back({.study = stream ? "reads" : "single-reads",
                         .op = SendOp::kRead,
                         .message_bytes = bytes,
                         .depth = stream ? kOutstandingBytes / bytes : 1,
                         .loss_ppm = loss_ppm,
                         .messages = stream ? messages_for(packets, bytes, 1) : messages});
}

// 64 QPs with one transfer at a time each: between two hosts, and from many hosts to one.
void add_many(std::vector<Cell>& cells, uint32_t packets) {
  for (const Topology topology : {Topology::kPair, Topology::kIncast})
    for (const Recovery& recovery : kRecoveries)
      for (const uint32_t bytes : kSizes)
        for (const uint32_t loss_ppm : kLossesPpm)
          cells.push_back({.study = topology == Topology::kPair ? "qps64" : "incast64",
                           .policy = recovery.policy,
                           .roce = recovery.roce,
                           .topology = topology,
                           .qps = kManyQps,
                           .message_bytes = bytes,
                           .loss_ppm = loss_ppm,
                           .messages = messages_for(packets, bytes, kManyQps)});
}

// Windows against reordering, without loss.
void add_reorder(std::vector<Cell>& cells, uint32_t packets) {
  const uint32_t bytes = 256 * kKiB;
  for (const Recovery& recovery : kRecoveries) {
    for (const uint32_t window : kWindows) {
      Cell cell{.study = "reorder",
                .policy = recovery.policy,
                .roce = recovery.roce,
                .window = window,
                .message_bytes = bytes,
                .depth = kOutstandingBytes / bytes,
                .messages = messages_for(packets, bytes, 1)};
      cells.push_back(cell);
      for (const uint32_t reorder_ppm : kReorderPpm) {
        for (const uint32_t distance : kDistances) {
          cell.reorder_ppm = reorder_ppm;
          cell.reorder_distance = distance;
          cells.push_back(cell);
        }
      }
    }
  }
}

}  // namespace

std::vector<Cell> study_cells() {
  std::vector<Cell> cells;
  add_single(cells, 1000);
  add_stream(cells, 32768);
  add_many(cells, 32768);
  add_reorder(cells, 32768);
  add_reads(cells, 1000, 32768);
  return cells;
}

// A slice through each part of the study, with less traffic.
std::vector<Cell> golden_cells() {
  std::vector<Cell> all, some;
  add_single(all, 50);
  add_stream(all, 4096);
  add_many(all, 4096);
  add_reorder(all, 4096);
  add_reads(all, 50, 4096);
  std::copy_if(all.begin(), all.end(), std::back_inserter(some), [](const Cell& cell) {
    const bool loss = cell.loss_ppm == 0 || cell.loss_ppm == 5000 || cell.loss_ppm == 50000;
    const bool reorder = cell.reorder_ppm == 0 ||
                         (cell.reorder_ppm == kReorderPpm[0] && cell.reorder_distance == 64);
    const bool size = cell.message_bytes == 64 * kKiB || cell.reorder_ppm != 0;
    return loss && reorder && size;
  });
  return some;
}

std::span<const Recovery> all_recoveries() { return kRecoveries; }

const char* recovery_name(const Cell& cell) {
  for (const Recovery& recovery : kRecoveries)
    if (recovery.policy == cell.policy && recovery.roce == cell.roce) return recovery.name;
  return "whole-message";
}

}  // namespace hostnic::study
