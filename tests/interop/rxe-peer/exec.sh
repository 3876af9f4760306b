#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs a command in a guest. See usage.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"

usage() {
    cat <<END
usage: exec.sh [--timeout SECONDS] DIR NAME 'command'

Runs 'command' with bash as root in guest NAME, without standard input, and returns its standard
output, standard error and exit status once it has ended. Several may run at the same time.
--timeout (default 120): the guest ends the command after that; the exit status is then 124.
Exit status 125: the guest is not running, died, or did not answer.
A command that should go on by itself: 'nohup COMMAND > /tmp/log 2>&1 &'.
END
}
bad_usage() { echo "exec.sh: $*" >&2; usage >&2; exit 2; }
lost() { echo "exec.sh: $*" >&2; exit 125; }

limit_s=120
case ${1:-} in
    -h|--help) usage; exit 0 ;;
    --timeout) [ $# -ge 2 ] || bad_usage "--timeout needs a value"; limit_s=$2; shift 2 ;;
esac
[[ $limit_s =~ ^[0-9]+$ ]] && [ "$limit_s" -gt 0 ] || bad_usage "--timeout needs a number of seconds"
[ $# = 3 ] || bad_usage "expected DIR, NAME and one command"
use_dir "$1"
use_guest "$2"
guest_pid > /dev/null || lost "guest $name is not running"

cmd=$run/share/cmd id=$$.$RANDOM
cleanup() { rm -f "$cmd/$id".*; }
trap cleanup EXIT
echo "$limit_s" > "$cmd/$id.limit"
printf '%s\n' "$3" > "$cmd/$id.new"
mv "$cmd/$id.new" "$cmd/$id.sh"
echo "$id" 1<> "$run/control"   # opened for both, which never blocks

deadline=$((SECONDS + limit_s + 15)) turn=0
until read -r status 2> /dev/null < "$cmd/$id.rc"; do   # fails until there is a whole line
    if [ $((++turn % 25)) = 0 ] && ! guest_pid > /dev/null; then
        tail -n 5 "$run/console.log" >&2 || true
        lost "guest $name died"
    fi
    [ "$SECONDS" -lt "$deadline" ] || lost "guest $name does not answer"
    sleep 0.02
done
cat "$cmd/$id.out"
cat "$cmd/$id.err" >&2
[ "$status" != 124 ] || echo "exec.sh: ended after $limit_s s" >&2
exit "$status"
