# SPDX-License-Identifier: BSD-3-Clause
"""`hostnic fault` and `--fault`: a program that says what it meets (hostnic-faulted), with rules, on our devices and on an
adapter that is none; stock programs; the end of a run; seeds."""

import re

from command_cases import output_has, shell_quote
from harness import HERE, Case

def has_all(*patterns):
    """Whether each is somewhere: stdout and stderr come one behind the other."""
    def check(output):
        missing = [pattern for pattern in patterns if not re.search(pattern, output)]
        return f"the output does not match {missing}" if missing else None
    return check


def in_order(*expected):
    return output_has(r"(.*\n)*?".join(expected))


def of_objects(maker, hostnic, faulted):
    def lab(name, rule, mode, *expected, exits=0):
        line = f"{shell_quote([hostnic, 'lab', '-q', '--fault', rule, '--', faulted, *mode.split()])}; test $? -eq {exits}"
        return Case(f"faults: {name}", ["sh", "-c", line], 30, True,
                    in_order(*expected))
    yield lab("the third create_cq", "fault create_cq nth 3 errno ENOMEM", "calls",
              "create_cq: ok\n", "create_cq: ENOMEM\n", "create_cq: ok\n", "child's create_cq: ok\n",
              "child's create_cq: ENOMEM\n", "child's create_cq: ok\n")
    yield lab("a registration over a size", "reg_mr over 1M errno EFAULT", "calls", "reg_mr: ok\n", "reg_mr: ok\n",
              "reg_mr: EFAULT\n")
    yield lab("a call that returns -1", "query_gid errno EIO", "calls", "query_gid: EIO\n")
    yield lab("a call that returns an errno", "post_recv errno ENOSPC", "calls", "post_recv: ENOSPC\n")
    yield lab("a late call", "modify_qp to INIT delay 400ms", "calls", "modify_qp: ok\nmodify_qp took long\n")
    for kind in ("", " ex"):
        yield lab(f"a completion{kind}", "wc nth 4 status RETRY_EXC_ERR vendor 0x81", "completions" + kind,
                  "wc 3: status 0 vendor 0x0\nwc 4: status 12 vendor 0x81\nwc 5: status 5 vendor 0x0\n",
                  "wc 10: status 5 vendor 0x0\nstate: ERR\n")
    yield lab("completions of READs only", "wc opcode READ status GENERAL_ERR; wc nth 9 status REM_ACCESS_ERR", "completions",
              "wc 8: status 0 ", "wc 9: status 10 ", "wc 10: status 5 ", exits=98)
    yield lab("events", "event PORT_ERR after 600ms for 600ms; event QP_FATAL qp #2 after 100ms", "events 2",
              "event: local work queue catastrophic error of the second, port active\n",
              "event: port error, port down\n", "event: port active, port active\n", "all is destroyed\n")
    yield lab("an event of a completion queue", "event CQ_ERR after 100ms", "events 1", "event: CQ error of the queue, port active\n",
              "all is destroyed\n")
    yield lab("late events", "event QP_LAST_WQE_REACHED delay 2s", "own-events",
              "nothing yet\n", "event: last WQE reached of [12]\nevent: last WQE reached of [12]\nboth came late\nno more events\n",
              "all is destroyed\n")
    yield lab("events that are not late beside one that is made", "event SRQ_LIMIT srq #2 after 1ms", "own-events",
              "event: last WQE reached of [12]\nevent: last WQE reached of [12]\n", "no more events\n", "all is destroyed\n", exits=98)


def delivered(output, device):
    """The numbers of a device's completions, in the order in which hostnic-faulted says that they were delivered."""
    return [int(number) for number in re.findall(rf"^{device}: wc (\d+): status 0, opcode 1$", output, re.MULTILINE)]


def in_turn(last_first=None, *patterns):
    """Whether each device's completions came in their order; of two devices with the last of the second before the
    last of the first, if that is to be."""
    def check(output):
        for device in ("hnic0", "hnic1"):
            if (order := delivered(output, device)) != list(range(1, 11)):
                return f"{device}: completions came as {order}"
        lines = re.findall(r"^(hnic\d): wc (\d+)", output, re.MULTILINE)
        if last_first and lines.index((last_first, "10")) > lines.index(("hnic0", "10")):
            return f"the last of {last_first} came behind that of hnic0"
        return has_all("all is destroyed", *patterns)(output)
    return check


def of_skew(hostnic, faulted):
    """Completions that are held back, and what must not change: each queue's order, and that events come."""
    def case(name, rule, how, check, limit_s=20):
        return Case(f"faults: skew: {name}, {how}", ["sh", "-c", f"{hostnic} lab -q --fault '{rule}' -- {faulted} skew {how} hnic0 hnic1"],
                    limit_s, how in ("poll", "events"), check)
    for how in ("poll", "poll-ex", "events", "events-ex"):
        enough = ["events enough"] if how.startswith("events") else []
        yield case("a device behind another", "wc nth 1 device hnic0 behind hnic1 delay 30s", how,
                   lambda output, enough=enough: in_turn(None, *enough)(output) or (
                       None if output.index("hnic1: wc 1:") < output.index("hnic0: wc 1:") else "hnic0 came first"))
        yield case("a late device", "wc nth 1 device hnic0 delay 500ms", how, in_turn("hnic1", *enough))
        yield case("some are late", "wc 30% delay 20ms", how, in_turn(None, *enough))
        yield case("nothing to wait for", "wc every 3 behind #7; wc every 4 behind hnic1 delay 5ms", how, in_turn(None, *enough))
    yield case("a queue by its number", "wc first 1 cq #2 behind #1 delay 30s", "poll",
               lambda output: in_turn()(output) or (
                   None if output.index("hnic0: wc 1:") < output.index("hnic1: wc 1:") else "hnic1 came first"))
    yield case("no event before its completion", "wc delay 300ms", "events-one",
               has_all("hnic0: wc 1: status 0", "hnic1: wc 1: status 0", "events enough"))
    yield case("objects go while something is held", "wc delay 20s", "left", has_all("all is destroyed"))
    yield Case("faults: skew: late and failed", ["sh", "-c", f"{hostnic} lab -q --fault 'wc nth 4 delay 100ms status RETRY_EXC_ERR vendor "
               f"0x81' -- {faulted} completions"], 20, True,
               in_order("wc 3: status 0 vendor 0x0\nwc 4: status 12 vendor 0x81\nwc 5: status 5 vendor 0x0\n", "wc 10: status 5 ",
                        "state: ERR\n"))


def of_ends(hostnic, faulted):
    yield Case("faults: a rule that never fires is an end of its own",
               ["sh", "-c", f"{hostnic} lab -q --fault 'reg_mr over 1G errno ENOMEM' -- {faulted} calls; echo status $?"], 30, False,
               output_has(r"status 98\n"))
    yield Case("faults: it says which never fired",
               ["sh", "-c", f"{hostnic} lab -q --fault 'reg_mr over 1G errno ENOMEM' -- {faulted} calls; true"], 30, False,
               has_all("faults fired: 0 of 1", "never fired: fault reg_mr over 1073741824 errno ENOMEM"))
    yield Case("faults: the command's own status goes first",
               ["sh", "-c", f"{hostnic} fault --rule 'reg_mr errno EIO' -- sh -c 'exit 7'; echo status $?"], 30, False,
               has_all("no program made a call", "status 7"))
    yield Case("faults: a rule that can't fire is refused",
               ["sh", "-c", f"{hostnic} lab --fault 'ack_cq_events errno EIO' -- true; echo status $?"], 30, False,
               has_all('found "errno"', "status 2"))
    yield Case("faults: by the environment, and run",
               ["sh", "-c", f"HOSTNIC_FAULT='alloc_pd errno EPERM' {hostnic} lab -- {hostnic} run -- ibv_rc_pingpong -g 0; echo $?"],
               30, False, output_has(r"Couldn't allocate PD"))
    yield Case("faults: seeds find a failure and leave out what it needs not",
               ["sh", "-c", f"{hostnic} lab --seeds 1..60 --loss 1% --fault 'create_cq 3% errno ENOMEM' --fault 'query_gid 1% errno "
                f"EIO' -- sh -c \"! {faulted} calls | grep -q 'create_cq: ENOMEM'\"; test $? -eq 1"], 120, False,
               output_has(r"2 of the rules are not needed for it\n.*again: hostnic lab --seed \d+ --fault 'create_cq 3% errno ENOMEM' "))
    yield Case("faults: seeds that all pass",
               ["sh", "-c", f"{hostnic} fault --seeds 1..3 --rule 'reg_mr errno EIO' -- true; test $? -eq 98"], 30, False, output_has("in 3 of them a rule never fired"))


def of_api(hostnic, faulted):
    line = f"{hostnic} lab -q -- {hostnic} fault --api -- {faulted} armed; echo status $?"
    yield Case("faults: a program arms rules itself", ["sh", "-c", line], 30, True,
               in_order("arm: 0\narm nonsense: -22\n", "create_cq: ok\n", "create_cq: ENOMEM\n", "create_cq: ok\n",
                        "create_cq: ENOMEM\n", "create_cq: ok\n", "fired: 2\ndisarm: 0\n",
                        *["disarmed create_cq: ok\n"] * 5, "fired: 2, and no rule -22\n", "status 0"))
    yield Case("faults: a program without the library can skip", ["sh", "-c", f"{hostnic} lab -q -- {faulted} armed; echo status $?"],
               30, True, in_order("arm: -38\narm nonsense: -38\n", "fired: -38\ndisarm: -38\n", "status 0"))


def of_prompt(hostnic, faulted):
    """Rules that come and go while a program runs."""
    script = (f"{faulted} until-fails 60 > $d/out & program=$!; until grep -q begun $d/out; do sleep 0.1; done; {hostnic} ctl 'fault list'; "
              f"{hostnic} ctl 'fault add create_cq errno ENOMEM'; wait $program; cat $d/out; {hostnic} ctl 'fault list'; "
              f"{hostnic} ctl fault remove 1; {hostnic} ctl 'fault list'; {faulted} calls; "
              f"echo 'fault add reg_mr nth 900 errno EIO' | {hostnic} ctl")
    yield Case("faults: rules from the prompt while programs run",
               ["sh", "-c", f"d=$(mktemp -d); export d; {hostnic} lab -q --fault none -- sh -c {shell_quote([script])}; echo status $?; rm -r $d"],
               60, True, in_order("no rules\n", "1: fault create_cq errno ENOMEM\n", "begun\ncreate_cq: ENOMEM\n",
                                  r"1: fault create_cq errno ENOMEM \(met 1 times, fired 1 times\)\n", "no rules\n", "create_cq: ok\n",
                                  "2: fault reg_mr nth 900 errno EIO\n", "status 98\n", "hostnic fault: faults fired: 1 of 2 ",
                                  "hostnic fault: never fired: fault reg_mr nth 900 errno EIO"))
    yield Case("faults: no rules can be added where none are in force",
               ["sh", "-c", f"{hostnic} lab -q -- {hostnic} ctl 'fault add reg_mr errno EIO'; echo status $?"], 30, False,
               has_all("no fault rules are in force here", "status 1\n"))


def of_docs(hostnic):
    page = (HERE.parents[1] / "docs/faults.md").read_text()
    table = page.split("<!-- hostnic fault --list -->\n")[1].split("<!-- end -->")[0]
    yield Case("faults: docs/faults.md has the names of the code", [hostnic, "fault", "--list"], 30, True,
               lambda output: None if table in output else "docs/faults.md: put `hostnic fault --list` between its marks")


def of_adapter(maker, hostnic):
    """An adapter of somebody else, without hostnicd."""
    apps = maker.apps / "tests/apps"
    script = (f"d=$(mktemp -d) && ln -s {apps}/libfake-adapter.so $d/libibverbs.so.1 && LD_LIBRARY_PATH=$d {hostnic} fault "
              f"--device fake0 --rule 'reg_mr nth 5 errno EIO' -- {apps}/hostnic-traced; echo status $?; rm -r $d")
    # A kernel takes no other descriptor than its own for where the events of what is made shall go.
    events = script.replace("reg_mr nth 5 errno EIO", "event PORT_ERR after 3600s")
    yield Case("faults: events of an adapter of somebody else", ["sh", "-c", events], 30, False, has_all("status 98\n"))
    yield Case("faults: an adapter of somebody else", ["sh", "-c", script], 30, False,
               has_all("reg_mr: match 5 of: fault reg_mr nth 5 device fake0 errno EIO\n",
                       r"hostnic-traced: ibv_reg_mr \(errno 5\)", "status 1\n"))


def of_connections(maker, hostnic):
    """rdma_cm: the client of rping is refused, as it is told."""
    port = maker.next_port()
    script = (f"rping -s -a 127.77.0.1 -p {port} -C 1 & s=$!; sleep 1; {hostnic} fault --rule "
              f"'cm ESTABLISHED as REJECTED reason 28' -- rping -c -a 127.77.0.1 -p {port} -C 1; echo status $?; wait $s; true")
    yield Case("faults: a connection that is refused", [hostnic, "lab", "-q", "--", "bash", "-c", script], 60, False,
               has_all("event: match 1 of: fault cm ESTABLISHED as REJECTED reason 28\n",
                       "cma event RDMA_CM_EVENT_REJECTED, error 28", "status [1-9]"))


def of_failover(maker, hostnic):
    """The rules of docs/failover.md: each costs one of two connections, and no bytes."""
    program = maker.apps / "tests/apps/hostnic-failover"
    page = (HERE.parents[1] / "docs/failover.md").read_text()
    rules = re.findall(r"^\| `(.*)` \|", page, re.MULTILINE)
    assert len(rules) == 12
    for rule in rules:
        line = shell_quote([hostnic, "lab", "-q", "--nics", "4", "--fault", rule, "--", program])
        yield Case(f"failover: {rule}", ["sh", "-c", f"{line}; echo status $?; {line} --no-failover; echo status $?"], 60, True,
                   has_all("rail 0 is down: ", "receiver: all bytes are right\n", "sender: 48 chunks, ", "status 0\n", "status 4\n"))


def of_use(hostnic, faulted):
    """The completions of hostnic-faulted: ten WRITEs of 1024 bytes between two queue pairs."""
    def case(name, line, *patterns):
        return Case(f"use: {name}", ["sh", "-c", f"{line}; echo status $?"], 30, True, has_all(*patterns))
    yield case("a lab says what was moved", f"{hostnic} lab -- {faulted} completions",
               r"hostnic lab: RDMA: 10\.2 KB in 10 messages by 2 queue pairs\n", "status 0")
    yield case("enough", f"{hostnic} lab --require-rdma 10240 -- {faulted} completions", "status 0")
    yield case("too little", f"{hostnic} lab -q --require-rdma 10241 -- {faulted} completions",
               r"hostnic lab: --require-rdma 10241: only 10\.2 KB in 10 messages by 2 queue pairs\n", "status 97")
    yield case("none", f"{hostnic} lab --require-rdma 1 -- true", "no program has opened one of hostnic's devices", "status 97")
    yield case("a run within a lab", f"{hostnic} lab -- {hostnic} run --require-rdma 1M -- {faulted} completions",
               r"hostnic run: --require-rdma 1M: only 10\.2 KB", r"hostnic lab: RDMA: 10\.2 KB in 10 messages", "status 97")
    yield case("what fails is not used", f"{hostnic} lab --fault 'modify_qp to RTS errno EIO' --require-rdma 1 -- {faulted} completions",
               "--require-rdma 1: only 0 bytes in 0 messages by 2 queue pairs", "status 1\n")
    yield case("the command's own status goes first", f"{hostnic} lab --require-rdma 1 -- sh -c 'exit 5'", "status 5")
    yield case("a number that is none", f"{hostnic} lab --require-rdma much -- true", "use bytes, as 1, 64K", "status 2")


def fault_cases(maker):
    hostnic = maker.build / "hostnic"
    faulted = maker.apps / "tests/apps/hostnic-faulted"
    yield from of_objects(maker, hostnic, faulted)
    yield from of_skew(hostnic, faulted)
    yield from of_ends(hostnic, faulted)
    yield from of_api(hostnic, faulted)
    yield from of_prompt(hostnic, faulted)
    yield from of_docs(hostnic)
    yield from of_failover(maker, hostnic)
    yield from of_use(hostnic, faulted)
    yield from of_adapter(maker, hostnic)
    yield from of_connections(maker, hostnic)
