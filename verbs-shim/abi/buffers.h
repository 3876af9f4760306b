// SPDX-License-Identifier: BSD-3-Clause
// Buffers that the library allocates for a program (ibv_alloc_buf): plain memory here, as on any
// device without memory of a kind of its own.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>

struct ibv_buf;

namespace hostnic::abi {

// Whether the range lies in a buffer that ibv_alloc_buf made for `pd`. Any thread; `buffer` may be
// any address.
bool is_in_buffer(const ibv_buf* buffer, const ibv_pd* pd, const void* address, size_t length);

}  // namespace hostnic::abi
