#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes a header of a text file: embed.py INPUT OUTPUT NAME."""

import sys
from pathlib import Path


def main():
    text = Path(sys.argv[1]).read_text(encoding="utf-8")
    # A literal of its own for each line: compilers limit the length of one, not of their sum.
    lines = "\n".join(f'    R"~~~({line})~~~"' for line in text.splitlines(keepends=True))
    Path(sys.argv[2]).write_text(
        "// SPDX-License-Identifier: BSD-3-Clause\n// Made by embed.py.\n#pragma once\n\n#include <string_view>\n\n"
        f"namespace hostnic::cli {{\n\ninline constexpr std::string_view {sys.argv[3]} =\n{lines};\n\n"
        "}  // namespace hostnic::cli\n", encoding="utf-8")


main()
