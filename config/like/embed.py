#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes a header of the personalities that are shipped: embed.py OUTPUT FILE..."""

import sys
from pathlib import Path


def main():
    entries = []
    for name in sys.argv[2:]:
        path = Path(name)
        lines = "\n".join(f'     R"~~~({line})~~~"'
                          for line in path.read_text(encoding="utf-8").splitlines(keepends=True))
        entries.append(f'    {{"{path.stem}",\n{lines}}},')
    text = "\n".join(entries)
    Path(sys.argv[1]).write_text(
        "// SPDX-License-Identifier: BSD-3-Clause\n// Made by embed.py.\n#pragma once\n\n"
        '#include "config/personality.h"\n\nnamespace hostnic::config {\n\n'
        f"inline constexpr ShippedPersonality kShipped[] = {{\n{text}\n}};\n\n"
        "}  // namespace hostnic::config\n", encoding="utf-8")


main()
