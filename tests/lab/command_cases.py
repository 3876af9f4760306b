# SPDX-License-Identifier: BSD-3-Clause
"""Cases about the commands themselves: what they print, refuse, survive, and leave behind."""

import os
import re
import shutil
import sys

from harness import Case, no_trouble, pair, perftest_rows

# Arguments of hostnic, and what the one line that refuses them says.
REFUSED = {
    "an unknown option": (["lab", "--frobnicate", "--", "true"], r"--frobnicate"),
    "an MTU that is none": (["lab", "--mtu", "1000", "--", "true"], r"mtu.*1000.*4096"),
    "a malformed impairment": (["lab", "--impair", "drop 5% kind foo", "--", "true"],
                               r"column 14: found \"foo\""),
    "a config file with an error": (["lab", "--config", "{config}", "--", "true"],
                                    r"bad\.toml:2:\d+: .*policy"),
    "a socket nobody listens on": (["ctl", "--socket", "/nonexistent/socket", "show nic"],
                                   r"/nonexistent/socket"),
    "an unknown command": (["lab", "--", "{hostnic}", "ctl", "frobnicate"], r"frobnicate.*help"),
    "a device that is not there": (["lab", "--", "{hostnic}", "run", "--device", "hnic9", "--", "true"],
                                   r"hnic9"),
}


def output_has(pattern):
    return lambda output: (None if re.search(pattern, output, re.IGNORECASE)
                           else f"the output does not match {pattern!r}")


def no_trouble_and(pattern):
    return lambda output: no_trouble(output) or output_has(pattern)(output)


def shell_quote(words):
    return " ".join("'" + str(word).replace("'", "'\\''") + "'" for word in words)


def refused_cases(build, scratch):
    config = scratch / "bad.toml"
    config.write_text("[[nic]]\npolicy = 'go-back-to-bed'\n")
    for name, (arguments, pattern) in REFUSED.items():
        words = [str(word).format(config=config, hostnic=build / "hostnic") for word in arguments]
        # Refused with a status of its own, not killed, and without leaving a process behind.
        line = f"{shell_quote([build / 'hostnic', *words])}; s=$?; test $s -ne 0 && test $s -lt 126"
        yield Case(f"refuses {name}", ["sh", "-c", line], 30, True, output_has(pattern))
    # Where something is taken away before. Users other than root have a count of threads, which is that of all their
    # programs: somebody is chosen who has none.
    hostnicd = f"{build / 'hostnicd'} -- --no-prompt --socket /tmp/hostnic-refused-{os.getpid()}.sock"
    nobody = "setpriv --reuid 61877 --regid 61877 --clear-groups"
    not_root = None if os.geteuid() == 0 else "needs root to become somebody else"
    for name, line, pattern, skip in [
            ("a descriptor that is closed", f"{hostnicd} --ready-fd 77", r"--ready-fd 77: Bad file descriptor", None),
            ("two threads", f"(ulimit -u 2; exec {nobody} {hostnicd})", r"hostnicd needs \d threads, and gets 2: .*ulimit -u",
             not_root),
            ("little address space", f"(ulimit -v 300000; exec {hostnicd})",
             r"DPDK doesn't start .* with 292 MB of addresses \(see ulimit -v",
             "sanitizers reserve more" if "ASAN_OPTIONS" in os.environ else None),
            ("files that may not be large", f"(ulimit -f 1000; {build / 'hostnic'} lab -- ibv_devinfo -d hnic0)",
             r"raise hostnicd's file size limit \(ulimit -f\)", None)]:
        yield Case(f"refuses {name}", ["bash", "-c", f"{line}; s=$?; test $s -ne 0 && test $s -lt 126"], 30, True,
                   output_has(pattern), skip=skip)


# Calls that a test of the conformance suite makes and has refused, and the line that says why.
REASONS = {
    "no GRH": ("States.RtrWithoutAGrhIsRefused", r"ibv_modify_qp: QP 0x\w+: no GRH: .*ibv_rc_pingpong: -g 0.*EINVAL"),
    "too much inline data": ("Queues.InlineDataBeyondTheLimit", r"ibv_post_send: QP 0x\w+: inline \d+, \d+ granted"),
    "a full send queue": ("Queues.SendQueueTakesWhatWasGrantedAndNoMore", r"send queue of \d+ full.*ENOMEM"),
}


def reason_cases(build):
    """Labs say by themselves why a call was refused."""
    suite = build / "tests/conformance/conformance-test"
    missing = None if suite.exists() else "the conformance suite is not built with sanitizers"
    for name, (test, pattern) in REASONS.items():
        yield Case(f"says why: {name}", [build / "hostnic", "lab", "--", suite, f"--gtest_filter={test}"], 30, True,
                   no_trouble_and(pattern), skip=missing)


# What `ibv_devinfo -v` must say of each device, and what it must not.
DEVICE = [
    r"hca_id:\s+hnic0(.|\n)*hca_id:\s+hnic1", r"transport:\s+InfiniBand", r"fw_ver:\s+\d+\.\d+",
    r"node_guid:\s+(?!0000:0000:0000:0000)[0-9a-f:]{19}", r"phys_port_cnt:\s+1\b", r"max_qp:\s+16384",
    r"max_mr:\s+65536", r"max_srq:\s+[1-9]", r"max_mw:\s+[1-9]", r"atomic_cap:\s+ATOMIC_HCA",
    r"completion.timestamp_mask:\s+0xf+", r"hca_core_clock:\s+1000000kHZ", r"state:\s+PORT_ACTIVE",
    r"active_mtu:\s+4096", r"link_layer:\s+Ethernet", r"active_width:\s+4X", r"gid_tbl_len:\s+16\b",
    r"GID\[\s*0\]:\s+::ffff:\d+\.\d+\.\d+\.\d+, RoCE v2", r"phys_state:\s+LINK_UP"]
STRANGE = r"[Uu]nknown|invalid|\(null\)"


def devices_are_sane(output):
    for pattern in DEVICE:
        if not re.search(pattern, output):
            return f"the output does not match {pattern!r}"
    strange = re.search(STRANGE, output)
    return f"the output says '{strange.group(0)}'" if strange else None


def transfer(port, options="-s 65536 -n 500"):
    """Two hosts in one line. The status is the client's, after the server has ended."""
    command = f"ib_write_bw -F {options} -p {port}"
    return (f"hostnic run --device hnic0 -- {command} >/dev/null & server=$!; "
            f"hostnic run --device hnic1 -- {command} 127.0.0.1 || exit 1; wait $server || exit 1; ")


# hostnicd takes a moment to see that a program has come or gone, and a busy machine a long one.
UNTIL = ("for i in $(seq 600); do hostnic ctl '{what}' | grep -q '{pattern}' && break; sleep 0.1; done; ")


# Runs a command on a terminal of its own, and hangs up when it says that it is up.
HANG_UP = '''
import os, pty, signal, sys
pid, terminal = pty.fork()
if pid == 0:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it for all below
    os.execvp(sys.argv[1], sys.argv[1:])
while b"up" not in os.read(terminal, 1000):
    pass
os.close(terminal)
print("ended by", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) - 128)
'''


# A verbs program that moves nothing.
OPENS_A_DEVICE = r"""
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv) {
  if (argc > 1 && (setgid(atoi(argv[1])) != 0 || setuid(atoi(argv[1])) != 0)) return 4;
  int count = 0;
  struct ibv_device **list = ibv_get_device_list(&count);
  struct ibv_context *context = count ? ibv_open_device(list[0]) : NULL;
  if (context == NULL) return 1;
  struct ibv_pd *pd = ibv_alloc_pd(context);
  char *memory = aligned_alloc(4096, 1 << 20);
  struct ibv_mr *mr = ibv_reg_mr(pd, memory, 1 << 20, IBV_ACCESS_LOCAL_WRITE);
  if (mr == NULL || ibv_dereg_mr(mr) != 0) return 2;
  free(memory);
  ibv_free_device_list(list);
  if (ibv_dealloc_pd(pd) != 0 || ibv_close_device(context) != 0) return 3;
  puts("registered");
  return 0;
}
"""


def debugger_cases(maker, scratch):
    """With what people look for faults in their programs."""
    source = scratch / "opens_a_device.c"
    source.write_text(OPENS_A_DEVICE)
    for name, option in (("AddressSanitizer", "-fsanitize=address"), ("ThreadSanitizer", "-fsanitize=thread"),
                         ("valgrind", "")):
        program = scratch / f"opens_a_device_{name}"
        run = ("valgrind -q " if name == "valgrind" else "") + str(program)
        # By itself, from a shell that knows nothing of it, and on one device.
        line = f"{run} && hostnic run --device hnic1 -- {run} && echo done"
        skip = None
        if name == "valgrind" and shutil.which(name) is None:
            skip = "valgrind is not installed"
        elif name != "AddressSanitizer" and "ASAN_OPTIONS" in os.environ:
            skip = "the library is built with AddressSanitizer, which bears no other beside it"
        yield Case(f"a program under {name}", [
            "sh", "-c", f"cc {option} -g -o {program} {source} -libverbs && "
            f"{shell_quote(maker.lab([], ['sh', '-c', line]))} && "
            + shell_quote(maker.lab([], run.split()))], 120, True,
            output_has(r"registered\nregistered\ndone\nregistered\n"), skip=skip)


def user_cases(maker, scratch):
    """Root's lab, opened to others, and programs that become others."""
    source, program = scratch / "opens_a_device.c", scratch / "opens_a_device"
    source.write_text(OPENS_A_DEVICE)
    scratch.chmod(0o755)
    nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups"
    line = f"{program} 65534 && {nobody} {program} && ! {nobody} {program} 0 && echo done"
    skip = None
    if os.geteuid() != 0:
        skip = "needs root to become somebody else"
    elif shutil.which("setpriv") is None:
        skip = "setpriv is not installed (util-linux)"
    yield Case("other users' programs in a lab that lets them in", [
        "sh", "-c", f"cc -o {program} {source} -libverbs && "
        + shell_quote(maker.lab(["--socket-mode", "0666"], ["sh", "-c", line]))], 60, True,
        output_has(r"^registered\nregistered\ndone\n"), skip=skip)
    yield Case("other users' programs in a lab that does not", [
        "sh", "-c", f"cc -o {program}_2 {source} -libverbs && "
        + shell_quote(maker.lab([], ["sh", "-c", f"{program}_2 65534; test $? = 1 && echo refused"]))], 60, True,
        output_has(r"^refused\n"), skip=skip)


# Programs that read sysfs instead of asking the library.
SYSFS = r"""
import ctypes, glob, os
top = '/sys/class/infiniband'
assert sorted(os.listdir(top)) == ['hnic0', 'hnic1'], os.listdir(top)
assert len([names for _, _, names in os.walk(top) if 'cap_mask' in names]) == 2
assert os.path.realpath(top + '/hnic0/ports') == top + '/hnic0/ports'
assert os.path.isdir('/dev/infiniband') and os.path.isdir('/sys/class/infiniband_verbs')
os.chdir(top + '/hnic1')
assert os.getcwd() == top + '/hnic1' and open('ports/1/sm_lid').read() == '0x0\n'
class Glob(ctypes.Structure):
    _fields_ = [('count', ctypes.c_size_t), ('paths', ctypes.POINTER(ctypes.c_char_p)), ('rest', ctypes.c_char * 200)]
for name in ('glob', 'glob64'):
    found = Glob()
    assert getattr(ctypes.CDLL(None), name)((top + '/*/ports/1/lid').encode(), 0, None, ctypes.byref(found)) == 0
    assert found.count == 2 and found.paths[0] == (top + '/hnic0/ports/1/lid').encode()
print(sum(int(open(top + f'/hnic{k}/ports/1/counters/port_xmit_packets').read()) for k in (0, 1)), 'packets')
"""


def sysfs_cases(maker):
    quoted = shell_quote([sys.executable, "-c", SYSFS])
    yield Case("sysfs is read in every way", maker.lab([], [
        "sh", "-c", transfer(maker.next_port()) + quoted + " && cd /sys/class/infiniband && /bin/pwd && "
        "find . -name rate && ls /dev/infiniband"]), 60, True, no_trouble_and(
            r"[1-9]\d* packets\n/sys/class/infiniband\n(\./hnic\d/ports/1/rate\n){2}rdma_cm\nuverbs0\nuverbs1\nuverbs_hnic0\n"
            r"uverbs_hnic1\n"))
    yield Case("ibstat, ibstatus", maker.lab([], ["sh", "-c", "ibstat && ibstatus"]), 60, True, no_trouble_and(
        r"CA 'hnic0'(.|\n)*State: Active(.|\n)*Link layer: Ethernet(.|\n)*CA 'hnic1'(.|\n)*"
        r"Infiniband device 'hnic0' port 1 status:(.|\n)*4: ACTIVE(.|\n)*'hnic1'"),
               skip=None if shutil.which("ibstat") else "ibstat is not installed (infiniband-diags)")


# Stands for perftest, whose warnings come in the middle of a line of its table.
NOISY = "printf ' 65536 1000 1.0 2.0'; printf 'Correlation coefficient r^2: 0.859 < 0.9' >&2; echo ' 3.0'"


def running_cases(maker):
    yield Case("a warning spoils no line of results", pair(0, ["true"], ["sh", "-c", NOISY]), 30, True,
               perftest_rows(1))

    def shell(name, lab_arguments, line, check):
        return Case(name, maker.lab(lab_arguments, ["sh", "-c", line]), 120, True, check)

    yield shell("impairments are counted and shown", ["--impair", "drop 3% kind data; duplicate 2%"],
                transfer(maker.next_port()) + "hostnic ctl 'show impair'; hostnic ctl 'show counters'",
                no_trouble_and(r"rx packets: seen \d+ dropped [1-9]\d* duplicated [1-9]"
                               r"(.|\n)*impair_rx_dropped [1-9]"))
    yield shell("impairments can change while programs run", [],
                # Not behind "&&": the whole list would be in the background, and the client ahead of it.
                "hostnic ctl 'set impair all rx drop 2%' || exit 1; " + transfer(maker.next_port()) +
                "hostnic ctl 'set impair all rx none' && hostnic ctl 'show impair'",
                no_trouble_and(r"hnic0 rx none"))
    yield shell("ibv_devinfo -v", [], "ibv_devinfo -v", devices_are_sane)
    yield shell("ibv_devices, ibv_devinfo with its options", [],
                "ibv_devices && ibv_devinfo -l && ibv_devinfo -d hnic1 -i 1 && ibv_devinfo && "
                "! ibv_devinfo -d hnic9 && ! ibv_devinfo -d hnic0 -i 2",
                output_has(r"hnic0\s+[0-9a-f]{16}\n\s*hnic1\s+[0-9a-f]{16}\n(.|\n)*2 HCAs? found:"
                           r"\s+hnic0\s+hnic1\s+hca_id:\s+hnic1(.|\n)*hca_id:\s+hnic0(.|\n)*hnic1"))
    # The server is ended in the middle; its queue pairs and memory go, and others are served.
    yield shell("a killed program leaves nothing behind", [],
                f"hostnic run --device hnic0 -- ib_write_bw -F -D 30 -p {maker.next_port()} & victim=$!; "
                f"hostnic run --device hnic1 -- ib_write_bw -F -D 30 -p {maker.port} 127.0.0.1 "
                ">/dev/null 2>&1 & client=$!; " + UNTIL.format(what="show client", pattern="ib_write_bw") +
                "sleep 1; kill -9 $victim $client; wait; " + transfer(maker.next_port()) +
                UNTIL.format(what="show client", pattern="no clients") + "hostnic ctl 'show nic'",
                output_has(r"hnic0 .*clients 0 qps 0(.|\n)*hnic1 .*clients 0 qps 0"))
    # One session, or the kernel schedules them as groups that don't yield to each other; two process
    # groups, or ^C ends hostnicd before its programs.
    fields = ("for child in $(cat /proc/$PPID/task/$PPID/children); "
              "do cut -d' ' -f{} /proc/$child/stat; done | sort -u | wc -l; ")
    yield shell("hostnicd is in its programs' session, and not in their process group", [],
                "echo sessions; " + fields.format(6) + "echo groups; " + fields.format(5),
                output_has(r"sessions\n1\ngroups\n2\n"))
    yield Case("a lab ends with its terminal",
               [sys.executable, "-c", HANG_UP, *maker.lab([], ["sh", "-c", "echo up; exec sleep 60"])],
               30, True, output_has(r"ended by 1\n"))
    yield shell("30% loss is finished over", ["--loss", "30%"],
                transfer(maker.next_port(), "-s 65536 -n 100"), no_trouble)
