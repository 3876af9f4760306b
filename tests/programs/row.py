# SPDX-License-Identifier: BSD-3-Clause
"""A row of the table."""

import dataclasses

SERVER = "127.77.0.1"
CLIENT = "127.77.0.2"
LOST_ENDS_IT = "a lost packet ends it, as on an adapter: clean networks only"


@dataclasses.dataclass
class Row:
    """Shell lines run under `hostnic run` on hnic0 and hnic1, in an empty directory; $PROGRAMS is where the table's
    own programs are, {port} a TCP port that is free. A row without a server sees all NICs."""

    group: str
    name: str
    packages: list
    client: str
    server: str = ""
    # Patterns, all of which the output matches. In a row that fails: what it says then.
    expect: tuple = ()
    # Counters, summed over the NICs, and what they must have reached.
    moves: dict = dataclasses.field(default_factory=dict)
    loses: bool = True
    # More words of `hostnic lab`.
    nics: list = dataclasses.field(default_factory=list)
    # Whether CI runs it.
    ci: bool = False
    # The server listens on {port} with TCP; else the client starts at once.
    listens: bool = True
    # The server is ended when the client is done.
    daemon: bool = False
    limit_s: int = 60
    # Whether words that report trouble fail the row.
    strict: bool = True
    # Why it does not work. It is run all the same, and has to fail, or may if that is a matter of timing. What
    # `expect` says comes before that, and always.
    fails: str = ""
    by_timing: bool = False
    # For the reader of the document.
    note: str = ""


def through(count, **others):
    """So many bytes of messages at least went through the NICs."""
    return {"tx_bytes": int(count), **others}
