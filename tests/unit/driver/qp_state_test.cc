// SPDX-License-Identifier: BSD-3-Clause
// The state machine of ibv_modify_qp against the verbs specification's table, written out a second
// time here.
#include "verbs-shim/driver/qp_state.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <span>

namespace hostnic::driver {
namespace {

constexpr QpState kStates[] = {QpState::kReset, QpState::kInit, QpState::kRtr, QpState::kRts,
                               QpState::kSqd,   QpState::kSqe,  QpState::kErr};
constexpr const char* kNames[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
const char* name(QpState state) { return kNames[static_cast<size_t>(state)]; }

constexpr uint32_t kAllBits[] = {kQpCurState,
                                 kQpEnSqdAsyncNotify,
                                 kQpAccessFlags,
                                 kQpPkeyIndex,
                                 kQpPort,
                                 kQpQkey,
                                 kQpAv,
                                 kQpPathMtu,
                                 kQpTimeout,
                                 kQpRetryCnt,
                                 kQpRnrRetry,
                                 kQpRqPsn,
                                 kQpMaxQpRdAtomic,
                                 kQpAltPath,
                                 kQpMinRnrTimer,
                                 kQpSqPsn,
                                 kQpMaxDestRdAtomic,
                                 kQpPathMigState,
                                 kQpCap,
                                 kQpDestQpn,
                                 kQpRateLimit};

struct Legal {
  QpState from, to;
  uint32_t required, optional;
};
constexpr uint32_t kAlternatePath = kQpAltPath | kQpPathMigState;
// InfiniBand table 91 for RC, as man ibv_modify_qp gives it.
constexpr Legal kRcTable[] = {
    {QpState::kReset, QpState::kInit, kQpPkeyIndex | kQpPort | kQpAccessFlags, 0},
    {QpState::kInit, QpState::kInit, 0, kQpPkeyIndex | kQpPort | kQpAccessFlags},
    {QpState::kInit, QpState::kRtr,
     kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer,
     kQpPkeyIndex | kQpAccessFlags | kAlternatePath},
    {QpState::kRtr, QpState::kRts,
     kQpSqPsn | kQpMaxQpRdAtomic | kQpRetryCnt | kQpRnrRetry | kQpTimeout,
     kQpCurState | kQpAccessFlags | kQpMinRnrTimer | kAlternatePath},
    {QpState::kRts, QpState::kRts, 0,
     kQpCurState | kQpAccessFlags | kQpMinRnrTimer | kAlternatePath | kQpRateLimit},
    {QpState::kRts, QpState::kSqd, 0, kQpEnSqdAsyncNotify},
    {QpState::kSqd, QpState::kRts, 0,
     kQpCurState | kQpAccessFlags | kQpMinRnrTimer | kAlternatePath},
    {QpState::kSqd, QpState::kSqd, 0,
     kQpPkeyIndex | kQpPort | kQpAccessFlags | kQpAv | kQpTimeout | kQpRetryCnt | kQpRnrRetry |
         kQpMaxQpRdAtomic | kQpMaxDestRdAtomic | kQpMinRnrTimer | kAlternatePath},
    {QpState::kSqe, QpState::kRts, 0, kQpCurState | kQpAccessFlags | kQpMinRnrTimer},
};
// The same for UC: no READs, no acknowledgements.
constexpr Legal kUcTable[] = {
    {QpState::kReset, QpState::kInit, kQpPkeyIndex | kQpPort | kQpAccessFlags, 0},
    {QpState::kInit, QpState::kInit, 0, kQpPkeyIndex | kQpPort | kQpAccessFlags},
    {QpState::kInit, QpState::kRtr, kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn,
     kQpPkeyIndex | kQpAccessFlags | kAlternatePath},
    {QpState::kRtr, QpState::kRts, kQpSqPsn, kQpCurState | kQpAccessFlags | kAlternatePath},
    {QpState::kRts, QpState::kRts, 0, kQpCurState | kQpAccessFlags | kAlternatePath | kQpRateLimit},
    {QpState::kRts, QpState::kSqd, 0, kQpEnSqdAsyncNotify},
    {QpState::kSqd, QpState::kRts, 0, kQpCurState | kQpAccessFlags | kAlternatePath},
    {QpState::kSqd, QpState::kSqd, 0, kQpPkeyIndex | kQpAccessFlags | kQpAv | kAlternatePath},
    {QpState::kSqe, QpState::kRts, 0, kQpCurState | kQpAccessFlags},
};
// And for UD: no path, a Q_Key.
constexpr Legal kUdTable[] = {
    {QpState::kReset, QpState::kInit, kQpPkeyIndex | kQpPort | kQpQkey, 0},
    {QpState::kInit, QpState::kInit, 0, kQpPkeyIndex | kQpPort | kQpQkey},
    {QpState::kInit, QpState::kRtr, 0, kQpPkeyIndex | kQpQkey},
    {QpState::kRtr, QpState::kRts, kQpSqPsn, kQpCurState | kQpQkey},
    {QpState::kRts, QpState::kRts, 0, kQpCurState | kQpQkey | kQpRateLimit},
    {QpState::kRts, QpState::kSqd, 0, kQpEnSqdAsyncNotify},
    {QpState::kSqd, QpState::kRts, 0, kQpCurState | kQpQkey},
    {QpState::kSqd, QpState::kSqd, 0, kQpPkeyIndex | kQpQkey},
    {QpState::kSqe, QpState::kRts, 0, kQpCurState | kQpQkey},
};

struct Service {
  const char* name;
  QpType type;
  std::span<const Legal> table;
};
const Service kServices[] = {
    {"RC", QpType::kRc, kRcTable}, {"UC", QpType::kUc, kUcTable}, {"UD", QpType::kUd, kUdTable}};

class QpStateMachine : public testing::TestWithParam<Service> {
 protected:
  std::span<const Legal> table() const { return GetParam().table; }
  const Legal* find(QpState from, QpState to) const;
  int check(QpState from, QpState to, uint32_t mask) const;
};
INSTANTIATE_TEST_SUITE_P(Types, QpStateMachine, testing::ValuesIn(kServices),
                         [](const auto& info) { return std::string(info.param.name); });

const Legal* QpStateMachine::find(QpState from, QpState to) const {
  for (const Legal& legal : table()) {
    if (legal.from == from && legal.to == to) return &legal;
  }
  return nullptr;
}
// RESET and ERR are reachable from everywhere, with nothing else changed.
bool always(QpState to) { return to == QpState::kReset || to == QpState::kErr; }

int QpStateMachine::check(QpState from, QpState to, uint32_t mask) const {
  QpAttr attr;
  attr.state = to;
  attr.cur_state = from;
  return check_transition(GetParam().type, from, attr, mask | kQpState);
}

TEST_P(QpStateMachine, EveryPairOfStates) {
  for (const QpState from : kStates) {
    for (const QpState to : kStates) {
      const Legal* legal = find(from, to);
      const uint32_t required = legal != nullptr ? legal->required : 0;
      EXPECT_EQ(check(from, to, required), legal != nullptr || always(to) ? 0 : EINVAL)
          << name(from) << " to " << name(to);
    }
  }
}

TEST_P(QpStateMachine, IllegalPairsStayIllegalWhateverTheMask) {
  for (const QpState from : kStates) {
    for (const QpState to : kStates) {
      if (find(from, to) != nullptr || always(to)) continue;
      for (const Legal& legal : table()) {
        EXPECT_EQ(check(from, to, legal.required), EINVAL) << name(from) << " to " << name(to);
        EXPECT_EQ(check(from, to, legal.required | legal.optional), EINVAL)
            << name(from) << " to " << name(to);
      }
    }
  }
}

TEST_P(QpStateMachine, EachRequiredAttributeIsRequired) {
  for (const Legal& legal : table()) {
    EXPECT_EQ(check(legal.from, legal.to, legal.required), 0);
    for (const uint32_t bit : kAllBits) {
      if ((legal.required & bit) == 0) continue;
      EXPECT_EQ(check(legal.from, legal.to, legal.required & ~bit), EINVAL)
          << name(legal.from) << " to " << name(legal.to) << " without 0x" << std::hex << bit;
      EXPECT_EQ(check(legal.from, legal.to, (legal.required | legal.optional) & ~bit), EINVAL);
    }
  }
}

TEST_P(QpStateMachine, EachOptionalAttributeIsOptionalAndNoOtherIsTaken) {
  for (const Legal& legal : table()) {
    EXPECT_EQ(check(legal.from, legal.to, legal.required | legal.optional), 0);
    for (const uint32_t bit : kAllBits) {
      if ((legal.required & bit) != 0) continue;
      EXPECT_EQ(check(legal.from, legal.to, legal.required | bit),
                (legal.optional & bit) != 0 ? 0 : EINVAL)
          << name(legal.from) << " to " << name(legal.to) << " with 0x" << std::hex << bit;
    }
  }
}

TEST_P(QpStateMachine, ToResetAndErrorNothingElseIsChanged) {
  for (const QpState from : kStates) {
    for (const QpState to : {QpState::kReset, QpState::kErr}) {
      for (const uint32_t bit : kAllBits) {
        EXPECT_EQ(check(from, to, bit), bit == kQpCurState ? 0 : EINVAL)
            << name(from) << " to " << name(to) << " with 0x" << std::hex << bit;
      }
    }
  }
}

TEST_P(QpStateMachine, CurrentStateMustBeTrue) {
  QpAttr attr;
  attr.state = QpState::kRts;
  for (const QpState believed : kStates) {
    attr.cur_state = believed;
    EXPECT_EQ(check_transition(GetParam().type, QpState::kRts, attr, kQpState | kQpCurState),
              believed == QpState::kRts ? 0 : EINVAL)
        << name(believed);
  }
}

TEST(QpStateWithoutTransition, TheQpStaysWhereItIs) {
  QpAttr attr;
  attr.state = QpState::kReset;  // not named by the mask: ignored
  const auto check_transition = [](QpState from, const QpAttr& values, uint32_t mask) {
    return driver::check_transition(QpType::kRc, from, values, mask);
  };
  EXPECT_EQ(check_transition(QpState::kRts, attr, kQpMinRnrTimer), 0);
  EXPECT_EQ(check_transition(QpState::kRts, attr, 0), 0);
  EXPECT_EQ(check_transition(QpState::kRts, attr, kQpSqPsn), EINVAL);
  EXPECT_EQ(check_transition(QpState::kSqd, attr, kQpTimeout), 0);
  EXPECT_EQ(check_transition(QpState::kRtr, attr, 0), EINVAL);
  EXPECT_EQ(check_transition(QpState::kErr, attr, 0), EINVAL);
}

// ---- attribute values

QpAttr good() {
  QpAttr attr;
  attr.access = kAccessRemoteWrite;
  attr.dest_qpn = 0x10001;
  attr.path_mtu_bytes = 1024;
  attr.dest_ip = Ipv4Address{0x0a000001};
  return attr;
}

struct Value {
  const char* what;
  uint32_t mask;
  void (*set)(QpAttr& attr);
  bool accepted;
};
const Value kValues[] = {
    {"port 0", kQpPort, [](QpAttr& a) { a.port = 0; }, false},
    {"port 1", kQpPort, [](QpAttr& a) { a.port = 1; }, true},
    {"port 2", kQpPort, [](QpAttr& a) { a.port = 2; }, false},
    {"P_Key 0", kQpPkeyIndex, [](QpAttr& a) { a.pkey_index = 0; }, true},
    {"P_Key 1", kQpPkeyIndex, [](QpAttr& a) { a.pkey_index = 1; }, false},
    {"all rights", kQpAccessFlags,
     [](QpAttr& a) {
       a.access = kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead | kAccessRemoteAtomic;
     },
     true},
    {"no rights", kQpAccessFlags, [](QpAttr& a) { a.access = 0; }, true},
    {"an unknown right", kQpAccessFlags, [](QpAttr& a) { a.access = 1u << 9; }, false},
    {"QPN 0xffffff", kQpDestQpn, [](QpAttr& a) { a.dest_qpn = 0xffffff; }, true},
    {"QPN 0x1000000", kQpDestQpn, [](QpAttr& a) { a.dest_qpn = 0x1000000; }, false},
    {"max_rd_atomic 0", kQpMaxQpRdAtomic, [](QpAttr& a) { a.max_rd_atomic = 0; }, true},
    {"max_rd_atomic 16", kQpMaxQpRdAtomic, [](QpAttr& a) { a.max_rd_atomic = 16; }, true},
    {"max_rd_atomic 17", kQpMaxQpRdAtomic, [](QpAttr& a) { a.max_rd_atomic = 17; }, false},
    {"max_dest 16", kQpMaxDestRdAtomic, [](QpAttr& a) { a.max_dest_rd_atomic = 16; }, true},
    {"max_dest 17", kQpMaxDestRdAtomic, [](QpAttr& a) { a.max_dest_rd_atomic = 17; }, false},
    {"RNR timer 31", kQpMinRnrTimer, [](QpAttr& a) { a.min_rnr_timer = 31; }, true},
    {"RNR timer 32", kQpMinRnrTimer, [](QpAttr& a) { a.min_rnr_timer = 32; }, false},
    {"timeout 31", kQpTimeout, [](QpAttr& a) { a.timeout = 31; }, true},
    {"timeout 32", kQpTimeout, [](QpAttr& a) { a.timeout = 32; }, false},
    {"retry_cnt 7", kQpRetryCnt, [](QpAttr& a) { a.retry_cnt = 7; }, true},
    {"retry_cnt 8", kQpRetryCnt, [](QpAttr& a) { a.retry_cnt = 8; }, false},
    {"rnr_retry 7", kQpRnrRetry, [](QpAttr& a) { a.rnr_retry = 7; }, true},
    {"rnr_retry 8", kQpRnrRetry, [](QpAttr& a) { a.rnr_retry = 8; }, false},
    {"no address", kQpAv, [](QpAttr& a) { a.dest_ip = Ipv4Address{0}; }, false},
    {"an address", kQpAv, [](QpAttr&) {}, true},
    {"an alternate path", kQpAltPath, [](QpAttr&) {}, false},
};

TEST(QpAttributes, Limits) {
  const DeviceLimits limits;
  for (const Value& value : kValues) {
    QpAttr attr = good();
    value.set(attr);
    EXPECT_EQ(refused_attribute(attr, value.mask, limits) == nullptr, value.accepted) << value.what;
    if (value.mask == kQpAltPath) continue;
    EXPECT_EQ(refused_attribute(attr, 0, limits), nullptr) << value.what << ", not named";
  }
}

TEST(QpAttributes, PathMtu) {
  for (uint32_t port_mtu = 256; port_mtu <= 4096; port_mtu *= 2) {
    const DeviceLimits limits{.mtu_bytes = port_mtu, .max_rd_atomic = 16};
    for (const uint32_t mtu : {0u, 1u, 128u, 255u, 256u, 257u, 512u, 768u, 1024u, 1500u, 2048u,
                               4095u, 4096u, 4097u, 8192u}) {
      const bool fits = mtu == 256 || mtu == 512 || mtu == 1024 || mtu == 2048 || mtu == 4096;
      QpAttr attr = good();
      attr.path_mtu_bytes = mtu;
      EXPECT_EQ(refused_attribute(attr, kQpPathMtu, limits) == nullptr, fits && mtu <= port_mtu)
          << "MTU " << mtu << " on a port of " << port_mtu;
    }
  }
}

TEST(QpAttributes, OnlyWhatTheMaskNamesIsApplied) {
  QpAttr from;
  from.state = QpState::kRts;
  from.access = kAccessRemoteRead;
  from.dest_qpn = 0x123456;
  from.qkey = 0x11223344;
  from.rq_psn = 0x1abcdef;
  from.sq_psn = 0xff000001;
  from.path_mtu_bytes = 2048;
  from.max_rd_atomic = 3;
  from.max_dest_rd_atomic = 4;
  from.min_rnr_timer = 5;
  from.timeout = 6;
  from.retry_cnt = 7;
  from.rnr_retry = 1;
  from.port = 9;
  from.pkey_index = 10;
  from.dest_ip = Ipv4Address{0x0a000002};
  from.traffic_class = 11;
  from.flow_label = 12;
  from.dlid = 13;
  from.src_path_bits = 14;
  from.static_rate = 15;
  from.hop_limit_as_set = 16;
  from.path_mig_state = 1;
  from.rate_limit = 17;
  from.en_sqd_async_notify = true;
  // Every attribute must differ from the default after exactly its own bit.
  const auto differences = [](const QpAttr& a) {
    const QpAttr none;
    uint32_t bits = 0;
    const auto note = [&bits](uint32_t bit, bool differs) { bits |= differs ? bit : 0; };
    note(kQpState, a.state != none.state);
    note(kQpAccessFlags, a.access != none.access);
    note(kQpDestQpn, a.dest_qpn != none.dest_qpn);
    note(kQpQkey, a.qkey != none.qkey);
    note(kQpRqPsn, a.rq_psn != none.rq_psn);
    note(kQpSqPsn, a.sq_psn != none.sq_psn);
    note(kQpPathMtu, a.path_mtu_bytes != none.path_mtu_bytes);
    note(kQpMaxQpRdAtomic, a.max_rd_atomic != none.max_rd_atomic);
    note(kQpMaxDestRdAtomic, a.max_dest_rd_atomic != none.max_dest_rd_atomic);
    note(kQpMinRnrTimer, a.min_rnr_timer != none.min_rnr_timer);
    note(kQpTimeout, a.timeout != none.timeout);
    note(kQpRetryCnt, a.retry_cnt != none.retry_cnt);
    note(kQpRnrRetry, a.rnr_retry != none.rnr_retry);
    note(kQpPort, a.port != none.port);
    note(kQpPkeyIndex, a.pkey_index != none.pkey_index);
    note(kQpAv, a.dest_ip != none.dest_ip || a.traffic_class != none.traffic_class);
    note(kQpAv, a.flow_label != none.flow_label || a.dlid != none.dlid ||
                    a.src_path_bits != none.src_path_bits || a.static_rate != none.static_rate ||
                    a.hop_limit_as_set != none.hop_limit_as_set);
    note(kQpPathMigState, a.path_mig_state != none.path_mig_state);
    note(kQpRateLimit, a.rate_limit != none.rate_limit);
    note(kQpEnSqdAsyncNotify, a.en_sqd_async_notify != none.en_sqd_async_notify);
    return bits;
  };
  constexpr uint32_t kApplied =
      kQpAccessFlags | kQpDestQpn | kQpRqPsn | kQpSqPsn | kQpPathMtu | kQpMaxQpRdAtomic |
      kQpMaxDestRdAtomic | kQpMinRnrTimer | kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpPort |
      kQpPkeyIndex | kQpAv | kQpQkey | kQpPathMigState | kQpRateLimit | kQpEnSqdAsyncNotify;
  for (const uint32_t bit : kAllBits) {
    QpAttr into;
    apply_attributes(into, from, bit);
    EXPECT_EQ(differences(into), bit & kApplied) << "0x" << std::hex << bit;
  }
  QpAttr into;
  apply_attributes(into, from, kApplied | kQpState);
  EXPECT_EQ(differences(into), kApplied) << "the state is the caller's business";
  EXPECT_EQ(into.rq_psn, 0xabcdefu) << "PSNs have 24 bits";
  EXPECT_EQ(into.sq_psn, 1u);
}

// ---- times

TEST(QpTimes, RnrTimerTable) {
  // Milliseconds as InfiniBand's table 45 prints them.
  constexpr double kMilliseconds[32] = {
      655.36, 0.01,  0.02,  0.03,  0.04,  0.06,   0.08,   0.12,   0.16,   0.24,  0.32,
      0.48,   0.64,  0.96,  1.28,  1.92,  2.56,   3.84,   5.12,   7.68,   10.24, 15.36,
      20.48,  30.72, 40.96, 61.44, 81.92, 122.88, 163.84, 245.76, 327.68, 491.52};
  for (uint32_t code = 0; code < 32; ++code) {
    EXPECT_NEAR(static_cast<double>(rnr_timer_ns(code)), kMilliseconds[code] * 1e6, 0.5) << code;
  }
  EXPECT_EQ(rnr_timer_ns(33), rnr_timer_ns(1)) << "the code has five bits";
}

TEST(QpTimes, AckTimeout) {
  EXPECT_EQ(ack_timeout_ns(0), 0u) << "for ever";
  EXPECT_EQ(ack_timeout_ns(1), 8192u);
  EXPECT_EQ(ack_timeout_ns(14), 67'108'864u) << "man ibv_modify_qp: 67.1 ms";
  EXPECT_EQ(ack_timeout_ns(31), 8'796'093'022'208u) << "8800 s";
}

}  // namespace
}  // namespace hostnic::driver
