// SPDX-License-Identifier: BSD-3-Clause
// The names that fault rules use: calls, and for each what it returns where it fails and what it
// has that a rule can choose by; errors; statuses, opcodes and events of verbs. The numbers are
// those of the ABI of verbs, which does not change.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace hostnic::faults {

// The value by which a call says that it failed.
enum class Failure : uint8_t {
  kErrno,     // the errno value is the result
  kMinusOne,  // -1, and errno
  kNull,      // a null pointer, and errno
  kNone,      // it cannot fail
};

// The properties of a call that a rule can choose by.
enum Property : uint8_t {
  kHasDevice = 1,
  kHasQp = 2,
  kHasSize = 4,   // bytes of a registration, or entries of a queue
  kHasState = 8,  // ibv_modify_qp: the state that it leads to
};

struct FaultCall {
  std::string_view name;  // without "ibv_"
  Failure failure;
  uint8_t properties;
};

struct FaultName {
  std::string_view name;
  int value;
};

std::span<const FaultCall> fault_calls();
// The call of that name; null: there is none. "ibv_" in front is let pass.
const FaultCall* find_call(std::string_view name);

std::span<const FaultName> errno_names();       // EPERM and so on
std::span<const FaultName> status_names();      // of completions, but for success
std::span<const FaultName> completion_names();  // opcodes of completions
std::span<const FaultName> state_names();       // of queue pairs
std::span<const FaultName> event_names();       // asynchronous events
std::span<const FaultName> cm_event_names();    // events of librdmacm

std::optional<int> value_of(std::span<const FaultName> names, std::string_view name);
// Empty: there is none.
std::string_view name_of(std::span<const FaultName> names, int value);

// Whether a completion of this opcode is a receive's.
bool is_of_receive(int opcode);
// The object that an asynchronous event is about; of none of these: the device.
bool is_of_qp(int event);
bool is_of_cq(int event);
bool is_of_srq(int event);
bool is_of_port(int event);

}  // namespace hostnic::faults
