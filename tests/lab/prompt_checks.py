#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Types at the prompt of `hostnic ctl` on a terminal of its own, and reads what it shows.

  prompt_checks.py HOSTNIC     in a lab
"""

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PATIENCE_S = 30
PROMPT = "hostnic> "


class Terminal:
    """A prompt behind a terminal. `seen` is what it has shown since the last expectation."""

    def __init__(self, hostnic, state):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="xterm", XDG_STATE_HOME=str(state), HOME=str(state))
            os.execv(hostnic, [hostnic, "ctl"])
        self.seen = ""

    def type(self, text):
        os.write(self.fd, text.encode())

    def expect(self, pattern):
        """Reads until it is there; what stands before it is forgotten."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", self.seen)
            found = re.search(pattern, plain)
            if found:
                self.seen = plain[found.end():]
                return found.group(0)
            assert time.monotonic() < deadline, f"no {pattern!r} in {plain!r}"
            if select.select([self.fd], [], [], 0.2)[0]:
                try:
                    self.seen += os.read(self.fd, 65536).decode(errors="replace")
                except OSError:
                    raise AssertionError(f"it ended: no {pattern!r} in {plain!r}") from None

    def end(self, text):
        """Types what ends it."""
        deadline = time.monotonic() + PATIENCE_S
        self.type(text)
        while time.monotonic() < deadline:
            if select.select([self.fd], [], [], 0.02)[0]:
                with contextlib.suppress(OSError):
                    self.seen += os.read(self.fd, 65536).decode(errors="replace")
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid != 0:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        raise AssertionError(f"it does not end: {self.seen!r}")


def check_typing(hostnic, state):
    terminal = Terminal(hostnic, state)
    terminal.expect("Ctrl-D leaves")
    terminal.expect(PROMPT)
    terminal.type("show nic hnic0\n")
    terminal.expect(r"\nhnic0 [^\n]*127\.77\.0\.1")
    terminal.expect(PROMPT)
    # Tab: a word, a NIC; where several fit they are shown, and what is typed stays.
    terminal.type("sh\tni\thnic1\n")
    terminal.expect(r"\nhnic1 [^\n]*127\.77\.0\.2")
    terminal.expect(PROMPT)
    terminal.type("show c\t")
    terminal.expect("client +cm +counters")
    terminal.type("m\n")
    terminal.expect(PROMPT)
    terminal.expect(PROMPT)
    # The line before, changed in its middle: ^A, Ctrl-F, and so on, are the editor's.
    terminal.type("show qp hnicX\n")
    terminal.expect('hostnic ctl: [^\n]*hnicX')
    terminal.expect(PROMPT)
    time.sleep(0.3)  # libedit sets the terminal's mode after the prompt: until then keys are the line discipline's
    terminal.type("\x1b[A\x7f1\n")
    terminal.expect(r"\nhnic1 qp ")  # the line itself is redrawn by the terminal's own means
    terminal.expect(PROMPT)
    # Ctrl-C forgets the line, and not the prompt.
    terminal.type("set impair all rx drop 100%\x03")
    terminal.expect(PROMPT)
    terminal.type("show impair hnic0\n")
    terminal.expect(r"hnic0[^\n]*none")
    terminal.expect(PROMPT)
    terminal.type("help\n")
    terminal.expect(r"watch \[SECONDS\] COMMAND")
    terminal.expect("SPEC:")
    terminal.expect(PROMPT)
    return terminal


def check_watching(terminal):
    terminal.type("watch 0.2 show nic hnic1\n")
    for _ in range(3):
        terminal.expect(r"show nic hnic1, every 0\.2 s; any key ends this\n\nhnic1 ")
    terminal.type("x")
    terminal.expect(PROMPT)
    terminal.type("watch 0.2 show nic\n")
    terminal.expect("every 0.2 s")
    terminal.type("\x03")
    terminal.expect(PROMPT)
    terminal.type("rates\n")
    terminal.expect(r"hnic0 tx_packets +\d+(\.\d)?/s\n")
    terminal.expect(PROMPT)
    terminal.type("watch 0.5 rates hnic1\n")
    for _ in range(2):
        terminal.expect(r"rates hnic1, every 0\.5 s[^\n]*\n\nhnic1 ")
    terminal.type("q")
    terminal.expect(PROMPT)
    assert terminal.end("\x04") == 0


def check_history(hostnic, state):
    terminal = Terminal(hostnic, state)
    terminal.expect(PROMPT)
    terminal.type("\x1b[A")
    terminal.expect("watch 0.5 rates hnic1")
    assert terminal.end("\x15exit\n") == 0
    file = state / "hostnic" / "history"
    assert file.stat().st_mode & 0o077 == 0, oct(file.stat().st_mode)


def check_script(hostnic):
    """Where standard input is no terminal: lines, no prompt, a status."""
    def run(text):
        done = subprocess.run([hostnic, "ctl"], input=text, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr
    status, out, told = run("# a note\nshow nic hnic0\n\nshow nic hnic1\n")
    assert status == 0 and told == "" and len(re.findall(r"^hnic[01] ", out, re.MULTILINE)) >= 2, (status, out, told)
    status, out, told = run("show nonsense\nshow nic hnic0\nexit\nshow nic hnic1\n")
    assert status == 1 and "incomplete or unknown" in told and "hnic0 " in out and "\nhnic1 " not in out, (out, told)
    nobody = subprocess.run([hostnic, "ctl", "--socket", "/nonexistent", "help"], capture_output=True, text=True, check=False)
    assert nobody.returncode == 0 and "show counters" in nobody.stdout and "SPEC:" in nobody.stdout, nobody


def main():
    hostnic = sys.argv[1]
    with tempfile.TemporaryDirectory() as directory:
        state = Path(directory)
        check_watching(check_typing(hostnic, state))
        check_history(hostnic, state)
    check_script(hostnic)
    print("the prompt is fine")


if __name__ == "__main__":
    main()
