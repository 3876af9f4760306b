// SPDX-License-Identifier: BSD-3-Clause
// Has our librdmacm.so.1 need our libibverbs.so.1: the machine's librdmacm, to which it leads,
// needs one of that name, and takes the one that is loaded.
extern "C" const char* ibv_get_sysfs_path();

[[gnu::used]] static const char* (*const needed)() = &ibv_get_sysfs_path;
