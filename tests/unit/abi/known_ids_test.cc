// SPDX-License-Identifier: BSD-3-Clause
// What a process remembers of its rdma_cm ids for the day when hostnicd is gone.
#include "verbs-shim/cm/known_ids.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>

#include "protocol/bytes_of.h"

namespace hostnic::cm_device {
namespace {

// The uid is librdmacm's pointer: each of its ids lies at this address in turn.
constexpr uint64_t kUid = 0x5500'1234;
constexpr uint32_t kAddressResolved = 0, kConnectResponse = 5, kDisconnected = 10,
                   kDeviceRemoval = 11;

void create(uint64_t file, uint32_t id) {
  rdma_ucm_create_id create{};
  create.uid = kUid;
  note_carried_out(file, RDMA_USER_CM_CMD_CREATE_ID, bytes_of(create),
                   bytes_of(rdma_ucm_create_id_resp{id}));
}

void resolve(uint64_t file, uint32_t id) {
  rdma_ucm_resolve_ip resolve{};
  resolve.id = id;
  note_carried_out(file, RDMA_USER_CM_CMD_RESOLVE_IP, bytes_of(resolve), {});
}

void hear(uint64_t file, uint32_t id, uint32_t event) {
  rdma_ucm_event_resp response{};
  response.uid = kUid;
  response.id = id;
  response.event = event;
  note_carried_out(file, RDMA_USER_CM_CMD_GET_EVENT, {}, bytes_of(response));
}

// librdmacm's last step of connecting: no parameters, and no uid.
void establish(uint64_t file, uint32_t id) {
  rdma_ucm_accept accept{};
  accept.id = id;
  note_carried_out(file, RDMA_USER_CM_CMD_ACCEPT, bytes_of(accept), {});
}

void destroy(uint64_t file, uint32_t id) {
  rdma_ucm_destroy_id destroy{};
  destroy.id = id;
  note_carried_out(file, RDMA_USER_CM_CMD_DESTROY_ID, bytes_of(destroy), {});
}

// Connections that one pointer has had in turn: each has its own events, for which librdmacm waits
// where an id is destroyed.
TEST(KnownIds, EventsAreTheirIdsAlone) {
  for (uint32_t id = 10; id < 13; id++) {
    create(id, id);
    resolve(id, id);
    hear(id, id, kAddressResolved);
    hear(id, id, kConnectResponse);
    establish(id, id);
    hear(id, id, kDisconnected);
    destroy(id, id);
  }
  create(20, 20);
  resolve(20, 20);
  hear(20, 20, kAddressResolved);
  EXPECT_EQ(forget_id(21, 20), std::nullopt) << "another file's";
  EXPECT_EQ(forget_id(20, 20), 1u);
  EXPECT_EQ(forget_id(20, 20), std::nullopt) << "forgotten";
}

TEST(KnownIds, WhoHasConnectedHearsOfTheRemovalOnce) {
  create(30, 30);
  resolve(30, 30);
  hear(30, 30, kConnectResponse);
  establish(30, 30);
  const auto removal = take_removal(30);
  ASSERT_TRUE(removal.has_value());
  EXPECT_EQ(removal->uid, kUid);
  EXPECT_EQ(removal->id, 30u);
  EXPECT_EQ(removal->event, kDeviceRemoval);
  EXPECT_EQ(static_cast<int32_t>(removal->status), -ENODEV);
  EXPECT_FALSE(take_removal(30).has_value());
  EXPECT_EQ(forget_id(30, 30), 2u) << "the removal is one of them";
}

// What is accepted gets the uid of the id that the program has for it.
TEST(KnownIds, WhatIsAcceptedHasTheProgramsUid) {
  hear(40, 41, 4);  // a connection request
  EXPECT_FALSE(take_removal(40).has_value()) << "the program has no id for it";
  rdma_ucm_accept accept{};
  accept.uid = kUid + 8;
  accept.id = 41;
  accept.conn_param.valid = 1;
  note_carried_out(42, RDMA_USER_CM_CMD_ACCEPT, bytes_of(accept), {});
  rdma_ucm_migrate_id migrate{};
  migrate.id = 41;
  note_carried_out(42, RDMA_USER_CM_CMD_MIGRATE_ID, bytes_of(migrate), {});
  const auto removal = take_removal(42);
  ASSERT_TRUE(removal.has_value());
  EXPECT_EQ(removal->uid, kUid + 8);
  EXPECT_EQ(forget_id(42, 41), 1u);
}

}  // namespace
}  // namespace hostnic::cm_device
