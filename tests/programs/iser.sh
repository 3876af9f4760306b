#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# iser.sh PORT capacity|disk: tgtd exports a file on hnic0; of which iscsi-readcapacity16 on hnic1 says how long it is,
# or whose contents qemu-img reads and writes. PORT is a TCP port that is free, for what tgtd wants to listen on beside.
set -eu
TARGET=iqn.2026-01.test:disk
URL=iser://127.77.0.1:3260/$TARGET/1
PATH=$PATH:/usr/sbin
export TGT_IPC_SOCKET="$PWD/tgtd"

head -c 8388608 /dev/urandom >disk
cp disk original
hostnic run --device hnic0 -- tgtd -f -C "$1" --iscsi "portal=127.0.0.1:$1" >tgtd.log 2>&1 &
tgtd=$!
# It does not heed SIGTERM while it has a target.
trap 'kill -9 $tgtd; cat tgtd.log' EXIT

administer() { tgtadm -C "$1" --lld iser --mode "$2" --op "$3" --tid 1 $4; }
for try in $(seq 100); do
  administer "$1" target new "-T $TARGET" 2>/dev/null && break
  sleep 0.1
done
administer "$1" logicalunit new "--lun 1 -b $PWD/disk"
# This tgtd's iSER asks both of its lists, of addresses and of names.
administer "$1" target bind "-I ALL"
for name in org.linux-kvm com.github:sahlberg:libiscsi:iscsi-readcapacity16; do
  case $name in org*) date=2008-11 ;; *) date=2007-10 ;; esac
  administer "$1" target bind "--initiator-name iqn.$date.$name"
done

on_nic() { timeout 60 hostnic run --device hnic1 -- "$@"; }
case $2 in
  capacity)
    on_nic iscsi-readcapacity16 "$URL"
    ;;
  disk)
    # libiscsi's iSER refuses requests of more than 512 KiB, and qemu-img makes some of 2 MiB.
    disk="driver=raw,file.driver=blkdebug,file.max-transfer=262144,file.image.driver=iscsi,file.image.transport=iser"
    disk="$disk,file.image.portal=127.77.0.1:3260,file.image.target=$TARGET,file.image.lun=1"
    on_nic qemu-img convert --image-opts -O raw "$disk" read
    cmp read original
    head -c 8388608 /dev/urandom >changed
    on_nic qemu-img convert -n -f raw --target-image-opts changed "$disk"
    cmp changed disk
    echo "the disk is what it should be"
    ;;
esac
