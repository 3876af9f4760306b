// SPDX-License-Identifier: BSD-3-Clause
// An open device as who knows by which numbers its NIC names hosts.
#pragma once

#include "verbs-shim/abi/convert.h"
#include "verbs-shim/runtime/context.h"

namespace hostnic::abi {

class ContextNumbers final : public HostNumbers {
 public:
  explicit ContextNumbers(runtime::Context& context) : context_(context) {}
  Expected<Ipv4Address, int> number_of(const Gid& host) override {
    return context_.number_of(host);
  }

 private:
  runtime::Context& context_;
};

}  // namespace hostnic::abi
