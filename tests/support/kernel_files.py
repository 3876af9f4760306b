# SPDX-License-Identifier: BSD-3-Clause
"""What guests' kernels begin with: modules in their order, and a first file tree."""

import re


def with_dependencies(tree, names):
    """The files of modules, each behind those that it needs; what is built in has none."""
    files = {path.stem.replace("-", "_"): path for path in tree.rglob("*.ko")}
    ordered = []

    def add(name):
        path = files.get(name.replace("-", "_"))
        if path is None or path in ordered:
            return
        needed = re.search(rb"\0depends=([^\0]*)\0", path.read_bytes())
        for other in needed.group(1).decode().split(",") if needed else []:
            add(other)
        ordered.append(path)

    for name in names:
        add(name)
    return ordered


class Archive:
    """A file tree as kernels unpack it (cpio, newc)."""

    DIRECTORY_MODE, PROGRAM_MODE, FILE_MODE = 0o40755, 0o100755, 0o100644

    def __init__(self):
        self.bytes, self.count = bytearray(), 0

    def add(self, name, mode, data=b""):
        self.count += 1
        path = name.encode() + b"\0"
        fields = (self.count, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0)
        self.bytes += b"070701" + b"".join(b"%08X" % field for field in fields) + path
        for part in (b"", data):
            self.bytes += part + b"\0" * (-(len(self.bytes) + len(part)) % 4)

    def end(self):
        self.add("TRAILER!!!", 0)
        return self.bytes
