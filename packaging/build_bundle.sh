#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Builds the relocatable bundle hostnic-VERSION-x86_64.tar.gz in the directory $1: everything but libc
# is linked in, and libc is linked as Debian 11 has it, so that any glibc since 2.31 will do. The build
# directory is $1/build.
#
# The old glibc comes from where this machine's Debian packages come from; apt checks its signature.
# Where that is not possible, GLIBC=own links with this machine's.
set -euo pipefail
top=$(dirname "$(dirname "$(readlink -f "$0")")")
result=$(realpath -m "$1")
oldest=2.31
old_release=bullseye

die() { printf '%s\n' "$*" >&2; exit 1; }

# fetch_old_glibc DIRECTORY: libc6 and libc6-dev of the old release, unpacked there.
fetch_old_glibc() {
  local to=$1 mirror apt
  apt=$(mktemp -d)
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Component: main' |
    grep -v -- '-security' | head -n 1)
  [[ -n $mirror ]] || die "apt knows no Debian mirror: GLIBC=own links with this machine's glibc"
  mkdir -p "$apt/lists/partial" "$apt/archives/partial"
  touch "$apt/status"
  printf 'deb [signed-by=%s] %s %s main\n' /usr/share/keyrings/debian-archive-keyring.gpg \
    "$mirror" "$old_release" >"$apt/sources.list"
  local options=(-q -o Dir::State="$apt" -o Dir::State::lists="$apt/lists"
    -o Dir::State::status="$apt/status" -o Dir::Cache="$apt" -o Dir::Cache::archives="$apt/archives"
    -o Dir::Etc::sourcelist="$apt/sources.list" -o Dir::Etc::sourceparts=-
    -o APT::Architecture=amd64 -o APT::Sandbox::User=root)
  apt-get "${options[@]}" update
  (cd "$apt" && apt-get "${options[@]}" download libc6 libc6-dev)
  mkdir -p "$to"
  for package in "$apt"/*.deb; do dpkg-deb -x "$package" "$to"; done
  rm -rf "$apt"
  # Links such as libdl.so -> /lib/... would lead to this machine's library.
  local link
  find "$to" -lname '/*' | while read -r link; do
    ln -sf "$(realpath -ms --relative-to="$(dirname "$link")" "$to$(readlink "$link")")" "$link"
  done
}

# check_binary FILE [LIBRARY ...]: fails where it asks for more than the bundle promises; libraries are the bundle's own.
check_binary() {
  local needs newest own
  own=$(printf '|%s' "${@:2}")
  needs=$(objdump -p "$1" | awk '$1 == "NEEDED" { print $2 }' |
    grep -vE "^(lib(c|m|dl|rt|pthread)\.so\.[0-9]|ld-linux-x86-64\.so\.2$own)\$") &&
    die "$1 needs $needs"
  newest=$(objdump -T "$1" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
  echo "$(basename "$1"): ${newest/_/ }"
  [[ ${GLIBC:-} == own || $(printf '%s\n' "GLIBC_$oldest" "$newest" | sort -V | tail -n 1) == "GLIBC_$oldest" ]] ||
    die "$1 asks for $newest; the bundle promises glibc $oldest"
}

mkdir -p "$result"
link_arguments=()
if [[ ${GLIBC:-} != own ]]; then
  [[ -d $result/glibc ]] || { fetch_old_glibc "$result/glibc.new" && mv "$result/glibc.new" "$result/glibc"; }
  # --sysroot is for the names in libc.so, a linker script. By itself it does not go first: Debian's
  # compiler would still find this machine's libraries before.
  libraries=$result/glibc/usr/lib/x86_64-linux-gnu
  arguments="--sysroot=$result/glibc -B$libraries -L$libraries -L$result/glibc/lib/x86_64-linux-gnu"
  link_arguments=(-Dcpp_link_args="$arguments" -Dc_link_args="$arguments")
fi
# A tree of its own: hostnic finds hostnicd beside itself, and the library in ../lib/hostnic.
if [[ ! -f $result/build/build.ninja ]]; then
  meson setup "$result/build" "$top" --buildtype=release -Db_ndebug=true -Dbundle=true -Dtests=false \
    -Dwerror=false --prefix=/opt/hostnic --libdir=lib "${link_arguments[@]}"
fi
ninja -C "$result/build"

version=$(meson introspect --projectinfo "$result/build" | python3 -c 'import json, sys; print(json.load(sys.stdin)["version"])')
name=hostnic-$version-x86_64
rm -rf "$result/stage" "${result:?}/$name"
DESTDIR=$result/stage meson install -C "$result/build" --no-rebuild --strip --quiet
mv "$result/stage/opt/hostnic" "$result/$name"
rm -r "$result/stage" "$result/$name/lib/pkgconfig"
for binary in bin/hostnic bin/hostnicd lib/hostnic/hostnic-simulate lib/hostnic/libhostnic-verbs.so lib/hostnic/libhostnic-calls.so lib/hostnic/gpu/libhostnic-gpu.so; do
  check_binary "$result/$name/$binary"
done
for library in libibverbs librdmacm libmrc; do
  check_binary "$result/$name/lib/hostnic/lib/$library.so.1" libhostnic-verbs.so libibverbs.so.1
done
# What is linked in, and its terms.
licenses=$result/$name/share/doc/hostnic/licenses
mkdir -p "$licenses"
cp "$top/LICENSE" "$licenses/hostnic"
for package in libdpdk-dev libnuma-dev libbsd-dev libmd-dev libfmt-dev libtomlplusplus-dev libcli11-dev libncurses-dev libedit-dev libstdc++-12-dev; do
  cp -L "/usr/share/doc/$package/copyright" "$licenses/$package"
done
cp -L /usr/share/common-licenses/{LGPL-2.1,GPL-3} "$licenses"
cp "$top/README.md" "$result/$name/share/doc/hostnic"
tar -C "$result" --sort=name --owner=0 --group=0 --numeric-owner -czf "$result/$name.tar.gz" "$name"
rm -r "${result:?}/$name"
ls -l "$result/$name.tar.gz"
