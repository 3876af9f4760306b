#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Makes the rxe peer from Debian packages. See usage.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
here=$(dirname "$(readlink -f "$0")")

usage() {
    cat <<END
usage: build.sh DIR [--jobs N] [--mirror URL] [--keep]

Makes in DIR (created if need be), from Debian 12 packages only, what start.sh boots:
  linux        a User-Mode-Linux kernel with rdma_rxe, from the package linux-source-6.1
  rootfs.sqfs  a root image with perftest, ibverbs-utils, rdmacm-utils, pyverbs, iproute2, tcpdump
  tscmhz       a small helper
and installs the packages that the building and the scripts need. Run again, it goes on where it
was cut off, and does nothing where all is there and kernel.config, kernel.patch, guest/ and the package list
are the same. To keep a result in a cache, keep these three files and the two *.inputs beside them.

  --jobs    compiler processes (default: one per CPU)
  --mirror  the Debian mirror for debootstrap (default: the one that apt uses)
  --keep    keep DIR/work (source, objects, packages: about 1 GB)
END
}
bad_usage() { echo "build.sh: $*" >&2; usage >&2; exit 2; }

target='' jobs=$(nproc) mirror='' keep=no
while [ $# -gt 0 ]; do
    case $1 in
        -h|--help) usage; exit 0 ;;
        --jobs) [ $# -ge 2 ] || bad_usage "--jobs needs a value"; jobs=$2; shift 2 ;;
        --mirror) [ $# -ge 2 ] || bad_usage "--mirror needs a value"; mirror=$2; shift 2 ;;
        --keep) keep=yes; shift ;;
        -*) bad_usage "unknown option $1" ;;
        *) [ -z "$target" ] || bad_usage "more than one DIR"; target=$1; shift ;;
    esac
done
[ -n "$target" ] || bad_usage "expected DIR"
[[ $jobs =~ ^[1-9][0-9]*$ ]] || bad_usage "--jobs needs a number"

# Packages on this machine: to run guests, and to build them
run_packages=(iproute2 util-linux procps python3)
build_packages=(gcc libc6-dev make flex bison bc patch xz-utils squashfs-tools debootstrap debian-archive-keyring)
# Packages in the guest, besides debootstrap's minimal set
guest_packages=(iproute2 iputils-ping ethtool procps tcpdump libibverbs1 ibverbs-providers ibverbs-utils
    librdmacm1 rdmacm-utils perftest python3-pyverbs)
suite=bookworm
# Not wanted in the image (globs of mksquashfs; relative to the root)
pruned=('boot/*' 'proc/*' 'sys/*' 'dev/*' 'tmp/*' 'run/*' 'var/cache/*' 'var/lib/apt/lists/*' 'var/log/*'
    'usr/share/doc/*' 'usr/share/man/*' 'usr/share/info/*' 'usr/share/locale/*' 'usr/share/i18n/*'
    'usr/share/zoneinfo/*' 'usr/lib/udev/hwdb.*' 'etc/udev/hwdb.bin' 'usr/lib/x86_64-linux-gnu/gconv/*')
# Source files that no configuration of ours compiles; the Kconfig files must all be there
not_unpacked=(arch/'[!ux]*'/'*.[chS]' Documentation/'*.rst' Documentation/devicetree sound/'*.[ch]' tools/testing
    tools/perf arch/'*'/boot/dts)
for unused in gpu media staging scsi iio hwmon clk pinctrl usb hid video mtd crypto phy regulator soc \
        net/wireless net/ethernet net/can infiniband/hw infiniband/ulp; do
    not_unpacked+=("drivers/$unused/*.[ch]")
done

say() { printf '[%4d s] %s\n' "$SECONDS" "$*"; }
size_of() { du -h --apparent-size "$1" | cut -f1; }
trap 'say "build.sh stopped early; run it again to go on (logs: ${dir:-$target}/log)"' ERR

need_root
[ "$(uname -m)" = x86_64 ] || die "only x86_64 is supported"
command -v apt-get > /dev/null || die "this is not a Debian system"
mkdir -p "$target"
use_dir "$target"
mkdir -p "$dir/log"
exec 8> "$dir/log/lock"
flock -n 8 || die "another build.sh is at work in $dir"
work=$dir/work

# What each result depends on; kept beside it, so that a second run knows whether it is current.
kernel_inputs=$(cat "$here/kernel.config" "$here/kernel.patch" | sha256sum)
rootfs_inputs=$(cat "$here"/guest/* <(echo "$suite ${guest_packages[*]} ${pruned[*]}") | sha256sum)
is_current() { [ -s "$dir/$1" ] && [ "$(cat "$dir/$1.inputs" 2> /dev/null)" = "$2" ]; }

updated=no
apt_update() {
    [ "$updated" = no ] || return 0
    say "updating the package lists"
    apt-get update > "$dir/log/apt-update.log" 2>&1 || say "warning: apt-get update had errors (log/apt-update.log)"
    updated=yes
}
install_packages() {
    local package missing=()
    for package; do
        [ "$(dpkg-query -W -f='${Status}' "$package" 2> /dev/null)" = 'install ok installed' ] || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    apt_update
    say "installing ${missing[*]}"
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=120 "${missing[@]}" \
        > "$dir/log/apt-install.log" 2>&1 || { tail -n 20 "$dir/log/apt-install.log" >&2; die "apt-get install failed"; }
}

unpack_source() {
    local patch_sum
    patch_sum=$(sha256sum < "$here/kernel.patch")
    [ "$(cat "$work/source.done" 2> /dev/null)" != "$patch_sum" ] || return 0
    rm -f "$work/source.done"
    if ! compgen -G "$work/linux-source-6.1_*.deb" > /dev/null; then
        apt_update
        say "downloading linux-source-6.1 (about 140 MB)"
        (cd "$work" && apt-get -o APT::Sandbox::User=root download linux-source-6.1) > "$dir/log/source.log" 2>&1 ||
            { tail -n 5 "$dir/log/source.log" >&2; die "no package linux-source-6.1: is this Debian 12?"; }
    fi
    say "unpacking the kernel source"
    rm -rf "$work/source"
    mkdir "$work/source"
    dpkg --fsys-tarfile "$work"/linux-source-6.1_*.deb | tar -xf - -O ./usr/src/linux-source-6.1.tar.xz |
        tar -xJf - -C "$work/source" --strip-components=1 "${not_unpacked[@]/#/--exclude=linux-source-6.1/}"
    patch -s -d "$work/source" -p1 < "$here/kernel.patch" || die "kernel.patch does not fit this kernel source"
    echo "$patch_sum" > "$work/source.done"
}

show_progress() {
    local line count=0
    while read -r line; do
        case $line in 'CC '*) [ $((++count % 100)) != 0 ] || say "  $count files compiled" ;; esac
    done
}

build_kernel() {
    local line objects=$work/objects
    local make=(make -C "$work/source" ARCH=um O="$objects" KBUILD_BUILD_USER=rxe KBUILD_BUILD_HOST=peer)
    unpack_source
    if [ "$(cat "$work/configured" 2> /dev/null)" != "$kernel_inputs" ]; then
        say "configuring the kernel"
        mkdir -p "$objects"
        KCONFIG_ALLCONFIG="$here/kernel.config" "${make[@]}" allnoconfig > "$dir/log/config.log" 2>&1 ||
            { tail -n 20 "$dir/log/config.log" >&2; die "the kernel's configuration failed"; }
        while read -r line; do
            grep -qxF "$line" "$objects/.config" || die "the kernel's configuration dropped '$line'"
        done < <(grep '^CONFIG_' "$here/kernel.config")
        echo "$kernel_inputs" > "$work/configured"
    fi
    say "compiling the kernel with $jobs processes (about 850 files)"
    "${make[@]}" -j"$jobs" linux 2>&1 | tee "$dir/log/kernel.log" | show_progress ||
        { grep -i -B2 -A8 'error' "$dir/log/kernel.log" | tail -n 30 >&2; die "the kernel did not compile"; }
    strip -s -o "$dir/linux.new" "$objects/linux"
    mv "$dir/linux.new" "$dir/linux"
    grep -h . "$objects/include/config/kernel.release" > "$dir/log/kernel.release"
    echo "$kernel_inputs" > "$dir/linux.inputs"
    say "made linux $(cat "$dir/log/kernel.release"), $(size_of "$dir/linux")"
}

find_mirror() {
    [ -n "$mirror" ] && return
    mirror=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(COMPONENT)' 'Created-By: Packages' |
        awk -v suite=$suite '$2 == suite && $3 == "main" { print $1; exit }')
    [ -n "$mirror" ] || die "apt has no source for $suite main: give --mirror URL"
}

build_rootfs() {
    local root=$work/root include program
    if [ ! -e "$work/root.done" ]; then
        find_mirror
        say "debootstrap of $suite with ${#guest_packages[@]} packages"
        rm -rf "$root"
        mkdir -p "$work/packages"
        include=$(IFS=,; echo "${guest_packages[*]}")
        debootstrap --variant=minbase --cache-dir="$work/packages" --include="$include" "$suite" "$root" "$mirror" \
            > "$dir/log/debootstrap.log" 2>&1 || { tail -n 20 "$dir/log/debootstrap.log" >&2; die "debootstrap failed"; }
        touch "$work/root.done"
    fi
    say "packing the root image"
    install -m 755 "$here/guest/rxe-init" "$root/usr/local/sbin/rxe-init"
    install -m 755 "$here/guest/rxe-qp" "$root/usr/local/bin/rxe-qp"
    # perftest is run through a wrapper, see guest/perftest-clock.c
    gcc -O2 -shared -fPIC -o "$root/usr/local/lib/perftest-clock.so" "$here/guest/perftest-clock.c"
    install -m 755 "$here/guest/perftest-run" "$root/usr/local/bin/perftest-run"
    for program in "$root"/usr/bin/ib_*_bw "$root"/usr/bin/ib_*_lat "$root"/usr/bin/raw_ethernet_*; do
        ln -sf perftest-run "$root/usr/local/bin/${program##*/}"
    done
    mkdir -p "$root/host"
    rm -f "$dir/rootfs.new"
    mksquashfs "$root" "$dir/rootfs.new" -comp zstd -Xcompression-level 15 -noappend -no-xattrs -no-progress -quiet \
        -wildcards -e "${pruned[@]}" > "$dir/log/squashfs.log" 2>&1 ||
        { tail -n 5 "$dir/log/squashfs.log" >&2; die "mksquashfs failed"; }
    mv "$dir/rootfs.new" "$dir/rootfs.sqfs"
    echo "$rootfs_inputs" > "$dir/rootfs.sqfs.inputs"
    say "made rootfs.sqfs, $(size_of "$dir/rootfs.sqfs")"
}

install_packages "${run_packages[@]}"
made=()
is_current linux "$kernel_inputs" || made+=(kernel)
is_current rootfs.sqfs "$rootfs_inputs" || made+=(rootfs)
if [ ${#made[@]} -gt 0 ] || [ ! -s "$dir/tscmhz" ]; then
    install_packages "${build_packages[@]}"
    mkdir -p "$work"
    free_mb=$(df --output=avail -m "$dir" | tail -n 1)
    [ "$free_mb" -ge 2500 ] || die "$dir has only $free_mb MB free; building needs 2500"
    gcc -O2 -o "$dir/tscmhz" "$here/guest/tscmhz.c"
    for part in "${made[@]}"; do "build_$part"; done
    [ "$keep" = yes ] || rm -rf "$work"
fi

[ ${#made[@]} -gt 0 ] || say "all is there already"
say "done. In $dir:"
(cd "$dir" && ls -l linux rootfs.sqfs tscmhz | awk '{ printf "         %-12s %6.1f MB\n", $NF, $5 / 1e6 }')
