#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Packs a bundle (./run bundle) as a wheel for pip: build_wheel.py BUNDLE.tar.gz DIRECTORY. In it are the bundle as it
is, and packaging/wheel, whose console scripts `hostnic` and `hostnicd` become the bundle's programs. A wheel is a zip
file with four small texts (packaging.python.org, "Binary distribution format"); nothing but Python is needed here."""

import argparse
import base64
import hashlib
import re
import sys
import tarfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
NAME = re.compile(r"hostnic-([\d.]+)-x86_64$")
# The bundle's promise is glibc 2.31, which is what this platform's name says.
TAG = "py3-none-manylinux_2_31_x86_64"
METADATA = """Metadata-Version: 2.1
Name: hostnic
Version: {version}
Summary: RDMA NICs in software for tests: no root, no kernel module, no adapter
License: BSD-3-Clause
Requires-Python: >=3.7
"""
WHEEL = """Wheel-Version: 1.0
Generator: hostnic
Root-Is-Purelib: false
Tag: {tag}
"""
ENTRY_POINTS = """[console_scripts]
hostnic = hostnic:hostnic
hostnicd = hostnic:hostnicd
"""
# The same bundle makes the same wheel.
DATE = (1980, 1, 1, 0, 0, 0)
REGULAR_FILE = 0o100000


class Wheel:
    """A zip file that notes what is put into it."""

    def __init__(self, path):
        self.file = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
        self.record = []

    def add(self, name, data, mode=0o644):
        info = zipfile.ZipInfo(name, DATE)
        info.compress_type = zipfile.ZIP_DEFLATED
        info.external_attr = (REGULAR_FILE | mode) << 16
        self.file.writestr(info, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(data)}")

    def close(self, information):
        name = f"{information}/RECORD"
        self.add(name, ("\n".join([*self.record, f"{name},,"]) + "\n").encode())
        self.file.close()


def add_bundle(wheel, bundle):
    """Its files; links become copies, since zip files of wheels have none. Returns the version."""
    version = None
    with tarfile.open(bundle) as archive:
        for member in archive.getmembers():
            top, _, inside = member.name.partition("/")
            found = NAME.match(top)
            if found is None:
                sys.exit(f"{bundle}: {member.name} is not below hostnic-VERSION-x86_64/: make it with ./run bundle")
            version = found.group(1)
            # extractfile() follows links inside of the archive.
            if inside and not member.isdir() and (data := archive.extractfile(member)) is not None:
                wheel.add(f"hostnic/bundle/{inside}", data.read(), 0o755 if member.mode & 0o100 else 0o644)
    if version is None:
        sys.exit(f"{bundle}: it is empty")
    return version


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("directory", type=Path)
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    unfinished = options.directory / "hostnic.whl.new"
    wheel = Wheel(unfinished)
    wheel.add("hostnic/__init__.py", (HERE / "wheel" / "__init__.py").read_bytes())
    version = add_bundle(wheel, options.bundle)
    information = f"hostnic-{version}.dist-info"
    wheel.add(f"{information}/METADATA", METADATA.format(version=version).encode())
    wheel.add(f"{information}/WHEEL", WHEEL.format(tag=TAG).encode())
    wheel.add(f"{information}/entry_points.txt", ENTRY_POINTS.encode())
    wheel.add(f"{information}/LICENSE", (HERE.parent / "LICENSE").read_bytes())
    wheel.close(information)
    path = options.directory / f"hostnic-{version}-{TAG}.whl"
    unfinished.replace(path)
    print(f"{path}: {path.stat().st_size >> 10} KiB")


if __name__ == "__main__":
    main()
