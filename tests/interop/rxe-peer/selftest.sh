#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Proves that the peer works here. See usage.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
here=$(dirname "$(readlink -f "$0")")

usage() {
    cat <<END
usage: selftest.sh DIR

Boots two guests on a bridge in a network namespace of its own, runs ping, ibv_rc_pingpong,
perftest and rping between them; then boots one guest whose tap's other end is a plain host process
(hostpeer.py). Prints a table, and exits with 0 if all passed. Takes about half a minute.
END
}
case ${1:-} in -h|--help) usage; exit 0 ;; esac
[ $# = 1 ] || { usage >&2; exit 2; }
need_root
need_tools ip nsenter ps python3
use_dir "$1"

a=selftest-a b=selftest-b c=selftest-c
pair_netns=rxe-self-$$ lone_netns=rxe-lone-$$
scratch=$(mktemp -d)
finish() {
    local name
    for name in $a $b $c; do "$here/stop.sh" "$dir" "$name" > /dev/null || true; done
    rm -rf "$scratch"
}
trap finish EXIT
trap 'exit 130' INT TERM

passed=0 failed=0
row() { printf '%-16s %-26s %-4s %s\n' "$1" "$2" "$3" "$4"; }
judge() {   # NAME BETWEEN STATUS RESULT
    if [ "$3" = 0 ] && [ -n "$4" ]; then row "$1" "$2" ok "$4"; passed=$((passed + 1))
    else row "$1" "$2" FAIL "${4:-no result}, exit status $3"; failed=$((failed + 1)); fi
}
in_a() { "$here/exec.sh" --timeout 40 "$dir" $a "$1"; }
in_b() { "$here/exec.sh" --timeout 40 "$dir" $b "$1"; }

boot() {   # NAME then start.sh's options
    local status=0
    "$here/start.sh" "$dir" "$@" > "$scratch/boot" 2> "$scratch/boot.err" || status=$?
    judge "boot $1" "" $status "$(sed -n 's/.*, \(ready after .*\)/\1/p' "$scratch/boot")"
    [ $status = 0 ] || { cat "$scratch/boot.err" >&2; exit 1; }
}

# pair NAME SERVER CLIENT AWK: runs SERVER in b and CLIENT in a; AWK makes the result of the client's output
pair() {
    local status=1 server
    in_b "$2" > "$scratch/server" 2>&1 &
    server=$!
    for _ in 1 2 3 4 5; do   # until the server listens
        sleep 0.7
        status=0
        in_a "$3" > "$scratch/client" 2> "$scratch/client.err" || status=$?
        [ $status != 0 ] && kill -0 $server 2> /dev/null || break
    done
    if [ $status != 0 ]; then in_b "pkill -x ${2%% *}" > /dev/null 2>&1 || true; fi
    wait $server || status=$?
    judge "$1" "guest a - guest b" $status "$(awk "$4" "$scratch/client")"
    if [ $status != 0 ]; then tail -n 4 "$scratch/client.err" "$scratch/server" >&2; fi
}

row TEST BETWEEN '' RESULT
for old in $a $b $c; do "$here/stop.sh" "$dir" "$old" > /dev/null; done
boot $a --tap rxetap-a --ip 10.99.0.1/24 --netns "$pair_netns" --bridge rxebr
boot $b --tap rxetap-b --ip 10.99.0.2/24 --netns "$pair_netns" --bridge rxebr

status=0
in_a 'ping -q -c 20 -i 0.02 10.99.0.2' > "$scratch/ping" || status=$?
judge ping "guest a - guest b" $status "$(awk -F/ '/^rtt/ { print "average " $5 " ms" }' "$scratch/ping")"
pair ibv_rc_pingpong 'ibv_rc_pingpong -d rxe0 -g 1' 'ibv_rc_pingpong -d rxe0 -g 1 10.99.0.2' \
    '/usec\/iter/ { print $1 " of 4 KiB, " $(NF-1) " us each" }'
perf='-d rxe0 -x 1 -F'
pair ib_write_bw "ib_write_bw $perf -s 65536 -n 500" "ib_write_bw $perf -s 65536 -n 500 10.99.0.2" \
    '$1 == 65536 { print "500 of 64 KiB, " $4 " MB/s" }'
pair ib_read_bw "ib_read_bw $perf -s 65536 -n 200" "ib_read_bw $perf -s 65536 -n 200 10.99.0.2" \
    '$1 == 65536 { print "200 of 64 KiB, " $4 " MB/s" }'
pair ib_send_lat "ib_send_lat $perf -n 1000" "ib_send_lat $perf -n 1000 10.99.0.2" \
    '$1 == 2 { print "1000 of 2 bytes, typical " $5 " us, least " $3 " us" }'
pair rping 'rping -s -a 10.99.0.2 -C 20' 'rping -c -v -a 10.99.0.2 -C 20' \
    '/ping data/ { n++ } END { if (n == 20) print n " pings over rdma_cm" }'
for name in $a $b; do "$here/stop.sh" "$dir" "$name" > /dev/null; done

# The host process: it has no address in any kernel; the guest's queue pair leaves its numbers in /host.
boot $c --tap rxetap-c --ip 10.98.0.1/24 --mtu 9000 --netns "$lone_netns"
share=$dir/run/$c/share
peer=("$here/hostpeer.py" --interface rxetap-c --ip 10.98.0.9 --guest-ip 10.98.0.1 --qp-file "$share/qp")
"$here/exec.sh" --timeout 60 "$dir" $c "rxe-qp $("${peer[@]}" --numbers) --echo 200 --out /host/qp" > "$scratch/qp" 2>&1 &
guest_side=$!
status=0
in_netns "$lone_netns" "${peer[@]}" --count 200 > "$scratch/peer" 2> "$scratch/peer.err" || status=$?
for step in arp send write read nak habits; do
    result=$(sed -n "s/^$step|//p" "$scratch/peer")
    judge "$step" "host process - guest" "$([ -n "$result" ] && echo 0 || echo $status)" "$result"
done
wait $guest_side || true   # the wrong rkey at the end puts its queue pair into the error state
if [ $status != 0 ]; then tail -n 5 "$scratch/peer.err" "$scratch/qp" >&2; fi

echo "$passed passed, $failed failed"
[ $failed = 0 ]
