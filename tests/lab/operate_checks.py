#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Looks at what hostnic tells operators, in a lab or beside a hostnicd of its own:

  operate_checks.py json HOSTNIC                in a lab: every `show` as JSON says what its text says
  operate_checks.py metrics HOSTNIC             in a lab: metrics are well-formed and agree with the counters
  operate_checks.py top HOSTNIC                 in a lab: as plain text, and on a terminal
  operate_checks.py scrape HOSTNICD HOSTNIC     by HTTP, and what else is asked for there
  operate_checks.py errors HOSTNICD HOSTNIC     the list of errors survives a restart
  operate_checks.py report HOSTNIC SEED         a page's data agrees with the counters, whose lab's seed is known
  operate_checks.py browser HOSTNIC             the page in headless chromium (--screenshots DIRECTORY)
"""

import collections
import contextlib
import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
import urllib.error
import urllib.request
from pathlib import Path

import openmetrics
from harness import may_leak

SHOWS = ["nic", "qp", "peers", "client", "cm", "counters", "impair", "dead", "errors"]
LOST, AGAIN, REFUSED, DUPLICATE, OUT_OF_ORDER = 1, 2, 4, 8, 16
# A drop in front of everything that depends on time: which packets it hits is the seed's business alone.
KNOWN = "drop nth 5; drop nth 40; duplicate nth 60"


def run(*command, **more):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, **more)
    assert done.returncode == 0, f"{command}: {done.returncode}: {done.stderr}"
    return done.stdout


def ctl(hostnic, command, *options):
    return run(hostnic, "ctl", *options, command)


# ---- json

def numbers_in(line):
    """Pairs of a word and the number behind it: `bytes 17`."""
    return {name: int(value) for name, value in re.findall(r"([a-z-]+) (\d+)(?= |$)", line)}


def check_json(hostnic):
    for show in SHOWS:
        answer = json.loads(ctl(hostnic, f"show {show}", "--json"))
        assert isinstance(answer, list), show
        assert json.loads(ctl(hostnic, f"show {show} --json")) is not None
    qps, lines = json.loads(ctl(hostnic, "show qp", "--json")), ctl(hostnic, "show qp").splitlines()
    assert len(qps) == len(lines) >= 2, f"{len(qps)} queue pairs as JSON, as text: {lines}"
    for qp, line in zip(qps, lines):
        words = numbers_in(line)
        assert f"{qp['nic']} qp {qp['qpn']:#08x} {qp['type']} {qp['state']} " in line, line
        for name, word in [("mtu_bytes", "mtu"), ("outstanding_packets", "outstanding"), ("request_bytes", "bytes"),
                           ("retransmitted_packets", "repeated"), ("next_psn", "tx-next"), ("expected_psn", "rx-base")]:
            assert qp[name] == words[word], f"{name} is {qp[name]}: {line}"
    for qp in qps:
        assert sum(qp["retransmitted_by_cause"].values()) == qp["retransmitted_packets"], qp
    # 10 SENDs of 4096 bytes went one way, and were answered.
    assert sorted(qp["request_bytes"] for qp in qps) == [0, 40960], qps
    assert [qp["heard"] for qp in qps if qp["request_bytes"]] == [True], qps
    assert all(qp["outstanding_packets"] == 0 for qp in qps), qps
    counters = json.loads(ctl(hostnic, "show counters", "--json"))
    text = {tuple(line.split()[:2]): int(line.split()[2]) for line in ctl(hostnic, "show counters all").splitlines()}
    for nic in counters:
        for counter in nic["counters"]:
            assert text[nic["nic"], counter["name"]] == counter["value"], counter
            assert counter["help"], counter
    helped = ctl(hostnic, "show counters hnic0 help")
    assert re.search(r"^hnic0 tx_packets \d+  # packets handed to the port$", helped, re.MULTILINE), helped
    refused = subprocess.run([hostnic, "ctl", "--json", "help"], capture_output=True, text=True, check=False)
    assert refused.returncode != 0 and "`help` has no --json" in refused.stderr, refused
    print("json agrees with text")


# ---- metrics

def family(samples, name, **labels):
    found = [value for key, value in samples[name].items() if labels.items() <= dict(key).items()]
    assert found, f"no {name}{labels}"
    return sum(found)


def check_samples(samples, counters):
    for nic in counters:
        values = {counter["name"]: counter["value"] for counter in nic["counters"]}
        device = nic["nic"]
        for name, value in [
                ("node_infiniband_port_data_transmitted_bytes_total", values["tx_bytes"]),
                ("node_infiniband_port_data_received_bytes_total", values["rx_bytes"]),
                ("node_infiniband_port_packets_transmitted_total", values["tx_packets"]),
                ("node_infiniband_port_packets_received_total", values["rx_packets"]),
                ("node_infiniband_link_downed_total", values["link_downed"]),
                ("hostnic_retransmitted_packets_total", values["retransmitted_packets"]),
                ("hostnic_acks_received_total", values["acks_received"])]:
            assert family(samples, name, device=device) == value, f"{name} of {device}, not {value}"
        assert family(samples, "node_infiniband_state_id", device=device, port="1") == 4
        assert family(samples, "hostnic_retransmissions_total", device=device) == values["retransmitted_packets"]
        for reason in ("rx_icrc_error", "rx_unknown_qp", "out_of_window"):
            assert family(samples, "hostnic_dropped_total", device=device, reason=reason) == values[reason]
        for name, value in values.items():
            places = [f"hostnic_{name}_total" in samples,
                      any(("reason", name) in key for key in samples["hostnic_dropped_total"]),
                      any(("event", name) in key for key in samples["hostnic_recovery_events_total"]),
                      any(("cause", name.removeprefix("repeated_")) in key
                          for key in samples["hostnic_retransmissions_total"] if name.startswith("repeated_"))]
            assert sum(places) == 1, f"counter {name} is in {sum(places)} families"


def check_metrics(hostnic):
    metrics = run(hostnic, "metrics")
    samples = openmetrics.read(metrics, is_open=True)
    check_samples(samples, json.loads(ctl(hostnic, "show counters", "--json")))
    old = openmetrics.read(run(hostnic, "metrics", "--prometheus"), is_open=False)
    assert set(old) == set(samples), set(old) ^ set(samples)
    qps = json.loads(ctl(hostnic, "show qp", "--json"))
    for qp in qps:
        where = {"device": qp["nic"], "qp": f"{qp['qpn']:#x}"}
        assert family(samples, "hostnic_qp_request_bytes_total", **where) == qp["request_bytes"]
        assert family(samples, "hostnic_qp_info", **where, program=qp["program"], state=qp["state"]) == 1
    assert sum(qp["request_bytes"] for qp in qps) == 40960, qps
    assert family(samples, "hostnic_client_queue_pairs") == len(qps)
    assert family(samples, "hostnic_lcore_turns_total", lcore="0") > 0
    print(f"metrics are well-formed: {sum(map(len, samples.values()))} samples")


# ---- a hostnicd of one's own

def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def daemon(hostnicd, directory, config):
    """Its socket; it has ended behind it."""
    path, ready = Path(directory) / "hostnicd.sock", os.pipe()
    (Path(directory) / "hostnicd.toml").write_text(config)
    with open(Path(directory) / "log", "a", encoding="utf-8") as log:
        process = subprocess.Popen([hostnicd, "--", "--no-prompt", "--socket", path, "--ready-fd", str(ready[1]), "--config",
                                    Path(directory) / "hostnicd.toml"], pass_fds=ready[1:], stdout=log, stderr=log)
    os.close(ready[1])
    try:
        assert os.read(ready[0], 1) == b"R", (Path(directory) / "log").read_text()
        yield path
    finally:
        os.close(ready[0])
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, (Path(directory) / "log").read_text()


def fetched(port, path="/metrics", **headers):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=20) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def check_scrape(hostnicd, hostnic):
    port = free_port()
    with tempfile.TemporaryDirectory() as directory:
        with daemon(hostnicd, directory, f"[hostnicd]\nmetrics_port = {port}\n") as path:
            kind, text = fetched(port)
            assert kind.startswith("text/plain; version=0.0.4"), kind
            samples = openmetrics.read(text, is_open=False)
            counters = json.loads(run(hostnic, "ctl", "--socket", path, "--json", "show counters"))
            check_samples(samples, counters)
            kind, text = fetched(port, Accept="application/openmetrics-text; version=1.0.0")
            assert kind.startswith("application/openmetrics-text; version=1.0.0"), kind
            assert set(openmetrics.read(text, is_open=True)) == set(samples)
            for path_, status in [("/secret", 404), ("/metricsx", 404)]:
                try:
                    fetched(port, path_)
                    raise AssertionError(f"{path_} was answered")
                except urllib.error.HTTPError as error:
                    assert error.code == status, error
            listening = Path("/proc/net/tcp").read_text(encoding="ascii")
            assert f" 0100007F:{port:04X} 00000000:0000 0A" in listening, "it listens elsewhere than on 127.0.0.1"
        with daemon(hostnicd, directory, "[hostnicd]\n"):
            try:
                fetched(port)
                raise AssertionError("metrics are served without being asked for")
            except urllib.error.URLError:
                pass
    print("metrics are served")


def check_errors(hostnicd, hostnic, mistakes):
    """A program whose rkey is wrong, twice, and a restart."""
    with tempfile.TemporaryDirectory() as directory:
        config = f"[hostnicd]\nerrors_directory = '{directory}'\n"

        def entries(path):
            return json.loads(run(hostnic, "errors", "--socket", path, "--json"))

        def mistake(path):
            subprocess.run([hostnic, "run", "--socket", path, "--", mistakes, "beyond-region"], check=False, timeout=60,
                           env={**os.environ, "HOSTNIC_LOG": "info"}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def with_words(path, words):
            return [entry for entry in entries(path) if words in entry["example"]]

        reason = "ends 1 byte before the request's end"
        with daemon(hostnicd, directory, config) as path:
            assert run(hostnic, "errors", "--socket", path) == "no errors\n"
            mistake(path)
            # The library has asked; hostnicd has seen the NAK, too, while the program was there or afterwards.
            first = [entry for entry in with_words(path, reason) if entry["example"].startswith("hnic0 ")]
            assert len(first) == 1 and first[0]["count"] == 1, entries(path)
            assert re.search(r"^hnic0 QP 0x\w+ of hostnic-mistakes \(pid \d+\): region 0x\w+\+\d+ \(rkey 0x\w+\) ends ",
                             first[0]["example"]), first
            mistake(path)
            twice = [entry for entry in entries(path) if entry["kind"] == first[0]["kind"]]
            assert len(twice) == 1 and twice[0]["count"] == 2, entries(path)
            for _ in range(100):
                seen = with_words(path, " has refused a WRITE of its peer: ")
                if sum(entry["count"] for entry in seen) == 2:
                    break
                time.sleep(0.1)
            assert sum(entry["count"] for entry in seen) == 2, entries(path)
        with daemon(hostnicd, directory, config) as path:
            kept = [entry for entry in entries(path) if entry["kind"] == first[0]["kind"]]
            assert len(kept) == 1 and kept[0] == twice[0], (kept, twice)
            text = run(hostnic, "errors", "--socket", path)
            assert re.search(r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ 2 times, first 20.*: hnic\d QP ", text, re.MULTILINE), text
        with daemon(hostnicd, directory, "[hostnicd]\n") as path:
            assert run(hostnic, "errors", "--socket", path) == "no errors\n"
    print("errors survive a restart, each kind once")


# ---- the page

def data_of(page):
    """What a page shows, as its script reads it."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL).group(1))


def report_of(hostnic, directory, seed, impair, *command, port=18811):
    """A page of a lab in which a server and a client ran, and the NICs' counters."""
    pair = Path(__file__).resolve().parent / "pair.py"
    page, counters = Path(directory) / "page.html", Path(directory) / "counters.json"
    sides = [[hostnic, "run", "--device", f"hnic{side}", "--", *may_leak([*command, "-p", str(port)]),
              *(["127.0.0.1"] if side else [])] for side in (0, 1)]
    words = [sys.executable, str(pair), "--port", str(port), *map(str, sides[0]), "----", *map(str, sides[1])]
    script = f"\"$@\" && {hostnic} ctl --json show counters > {counters}"
    run(hostnic, "lab", "-q", "--seed", seed, "--impair", impair, "--report", page, "--trace-points",
        Path(directory) / "trace", "--", "sh", "-c", script, "sh", *words)
    return page, json.loads(counters.read_text())


def check_report(hostnic, seed):
    with tempfile.TemporaryDirectory() as directory:
        page, counters = report_of(hostnic, directory, seed, KNOWN, "ib_send_bw", "-F", "-n", "40", "-s", "16384")
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"(src|href|url)\s*[=(]\s*[\"']?(https?:)?//", text), "the page asks for something else"
        data = data_of(text)
        total = collections.Counter()
        for nic in counters:
            total.update({counter["name"]: counter["value"] for counter in nic["counters"]})
            for side in nic["impairments"].values():
                total.update({f"impair_{name}": value for name, value in side.items()})
        arrows = [dict(zip(("from", "to", "opcode", "psn", "qp", "source", "bytes", "sent", "received", "flags", "text"), arrow))
                  for arrow in data["arrows"]]
        assert len(arrows) == data["arrows_of"] and data["every"] == 1, "all packets are there"
        lost = [arrow for arrow in arrows if arrow["flags"] & LOST]
        # The rules hit the fifth and the fortieth packet of data that arrive. ACKs may be too few to be hit on an idle
        # machine, where one answers many packets.
        assert data["lost"] == len(lost) == total["impair_dropped"] >= 2, (data["lost"], len(lost), total["impair_dropped"])
        assert {data["texts"][arrow["text"]] for arrow in lost} == {
            "dropped by rx impairment rule 1", "dropped by rx impairment rule 2"}, lost
        again = sum(1 for arrow in arrows if arrow["flags"] & AGAIN)
        assert data["retransmitted"] == again == total["retransmitted_packets"], (again, total)
        assert sum(cause["count"] for cause in data["causes"]) == again, data["causes"]
        sent = sum(1 for arrow in arrows if not arrow["flags"] & 32)
        assert sent == total["tx_packets"], (sent, total["tx_packets"])
        sends = [verb for verb in data["verbs"] if verb["verb"] == "SEND"]
        assert len(sends) == 1 and (sends[0]["messages"], sends[0]["bytes"]) == (40, 40 * 16384), data["verbs"]
        assert sends[0]["measured"] == 40 and 0 < sends[0]["p50_ns"] <= sends[0]["p99_ns"] <= sends[0]["max_ns"], sends
        assert sum(data["over_time"]["good_bytes"]) == 40 * 16384, data["over_time"]
        assert sum(data["over_time"]["lost"]) == len(lost), data["over_time"]
        assert all(arrow["received"] >= arrow["sent"] for arrow in arrows if not arrow["flags"] & (LOST | 64)), "backwards"
        times = data["times"]
        assert times["messages"] == times["complete"] == 40 and len(times["slowest"]) == 10, times
        assert [each["to"] for each in times["segments"]][-1] == "polled", times
        programs = {(qp["program"], qp["nic"]) for qp in data["programs"]}
        assert {("ib_send_bw", "hnic0"), ("ib_send_bw", "hnic1")} <= programs, programs
        print(f"the page agrees with the counters: {len(arrows)} packets, {len(lost)} lost, {again} sent again")


# ---- top

def check_top(hostnic):
    plain = run(hostnic, "top")
    assert re.search(r"^NIC +link +sent +received .*last minute$", plain, re.MULTILINE), plain
    assert re.search(r"^hnic1 +up ", plain, re.MULTILINE), plain
    assert re.search(r"^hnic1 +0x\w+ +RC +RTS .* ib_send_bw \(\d+\) to 127\.77\.0\.1$", plain, re.MULTILINE), plain
    assert "\x1b" not in plain, "escapes where there is no terminal"
    # On a terminal: keys sort, filter and end it, and it leaves the terminal as it was.
    shown = typed([hostnic, "top"], [("queue pairs, by bytes", b"s"), ("repeated", b"/zzz\n"), ("no such", b"\x1b"),
                                     ("ib_send_bw", b"p"), ("paused", b"q")])
    assert "q quit" in shown and shown.rfind("\x1b[?1049l") > shown.rfind("\x1b[?1049h"), shown[-200:]
    print("top is fine")


def typed(command, turns, seconds=60):
    """Runs a command on a terminal of 100 columns; of each turn the text is waited for, then the keys are typed. All that
    it has written; it has to end by itself."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm"
        os.environ["LC_ALL"] = "C.UTF-8"
        os.execv(command[0], [str(word) for word in command])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    written, since, until = "", 0, time.monotonic() + seconds
    turns = list(turns)
    try:
        while time.monotonic() < until:
            if select.select([terminal], [], [], 0.1)[0]:
                try:
                    part = os.read(terminal, 65536)
                except OSError:  # what a terminal says whose other end is closed
                    part = b""
                if not part:
                    break
                written += part.decode("utf-8", "replace")
            # ncurses writes what has changed only: positions and attributes are between the words.
            plain = re.sub(r"\x1b(\[[0-9;?]*[a-zA-Z]|[()][A-Z0-9]|[=>])", "", written[since:])
            if turns and turns[0][0] in plain:
                since = len(written)
                os.write(terminal, turns.pop(0)[1])
        assert not turns, f"{turns[0][0]!r} was not shown: {written[-2000:]!r}"
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                pid = 0
                assert os.waitstatus_to_exitcode(status) == 0, written[-500:]
                return written
            time.sleep(0.05)
        raise AssertionError(f"{command} does not end")
    finally:
        os.close(terminal)
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


# ---- in a browser

PROBE = """<script>
window.addEventListener("error", event => { document.title = "ERROR " + event.message; });
window.addEventListener("load", () => {
  const say = (name, value) => document.body.append(Object.assign(document.createElement("pre"),
    {className: "probe", textContent: name + "=" + JSON.stringify(value)}));
  say("too_wide", document.documentElement.scrollWidth - document.documentElement.clientWidth);
  const began = performance.now();
  report.whole();
  report.draw();
  say("whole_ms", Math.round(performance.now() - began));
  const drawn = report.drawn().length;
  say("drawn", drawn);
  const lost = report.data.arrows.findIndex(a => a[9] & 1);
  say("lost", lost >= 0 ? (report.show(lost), document.getElementById("selected").textContent) : null);
  const psn = report.data.arrows[Math.floor(report.data.arrows.length / 2)][3];
  document.getElementById("find").value = String(psn);
  report.find(true);
  report.draw();
  say("found", report.view.found.size);
  const steps = performance.now();
  for (let i = 0; i < 20; ++i) { report.zoom(i % 2 ? 1.4 : 1 / 1.5); report.draw(); }
  say("zoom_ms", Math.round((performance.now() - steps) / 20));
  say("title", document.title);
});
</script>
"""


def chromium(directory, page, *options):
    """What chromium prints; its complaints are errors."""
    done = subprocess.run(["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                           "--disable-dev-shm-usage", f"--user-data-dir={directory}/profile", "--enable-logging=stderr", "--v=0",
                           "--virtual-time-budget=20000", *options, f"file://{page}"], capture_output=True, text=True, check=False,
                          timeout=300)
    assert done.returncode == 0, done.stderr
    console = re.findall(r"CONSOLE.*", done.stderr)
    assert not console, console
    return done.stdout


def probed(directory, page):
    text = page.read_text(encoding="utf-8").replace("</body>", PROBE + "</body>")
    probe = Path(directory) / "probe.html"
    probe.write_text(text, encoding="utf-8")
    dom = chromium(directory, probe, "--dump-dom", "--window-size=1280,900")
    found = dict(re.findall(r'<pre class="probe">(\w+)=(.*?)</pre>', dom))
    return {name: json.loads(value.replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&")) for name, value in found.items()}


def many_packets(page, count):
    """The page with so many packets."""
    text = page.read_text(encoding="utf-8")
    data = data_of(text)
    some = data["arrows"]
    span = data["duration_ns"] + 1
    data["arrows"] = [[*arrow[:7], arrow[7] + span * turn, arrow[8] and arrow[8] + span * turn, *arrow[9:]]
                      for turn in range(count // len(some) + 1) for arrow in some][:count]
    data["arrows_of"] = len(data["arrows"])
    data["duration_ns"] = data["arrows"][-1][7] + 1000
    whole = json.dumps(data).replace("<", "\\u003c")
    start = text.index('id="data">') + len('id="data">')
    made = page.with_name("many.html")
    made.write_text(text[:start] + whole + text[text.index("</script>", start):], encoding="utf-8")
    return made


def check_browser(hostnic, screenshots=None):
    with tempfile.TemporaryDirectory() as directory:
        page, _ = report_of(hostnic, directory, "7", "drop 2%; duplicate nth 60; reorder 2% distance 4", "ib_send_bw", "-F", "-n", "100",
                            "-s", "16384")
        found = probed(directory, page)
        assert not found["title"].startswith("ERROR"), found
        assert found["lost"] and "; lost; dropped by rx impairment rule 1" in found["lost"], found
        assert found["drawn"] > 10 and found["found"] >= 1 and found["too_wide"] <= 0, found
        many = probed(directory, many_packets(page, 100_000))
        assert not many["title"].startswith("ERROR") and many["drawn"] > 100, many
        print(f"in a browser: {found}; with 100,000 packets: {many}")
        for name, options in (("light", ()), ("dark", ("--force-dark-mode", "--blink-settings=preferredColorScheme=0"))):
            if screenshots:
                chromium(directory, page, f"--screenshot={screenshots}/report-{name}.png", "--window-size=1280,2900", *options)
        if screenshots:
            chromium(directory, page, f"--print-to-pdf={screenshots}/report.pdf")


def main():
    what, *words = sys.argv[1:]
    if what == "browser" and shutil.which("chromium") is None:
        sys.exit("chromium is not installed")
    words = [word for word in words if word != "--screenshots"]
    {"json": check_json, "metrics": check_metrics, "scrape": check_scrape, "errors": check_errors, "report": check_report, "top": check_top,
     "browser": check_browser}[what](*words)


if __name__ == "__main__":
    main()
