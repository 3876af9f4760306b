# SPDX-License-Identifier: BSD-3-Clause
"""Our libibverbs.so.1 and librdmacm.so.1: programs that find them by LD_LIBRARY_PATH or load them by their path, and
are not preloaded."""

import os
import shutil
import sys

from cm_cases import SERVER_IP
from harness import Case, no_trouble, pair, perftest_rows, pingpong_is_ok
from loading_cases import LOADS_BY_PATH, libibverbs, output_is, says

# Each symbol of the machine's libraries, with its version, is one of ours.
COMPARES_SYMBOLS = r"""
import os, subprocess, sys
def symbols(path):
    lines = subprocess.run(['readelf', '-W', '--dyn-syms', path], capture_output=True, text=True, check=True).stdout
    words = [line.split() for line in lines.splitlines()]
    return {w[7].replace('@@', '@') for w in words if len(w) == 8 and w[6] != 'UND' and '@' in w[7]}
for name in 'libibverbs.so.1', 'librdmacm.so.1':
    machine = symbols(os.path.join(sys.argv[2], name))
    missing = sorted(machine - symbols(os.path.join(sys.argv[1], name)))
    print(name, len(machine) > 50, 'missing:', missing)
"""

# The functions that our library has itself, beside the machine's in one process: every number that is one, and some
# that are none.
COMPARES_WORDS = r"""
import ctypes, os, sys
ours, machine = (ctypes.CDLL(os.path.join(where, 'libibverbs.so.1')) for where in sys.argv[1:])
same = ours._handle != machine._handle
for name in 'ibv_node_type_str', 'ibv_port_state_str', 'ibv_event_type_str', 'ibv_wc_status_str', 'ibv_get_sysfs_path':
    for library in ours, machine:
        getattr(library, name).restype = ctypes.c_char_p
for name in ('ibv_node_type_str', 'ibv_port_state_str', 'ibv_event_type_str', 'ibv_wc_status_str', 'ibv_rate_to_mult',
             'ibv_rate_to_mbps', 'mult_to_ibv_rate'):
    for number in range(-2, 600):
        mine, theirs = getattr(ours, name)(number), getattr(machine, name)(number)
        if mine != theirs:
            print(name, number, mine, theirs)
            same = False
for mbps in [ours.ibv_rate_to_mbps(rate) for rate in range(40)] + [0, 1, 25000]:
    same = same and ours.mbps_to_ibv_rate(mbps) == machine.mbps_to_ibv_rate(mbps)
for name, size in ('ibv_copy_ah_attr_from_kern', 32), ('ibv_copy_qp_attr_from_kern', 144), (
        'ibv_copy_path_rec_from_kern', 72), ('ibv_copy_path_rec_to_kern', 72):
    source = bytes((7 * i + 1) % 251 for i in range(size))
    results = []
    for library in ours, machine:
        to = ctypes.create_string_buffer(256)
        getattr(library, name)(to, ctypes.create_string_buffer(source, 256))
        results.append(to.raw)
    if results[0] != results[1]:
        print(name, results)
        same = False
print('the same:', same and ours.ibv_get_sysfs_path() == machine.ibv_get_sysfs_path())
"""

# A program that closes its libibverbs again, with devices that were open, and lives on.
CLOSES = r"""
import ctypes, _ctypes, os, sys, time
for attempt in range(3):
    verbs = ctypes.CDLL(sys.argv[1], mode=os.RTLD_LOCAL | os.RTLD_NOW)
    verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
    verbs.ibv_open_device.restype = verbs.ibv_alloc_pd.restype = ctypes.c_void_p
    devices = verbs.ibv_get_device_list(None)
    context = verbs.ibv_open_device(ctypes.c_void_p(devices[0]))
    pd = verbs.ibv_alloc_pd(ctypes.c_void_p(context))
    print(context is not None, verbs.ibv_dealloc_pd(ctypes.c_void_p(pd)), verbs.ibv_close_device(ctypes.c_void_p(context)))
    _ctypes.dlclose(verbs._handle)
print(len(os.listdir('/')) > 0)
"""

# What needs functions of libc that are ours: memory that is unmapped, moved, discarded and freed while it is registered,
# descriptors, sysfs, rdma_cm, forks. Then what most programs use.
CONFORMANCE = ("BusyMemory", "ChangingMemory", "CutOffMemory", "GoneMemory", "GoneMemoryByMemFd", "MovedMemory", "OnDemand",
               "Regions", "Reregister", "Descriptors", "Devices", "Interfaces", "RdmaCm", "Forks", "Access", "Queues",
               "Channels", "Datagrams", "SharedReceives", "Threads")


def by_path_cases(maker):
    library = maker.build / "lib"
    sanitized = "ASAN_OPTIONS" in os.environ
    skip = "sanitizers' runtimes come first" if sanitized else None

    def outside(command, *variables):
        """The command without our preload."""
        return ["env", "-u", "LD_PRELOAD", *variables, *command]

    def on(device, command):
        return outside(command, f"LD_LIBRARY_PATH={library}", f"HOSTNIC_DEVICE={device}")

    def in_pair(port, program, server, client):
        return maker.lab([], pair(port, on("hnic0", [program, *server]), on("hnic1", [program, *client])))

    python = [sys.executable, "-c"]
    machine = os.path.dirname(libibverbs())
    port = [str(maker.next_port()) for _ in range(3)]
    yield Case("by path: the symbols of the machine's libraries", [*python, COMPARES_SYMBOLS, library, machine], 60, True,
               output_is("libibverbs.so.1 True missing: []\nlibrdmacm.so.1 True missing: []\n"), skip=skip)
    yield Case("by path: words, rates and copies are the machine's", [*python, COMPARES_WORDS, library, machine], 60, True,
               output_is("the same: True\n"), skip=skip)
    yield Case("by path: ibv_devinfo", maker.lab([], outside(["ibv_devinfo"], f"LD_LIBRARY_PATH={library}")), 60, True,
               says("hnic0", "hnic1", "PORT_ACTIVE"), skip=skip)
    yield Case("by path and preloaded: each device once", maker.lab(
        [], ["env", f"LD_LIBRARY_PATH={library}", "sh", "-c", "ibv_devices | grep -c hnic"]), 60, True,
               output_is("2\n"), skip=skip)
    yield Case("by path: libibverbs loaded by its path", maker.lab(
        [], outside([*python, LOADS_BY_PATH, library / "libibverbs.so.1"])), 60, True,
               output_is("['hnic0', 'hnic1'] None\n" * 2), skip=skip)
    yield Case("by path: libibverbs loaded and closed", maker.lab(
        [], outside([*python, CLOSES, library / "libibverbs.so.1"])), 60, True,
               output_is("True 0 0\n" * 3 + "True\n"), skip=skip)
    yield Case("by path: ibv_rc_pingpong", in_pair(
        port[0], "ibv_rc_pingpong", ["-g", "0", "-c", "-p", port[0]],
        ["-g", "0", "-c", "-p", port[0], "127.0.0.1"]), 60, True, pingpong_is_ok, skip=skip)
    yield Case("by path: ib_write_bw", in_pair(
        port[1], "ib_write_bw", ["-F", "-a", "-n", "50", "-p", port[1]],
        ["-F", "-a", "-n", "50", "-p", port[1], "127.0.0.1"]), 180, True, perftest_rows(23), skip=skip)
    yield Case("by path: ib_send_bw -R", in_pair(
        0, "ib_send_bw", ["-F", "-R", "-n", "100"], ["-F", "-R", "-n", "100", SERVER_IP]), 60, True,
               perftest_rows(1), skip=skip)
    yield Case("by path: rping", maker.lab([], pair(
        0, on("hnic0", ["rping", "-s", "-a", SERVER_IP, "-C", "100", "-V"]),
        on("hnic1", ["rping", "-c", "-a", SERVER_IP, "-C", "100", "-V"]))), 60, True, no_trouble, skip=skip)
    # The client comes before the server listens: the connect that is tried again is ours.
    line = (f"HOSTNIC_DEVICE=hnic1 ib_write_bw -F -n 50 -p {port[2]} 127.0.0.1 & client=$!; "
            f"HOSTNIC_DEVICE=hnic0 ib_write_bw -F -n 50 -p {port[2]} && wait $client")
    yield Case("by path: a client that comes first", maker.lab(
        [], outside(["sh", "-c", line], f"LD_LIBRARY_PATH={library}")), 60, True, perftest_rows(2), skip=skip)
    tests = maker.apps / "tests/conformance/conformance-test"
    yield Case("by path: conformance", maker.lab(
        [], outside([tests, "--gtest_filter=" + ":".join(f"{name}.*" for name in CONFORMANCE)],
                    f"LD_LIBRARY_PATH={library}")), 300, False, says("[  PASSED  ]"), skip=skip)
    # UCX's module needs libmlx5.so.1, whose private functions of rdma-core lead to the machine's library.
    yield Case("by path: UCX, with a provider's library", maker.lab(
        [], outside(["ucx_info", "-d"], f"LD_LIBRARY_PATH={library}")), 60, False,
               says("Transport: rc_verbs", "Device: hnic0:1", "Device: hnic1:1"),
               skip=skip or (None if shutil.which("ucx_info") else "no ucx_info here"))
    # No command is started.
    line = (f"hostnic libdir && hostnic run --how -- ibv_devinfo && LD_LIBRARY_PATH={library} hostnic run --how -- "
            "ibv_devinfo && hostnic run --how -- no-such-program")
    path = maker.build / "libhostnic-verbs.so"
    yield Case("by path: libdir, and run --how", ["env", f"PATH={maker.build}:{os.environ['PATH']}", "sh", "-c", line], 60,
               True, output_is(f"{library}\npreload: {path}\npreload: {path}; library by path, without the preload: "
                               f"{library}/libibverbs.so.1\nnone: there is no no-such-program\n"), skip=skip)
