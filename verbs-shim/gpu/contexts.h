// SPDX-License-Identifier: BSD-3-Clause
// Contexts and devices: which one a thread's calls are for. A context is nothing but a device here.
#pragma once

#include "verbs-shim/gpu/exports.h"

namespace hostnic::gpu {

struct Context {
  int device = 0;
  bool is_primary = false;
  uint64_t id = 0;
};

// Whether the driver's interface has been initialized, by the program or by a runtime's call.
bool is_initialized();
void initialize();

bool is_device(int device);
Context* primary_context(int device);  // null: no such device
Context* make_context(int device);     // null: no such device, or memory
void destroy_context(Context* context);

// The calling thread's. Null: none.
Context* current_context();
void set_current_context(Context* context);
void push_context(Context* context);
Context* pop_context();

// The device of a runtime's call: the current context's, or the first one, whose primary context
// becomes current. It initializes.
int runtime_device();

// What the driver's calls begin with: kSuccess, or kNotInitialized, kInvalidContext.
Result check_context();

// A thing's name, which says what it is. `text` has `bytes` bytes.
void write_name(int device, char* text, size_t bytes);
void write_uuid(int device, char (&uuid)[16]);
void write_bus_id(int device, char* text, size_t bytes);
// The device of a bus id, as 0000:70:00.0; -1: none.
int device_of_bus_id(const char* text);
constexpr int kFirstBus = 0x70;

// Attributes by the driver's numbers. Those that are not known are 0.
int device_attribute(int attribute, int device);

}  // namespace hostnic::gpu
