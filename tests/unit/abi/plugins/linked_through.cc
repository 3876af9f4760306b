// SPDX-License-Identifier: BSD-3-Clause
// A library that uses verbs through another only.
extern "C" void* linked_device_list();
extern "C" void* through_device_list() { return linked_device_list(); }
