#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Boots a guest with an rdma_rxe device on a tap. See usage.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"

usage() {
    cat <<END
usage: start.sh DIR NAME --tap TAPNAME --ip A.B.C.D/PREFIX [--mtu 576..9000] [--netns NS]
                [--bridge BR] [--mem SIZE]

Boots guest NAME from what build.sh made in DIR, and returns when its device rxe0 is active.
The guest's eth0 is the tap TAPNAME, made here in network namespace NS. The host's own interfaces
and addresses are never touched, and the host gets no address on the tap.

  --ip      address of the guest's eth0; its MAC address is 02:00 and the four bytes of the address
  --mtu     of eth0 and of the tap (default 1500: RDMA MTU 1024; 9000: RDMA MTU 4096)
  --netns   default: rxe-NAME. Made if it does not exist, and then removed again by stop.sh
  --bridge  put the tap on this bridge in NS (made if it does not exist)
  --mem     the guest's memory (default 512M; only what it touches is used)

Then: exec.sh DIR NAME 'command', stop.sh DIR NAME. DIR/run/NAME/share is /host in the guest.
END
}
bad_usage() { echo "start.sh: $*" >&2; usage >&2; exit 2; }

tap='' address='' mtu=1500 netns='' bridge='' memory=512M words=()
while [ $# -gt 0 ]; do
    case $1 in
        -h|--help) usage; exit 0 ;;
        --tap|--ip|--mtu|--netns|--bridge|--mem)
            [ $# -ge 2 ] || bad_usage "$1 needs a value"
            case $1 in
                --tap) tap=$2 ;; --ip) address=$2 ;; --mtu) mtu=$2 ;;
                --netns) netns=$2 ;; --bridge) bridge=$2 ;; --mem) memory=$2 ;;
            esac
            shift 2 ;;
        -*) bad_usage "unknown option $1" ;;
        *) words+=("$1"); shift ;;
    esac
done
[ ${#words[@]} = 2 ] || bad_usage "expected DIR and NAME"

need_root
need_tools ip nsenter ps
use_dir "${words[0]}"
use_guest "${words[1]}"
netns=${netns:-rxe-$name}
[[ $tap =~ ^[A-Za-z0-9._-]{1,15}$ ]] || bad_usage "--tap needs an interface name of at most 15 characters"
[[ $address =~ ^([0-9]+)\.([0-9]+)\.([0-9]+)\.([0-9]+)/([0-9]+)$ ]] || bad_usage "--ip needs A.B.C.D/PREFIX"
mac=$(printf '02:00:%02x:%02x:%02x:%02x' "${BASH_REMATCH[@]:1:4}")
[[ $mtu =~ ^[0-9]+$ ]] && [ "$mtu" -ge 576 ] && [ "$mtu" -le 9000 ] || bad_usage "--mtu must be 576 to 9000"
[[ $netns =~ ^[A-Za-z0-9._-]+$ ]] || bad_usage "bad name of a network namespace: $netns"
[[ $bridge =~ ^[A-Za-z0-9._-]{0,15}$ ]] || bad_usage "bad bridge name: $bridge"
[[ $memory =~ ^[0-9]+[MG]$ ]] || bad_usage "--mem needs a size such as 512M or 2G"
for file in linux rootfs.sqfs tscmhz; do [ -s "$dir/$file" ] || die "$dir/$file is missing: run build.sh $dir"; done
[ -c /dev/net/tun ] || die "/dev/net/tun is missing: this kernel or container has no tap devices"
if guest_pid > /dev/null; then die "guest $name is already running (pid $(guest_pid)): stop.sh it first"; fi
end_guest   # what an earlier guest of this name left when it died

begin_ms=$(date +%s%3N)
started=no
undo() {
    [ "$started" = yes ] && return
    if [ -e "$run/console.log" ]; then echo "start.sh: the guest's last words:" >&2; tail -n 15 "$run/console.log" >&2; fi
    [ ! -e "$run/share/boot.failed" ] || cat "$run/share/boot.failed" >&2
    end_guest
}
trap undo EXIT

mkdir -p "$run/share/cmd" "$run/uml" "$run/memory"
mkfifo "$run/control"

# The tap. The state files are written before what they name is made, so that nothing is left over.
echo "$netns" > "$run/netns"
if ! netns_exists "$netns"; then
    touch "$run/netns.made"
    ip netns add "$netns"
    ip -n "$netns" link set lo up
fi
if ip -n "$netns" link show "$tap" > /dev/null 2>&1; then die "interface $tap already exists in namespace $netns"; fi
echo "$tap" > "$run/tap"
ip -n "$netns" tuntap add dev "$tap" mode tap
quiet_ipv6() { in_netns "$netns" sh -c "echo 1 > /proc/sys/net/ipv6/conf/$1/disable_ipv6" 2> /dev/null || true; }
quiet_ipv6 "$tap"   # the host end should say nothing by itself
if [ -n "$bridge" ]; then
    echo "$bridge" > "$run/bridge"
    if ! ip -n "$netns" link show "$bridge" > /dev/null 2>&1; then
        ip -n "$netns" link add "$bridge" type bridge
        ip -n "$netns" link set "$bridge" alias "$bridge_mark"
        quiet_ipv6 "$bridge"
        ip -n "$netns" link set "$bridge" up
    fi
    ip -n "$netns" link set "$tap" master "$bridge"
fi
ip -n "$netns" link set "$tap" mtu "$mtu" up

# UML keeps the guest's memory in a file that must be mappable as executable: in memory if possible.
memory_dir=$run/memory
shm_options=$(awk '$2 == "/dev/shm" && $3 == "tmpfs" { options = $4 } END { print options }' /proc/self/mounts)
if [ -n "$shm_options" ] && [[ ,$shm_options, != *,noexec,* ]] &&
   [ "$(df --output=avail -m /dev/shm | tail -n 1)" -ge 1024 ]; then
    memory_dir=/dev/shm
fi

mhz=$("$dir/tscmhz")
(
    exec 3<> "$run/control"
    export TMPDIR=$memory_dir
    exec nsenter --net="/run/netns/$netns" -- "$dir/linux" \
        mem="$memory" ubd0r="$dir/rootfs.sqfs" root=/dev/ubda rootfstype=squashfs ro \
        init=/usr/local/sbin/rxe-init hostfs="$run/share" \
        vec0:transport=tap,ifname="$tap",mac="$mac",mtu="$mtu",depth=128,gro=0 \
        con=null con0=null,fd:1 ssl=null ssl0=fd:3,null umid="$name" uml_dir="$run/uml/" quiet panic=-1 \
        rxe_name="$name" rxe_ip="$address" rxe_mtu="$mtu" rxe_mhz="$mhz"
) < /dev/null > "$run/console.log" 2>&1 &
pid=$!
echo "$pid $(start_time "$pid")" > "$run/process"

for _ in $(seq 600); do
    [ -e "$run/share/ready" ] && break
    [ -e "$run/share/boot.failed" ] && die "guest $name did not come up"
    guest_pid > /dev/null || die "guest $name ended while booting"
    sleep 0.05
done
[ -e "$run/share/ready" ] || die "guest $name was not ready after 30 s"
started=yes
end_ms=$(date +%s%3N)
echo "guest $name: rxe0 active on ${address%/*} ($mac, mtu $mtu), tap $tap in namespace $netns, pid $pid, ready after $(((end_ms - begin_ms) / 10 )) cs"
