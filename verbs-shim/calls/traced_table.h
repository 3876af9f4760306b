// SPDX-License-Identifier: BSD-3-Clause
// What tables of traced functions are made with.
#pragma once

namespace hostnic::calls {

// For a format's %p.
#define HOSTNIC_P(pointer) static_cast<const void*>(pointer)

// Puts a traced function where the provider has one.
template <typename Function>
void put(Function*& place, Function* traced) {
  if (place != nullptr) place = traced;
}

}  // namespace hostnic::calls
