# SPDX-License-Identifier: BSD-3-Clause
"""Ways in which programs get at verbs other than being linked to libibverbs, and those that lead
past the preloaded library."""

import os
import subprocess
import sys

from harness import Case, no_trouble

# What a program's RDMA module does (Valkey's, loaded with RTLD_DEEPBIND): both libraries.
PLUGIN = r"""
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int opens_device(void) {
  struct ibv_device **list = ibv_get_device_list(NULL);
  if (list == NULL || list[0] == NULL) return 1;
  struct ibv_context *context = ibv_open_device(list[0]);
  if (context == NULL || strcmp(ibv_get_device_name(context->device), "hnic0") != 0) return 2;
  struct ibv_pd *pd = ibv_alloc_pd(context);
  char *memory = aligned_alloc(4096, 1 << 20);
  struct ibv_mr *mr = ibv_reg_mr(pd, memory, 1 << 20, IBV_ACCESS_LOCAL_WRITE);
  if (mr == NULL || ibv_dereg_mr(mr) != 0) return 3;
  free(memory);
  ibv_free_device_list(list);
  return ibv_dealloc_pd(pd) != 0 || ibv_close_device(context) != 0 ? 4 : 0;
}
int binds_address(void) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr("127.77.0.2")};
  struct rdma_event_channel *channel = rdma_create_event_channel();
  struct rdma_cm_id *id = NULL;
  if (channel == NULL || rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) != 0) return 1;
  if (rdma_bind_addr(id, (struct sockaddr *)&address) != 0) return 2;
  if (id->verbs == NULL || strcmp(ibv_get_device_name(id->verbs->device), "hnic1") != 0) return 3;
  rdma_destroy_id(id);
  rdma_destroy_event_channel(channel);
  return 0;
}
int reads_sysfs(void) { return access("/sys/class/infiniband/hnic0/ports/1/state", R_OK); }
"""

LOADS_PLUGIN = r"""
import ctypes, os, sys
plugin = ctypes.CDLL(sys.argv[1], mode=os.RTLD_NOW | os.RTLD_LOCAL | os.RTLD_DEEPBIND)
print([getattr(plugin, name)() for name in ('opens_device', 'binds_address', 'reads_sysfs')])
"""

# As NCCL does with NCCL_LIBIBVERBS_SO.
LOADS_BY_PATH = r"""
import ctypes, sys
verbs = ctypes.CDLL(sys.argv[1])
dlvsym = ctypes.CDLL(None).dlvsym
dlvsym.restype = ctypes.c_void_p
address = dlvsym(ctypes.c_void_p(verbs._handle), b'ibv_get_device_list', b'IBVERBS_1.1')
found = [ctypes.CFUNCTYPE(ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)(address)(None)]
verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
found.append(verbs.ibv_get_device_list(None))
verbs.ibv_get_device_name.restype = ctypes.c_char_p
for device in found:
    print([verbs.ibv_get_device_name(ctypes.c_void_p(device[i])).decode() for i in range(2)], device[2])
    verbs.ibv_free_device_list(device)
"""

def output_is(expected):
    return lambda output: no_trouble(output) or (
        None if output == expected else f"the output is not {expected!r}")


def says(*lines):
    def check(output):
        missing = [line for line in lines if line not in output]
        return f"the output does not say {missing[0]!r}" if missing else None
    return check


def libibverbs():
    done = subprocess.run(["pkg-config", "--variable=libdir", "libibverbs"], capture_output=True, text=True,
                          check=False)
    return os.path.join(done.stdout.strip(), "libibverbs.so.1")


def loading_cases(maker, scratch):
    sanitized = "ASAN_OPTIONS" in os.environ
    source = scratch / "plugin.c"
    source.write_text(PLUGIN)
    plugin = scratch / "plugin.so"
    python = [sys.executable, "-c"]
    lab = [str(word) for word in maker.lab([], [*python, LOADS_PLUGIN, plugin])]
    yield Case("a plug-in loaded with RTLD_DEEPBIND", [
        "sh", "-c", f'cc -shared -fPIC -o {plugin} {source} -lrdmacm -libverbs && exec "$@"', "sh", *lab],
               60, True, output_is("[0, 0, 0]\n"),
               skip="AddressSanitizer refuses the flag" if sanitized else None)
    yield Case("libibverbs loaded by its path", maker.lab([], [*python, LOADS_BY_PATH, libibverbs()]), 60, True,
               output_is("['hnic0', 'hnic1'] None\n" * 2))

    # As where one is in /etc/ld.so.preload, and a lab of another build is begun.
    copy = scratch / "libhostnic-verbs-of-another-build.so"
    line = f'cp {maker.build}/libhostnic-verbs.so {copy} && LD_PRELOAD=$LD_PRELOAD:{copy} ibv_devices | grep -c hnic'
    yield Case("preloaded twice", maker.lab([], ["sh", "-c", line]), 60, True, output_is("2\n"),
               skip="AddressSanitizer takes the same globals in two libraries for a mistake" if sanitized else None)

    # The warning comes first, the program runs as it would, and its status is the command's.
    program = scratch / "static-program"
    script = scratch / "script-of-static-program"
    (scratch / "static_program.c").write_text(
        '#include <stdio.h>\nint main(int argc, char **argv) { printf("runs %d\\n", argc); return 3; }\n')
    script.write_text(f"#!{program}\n")
    script.chmod(0o755)
    line = (f"{program} a; hostnic run -- {program} a b; echo status $?; hostnic run -- {script}; "
            "hostnic run -- sh -c 'echo a shell'")
    inside = [str(word) for word in maker.lab([], ["sh", "-c", line])]
    # Without the maker's "env" for sanitizers, which is what would be looked at.
    alone = [str(word) for word in (maker.build / "hostnic", "lab", "--", program)]
    yield Case("static programs are warned of", [
        "sh", "-c", f'cc -static -o {program} {scratch}/static_program.c && "$@" && ' +
        " ".join(alone) + "; test $? = 3", "sh", *inside], 60, True,
               says(f"runs 2\nruns 3\nstatus 3\nruns 2\na shell\nruns 1\n",
                    f"hostnic run: {program} is statically linked: it will see no hnic device\n"
                    f"hostnic run: {script}'s interpreter {program} is statically linked: it will see no hnic device\n"
                    f"hostnic lab: {program} is statically linked: it will see no hnic device\n"))
