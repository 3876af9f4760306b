#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Ends a guest. See usage.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"

usage() {
    cat <<END
usage: stop.sh DIR NAME

Ends guest NAME and removes its tap, its folder DIR/run/NAME (with share/), and its network
namespace and bridge if start.sh made them. Nothing to stop is no error.
END
}
case ${1:-} in -h|--help) usage; exit 0 ;; esac
[ $# = 2 ] || { usage >&2; exit 2; }
need_root
need_tools ip ps
use_dir "$1"
use_guest "$2"
[ -e "$run" ] || { echo "stop.sh: there is no guest $name"; exit 0; }
end_guest
echo "guest $name: stopped"
