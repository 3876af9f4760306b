#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs labs with --summary and reads the files as CI systems do:

  summary_checks.py lab HOSTNIC PORT MISTAKES      packets lost on purpose, as JSON and as JUnit; a command that fails
  summary_checks.py hosts HOSTNIC PORT MISTAKES    in a lab with hosts, over UDP and on the wire
"""

import json
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from pathlib import Path

PAIR = """hostnic run --device hnic0 -- ib_send_bw -F -n 1000 -s 4096 -p {port} >/dev/null &
hostnic run --device hnic1 -- ib_send_bw -F -n 1000 -s 4096 -p {port} 127.0.0.1 >/dev/null; wait"""
HOSTS = """hostnic on 1 -- ib_send_bw -F -n 1000 -s 4096 -p {port} >/dev/null &
for i in 1 2 3 4 5 6 7 8; do
  hostnic on 2 -- ib_send_bw -F -n 1000 -s 4096 -p {port} host1 >/dev/null && break; sleep 0.5
done; wait"""


def lab(hostnic, file, *words):
    """Exit status and standard error."""
    done = subprocess.run([hostnic, "lab", "--summary", file, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, check=False)
    return done.returncode, done.stderr


def junit(file):
    """Of each test case: None, or what is the matter. And the properties."""
    suite = xml.parse(file).getroot().find("testsuite")
    cases = {}
    for case in suite.findall("testcase"):
        bad = case.find("failure")
        skipped = case.find("skipped")
        cases[case.get("name")] = bad.get("message") if bad is not None else \
            "skipped: " + skipped.get("message") if skipped is not None else None
    assert int(suite.get("tests")) == len(cases)
    assert int(suite.get("failures")) == len(suite.findall("testcase/failure"))
    return cases, {each.get("name"): int(each.get("value")) for each in suite.iter("property")}


def check_lab(hostnic, port, directory, mistakes):
    file = directory / "summary.json"
    status, told = lab(hostnic, file, "--impair", "drop every 20 kind data", "--", "sh", "-c", PAIR.format(port=port))
    assert status == 0, told
    summary = json.loads(file.read_text(encoding="utf-8"))
    # The text says the same.
    text = re.search(r"hostnic lab: (\d+) packets; on purpose: (\d+) dropped; (\d+) sent again", told)
    assert text is not None, told
    assert [int(number) for number in text.groups()] == [
        summary[name] for name in ("packets", "impaired_dropped_packets", "retransmitted_packets")], (summary, told)
    assert summary["impaired_dropped_packets"] >= 40 and summary["impaired"] and not summary["impairment_hit_nothing"]
    assert summary["exit_code"] == 0 and summary["all_answered"] and summary["bad_queue_pairs"] == [], summary
    assert summary["command"].startswith("sh -c hostnic run") and summary["duration_ns"] > 0, summary
    nics = {nic["nic"]: nic["counters"] for nic in summary["nics"]}
    assert sorted(nics) == ["hnic0", "hnic1"], nics
    assert sum(counters["tx_packets"] for counters in nics.values()) == summary["packets"]
    file = directory / "summary.xml"
    status, told = lab(hostnic, file, "-q", "--loss", "1%", "--", "sh", "-c", "echo '<&>' >/dev/null; exit 7")
    assert status == 7 and told == "", told
    cases, numbers = junit(file)
    assert cases == {"command": "exit code 7", "requests": None, "hostnicd": None,
                     "impairments": "skipped: the impairment hit nothing"}, cases
    assert numbers["packets"] == 0, numbers
    # A request that is refused, then a hostnicd that has ended before the command.
    status, told = lab(hostnic, file, "--", mistakes, "beyond-region")
    cases, numbers = junit(file)
    assert cases["requests"] == f"{numbers['requests_refused']} requests refused" != "0 requests refused", cases
    assert "had refused a WRITE" in xml.parse(file).getroot().find("testsuite/testcase/failure").text
    lab(hostnic, file, "--", "sh", "-c", "hostnic ctl quit; sleep 1")
    assert junit(file)[0]["hostnicd"] == "it ended before the command, or did not answer", junit(file)
    print("summaries of a lab are right")


def check_hosts(hostnic, port, directory, _mistakes):
    for way, names in (("udp", [("host1", "hnic0"), ("host2", "hnic0")]), ("wire", [("", "host1"), ("", "host2")])):
        file = directory / f"{way}.json"
        status, told = lab(hostnic, file, "--hosts", "2", "--port", way, "--loss", "1%", "--",
                           "sh", "-c", HOSTS.format(port=port))
        assert status == 0, told
        summary = json.loads(file.read_text(encoding="utf-8"))
        assert sorted((nic["host"], nic["nic"]) for nic in summary["nics"]) == names, summary
        assert summary["packets"] > 1000 and summary["impaired_dropped_packets"] > 0 and summary["all_answered"], summary
        assert f"hostnic lab: {summary['packets']} packets; on purpose: " in told, told
    print("summaries of hosts are right")


def main():
    what, hostnic, port, mistakes = sys.argv[1:]
    with tempfile.TemporaryDirectory() as directory:
        {"lab": check_lab, "hosts": check_hosts}[what](hostnic, port, Path(directory), mistakes)


if __name__ == "__main__":
    main()
