#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Builds the Debian package from a copy of the checkout's files, committed or not, and puts it into
# the directory $1. `--check`: looks at the result with lintian.
set -euo pipefail
top=$(dirname "$(dirname "$(readlink -f "$0")")")
result=$(realpath -m "$1")
check=${2:-}

work=$(mktemp -d "${TMPDIR:-/tmp}/hostnic-package-XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/hostnic"
cd "$top"
# Where there is no git, in an unpacked archive, everything but what builds leave behind.
if files=$(git ls-files --cached --others --exclude-standard 2>/dev/null) && [[ -n $files ]]; then
  while IFS= read -r file; do [[ -e $file ]] && printf '%s\n' "$file"; done <<<"$files" |
    tar -cf - --no-recursion -T - | tar -xf - -C "$work/hostnic"
else
  tar -cf - --exclude=./.git --exclude='./build*' . | tar -xf - -C "$work/hostnic"
fi
(cd "$work/hostnic" && dpkg-buildpackage --build=binary --unsigned-source --unsigned-changes)
if [[ $check == --check ]]; then
  lintian --fail-on error --tag-display-limit 0 "$work"/*.changes
fi
mkdir -p "$result"
rm -f "$result"/hostnic*
mv "$work"/hostnic*.deb "$work"/hostnic*.buildinfo "$work"/hostnic*.changes "$result"
ls -l "$result"
