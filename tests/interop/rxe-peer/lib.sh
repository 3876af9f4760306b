# SPDX-License-Identifier: BSD-3-Clause
# Sourced by the scripts of this folder: messages, checks, and what is where under DIR.
#
#   DIR/linux, rootfs.sqfs, tscmhz   what build.sh makes and a cache should keep (with *.inputs)
#   DIR/work, DIR/log                what building needs; work is removed when the build is complete
#   DIR/run/NAME                     one running guest:
#     process        pid and start time of the UML kernel      console.log   what it printed
#     netns, tap     where its tap is                          netns.made    we made the namespace
#     bridge         the bridge that its tap is on             control       FIFO behind its ttyS0
#     share/         the guest's /host; share/cmd are exec.sh's commands and their results

self=${0##*/}
bridge_mark=made-for-rxe-peer   # alias of a bridge that start.sh made
die() { echo "$self: $*" >&2; exit 1; }
need_root() { [ "$(id -u)" = 0 ] || die "must run as root"; }
need_tools() {
    local tool
    for tool; do command -v "$tool" > /dev/null || die "'$tool' is missing: run build.sh, it installs what is needed"; done
}

# use_dir DIR: sets $dir to its absolute path. A kernel command line has no quoting for it.
use_dir() {
    [ -d "$1" ] || die "no such folder: $1"
    dir=$(readlink -f -- "$1")
    case $dir in *[[:space:],]*) die "the path of DIR must have no white space and no comma: $dir" ;; esac
}

# use_guest NAME: sets $name and $run
use_guest() {
    [[ $1 =~ ^[a-z0-9][a-z0-9-]{0,30}$ ]] || die "bad guest name '$1' (small letters, digits, '-'; at most 31)"
    name=$1 run=$dir/run/$1
}

# start_time PID: field 22 of proc(5), which tells a process from a later one of the same pid
start_time() {
    local stat fields
    read -r stat 2> /dev/null < "/proc/$1/stat" || return 1
    read -ra fields <<< "${stat##*) }"
    [ "${fields[0]}" != Z ] || return 1   # dead, but its parent has not asked yet
    echo "${fields[19]}"
}

# guest_pid: prints the pid of the guest in $run if that very process still runs, else fails
guest_pid() {
    local pid started
    read -r pid started 2> /dev/null < "$run/process" || return 1
    [ "$(start_time "$pid")" = "$started" ] || return 1
    echo "$pid"
}

# guest_processes: all processes of the guest in $run, also when UML itself is dead already. UML
# leads a session of its own, whose id is its pid and not given anew while one of them lives.
guest_processes() {
    local pid member
    read -r pid _ 2> /dev/null < "$run/process" || return 0
    for member in $(ps -o pid= -s "$pid"); do
        [[ "$(readlink "/proc/$member/exe")" != "$dir/linux"* ]] || echo "$member"
    done
}

in_netns() { nsenter --net="/run/netns/$1" -- "${@:2}"; }
netns_exists() { [ -e "/run/netns/$1" ]; }

# end_guest: ends the guest in $run and undoes what start.sh did; safe on a half-started guest
end_guest() {
    local pid='' member netns tap bridge other heir=''
    if pid=$(guest_pid); then
        kill -TERM "$pid" 2> /dev/null || true
        for _ in $(seq 30); do guest_pid > /dev/null || break; sleep 0.1; done
    fi
    for member in $(guest_pid) $(guest_processes); do kill -KILL "$member" 2> /dev/null || true; done
    for _ in $(seq 30); do guest_pid > /dev/null || break; sleep 0.1; done
    ! guest_pid > /dev/null || die "guest $name: process $pid does not end"
    if [ -e "$run/netns" ]; then
        netns=$(< "$run/netns")
        if netns_exists "$netns"; then
            if [ -e "$run/tap" ]; then
                tap=$(< "$run/tap")
                ip -n "$netns" link del "$tap" 2> /dev/null || true
            fi
            # The last guest on a bridge or in a namespace of our own making takes it down.
            if [ -e "$run/bridge" ]; then
                bridge=$(< "$run/bridge")
                if ip -n "$netns" link show "$bridge" 2> /dev/null | grep -q "alias $bridge_mark" &&
                   [ -z "$(ip -n "$netns" -o link show master "$bridge")" ]; then
                    ip -n "$netns" link del "$bridge"
                fi
            fi
            if [ -e "$run/netns.made" ]; then
                for other in "$dir"/run/*/netns; do
                    if [ "$other" != "$run/netns" ] && [ "$(cat "$other" 2> /dev/null)" = "$netns" ]; then
                        heir=${other%/netns}
                    fi
                done
                if [ -n "$heir" ]; then touch "$heir/netns.made"; else ip netns del "$netns"; fi
            fi
        fi
    fi
    rm -rf "$run"
}
