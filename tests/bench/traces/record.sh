#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck disable=SC1091,SC2034,SC2154,SC2209
#
# record.sh [NAME...]: record the traces in this folder, or some of them, anew
# from the guest of tests/vm.  Not needed to replay them.
#
#   sync-fallocate  virtio-blk, cache=directsync, mount -o sync: three times
#                   fallocate (FALLOC_FL_KEEP_SIZE)
#   sync-tree       the same mount: directories, files written and appended,
#                   renamed, made shorter, removed
#   async-tree      virtio-blk, cache=writeback, no -o sync, fsync now and
#                   then
#
# Each ends with an unmount, so that fsck.fat must find nothing.

set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
FATBATCH_SO=/nonexistent/record.so
. "$here/../../vm/vm.sh"

vm_begin record
vm_require mkfs.fat gcc
FATBATCH_SO=$vm_dir/record.so
gcc -O2 -Wall -shared -fPIC -o "$FATBATCH_SO" "$here/record.c"
vm_prepare

cat >"$vm_dir/guest.sh" <<'GUEST'
set -eu
modprobe -a virtio_blk vfat
random () { head -c "$1" /dev/urandom; }

do_trees ()
{
  for i in 1 2 3 4; do
    do_tree "number $i"
  done
}

do_fallocate ()
{
  for i in 1 2 3; do
    : >/mnt/FILE000$i
    /bin/fallocate -n -l 65536 /mnt/FILE000$i
  done
}

do_tree ()
{
  mkdir -p "/mnt/$1"
  cd "/mnt/$1"
  mkdir -p one/two 'A directory with a long name'
  for i in 0 1 2 3 4 5 6 7; do
    random $((i * 397)) >"one/file number $i, with a long name.data"
  done
  random 9000 >one/two/PAGES.BIN
  for size in 300 513 5000 1; do
    random $size >>one/appended
  done
  $fsync one/appended
  random 5000 | dd of=one/two/PAGES.BIN conv=notrunc bs=1000 seek=2 2>/dev/null
  random 12000 >one/truncated
  truncate -s 3001 one/truncated
  truncate -s 5000 one/truncated
  mv one/appended 'A directory with a long name/renamed'
  mv one/two/PAGES.BIN one/truncated
  $fsync one/truncated
  rm 'one/file number 3, with a long name.data'
  random 30000 >'A directory with a long name/last'
  cp -r one copy
  rm -r one
  $fsync copy/truncated
  cd /
}

fsync=true
[ "$options" = sync ] || fsync=sync
mount -t vfat -o "$options" /dev/vda /mnt
"do_$load" ""
umount /mnt
GUEST
vm_initramfs "$vm_dir/guest.sh" "$vm_dir/initramfs"

# record NAME LOAD MOUNT-OPTIONS QEMU-CACHE MAX
record ()
{
  local image=$vm_dir/volume.img

  case " ${wanted:-$1} " in
    *" $1 "*) ;;
    *) return 0 ;;
  esac
  vm_say "$1"
  truncate -s 0 "$image"
  truncate -s 40M "$image"
  mkfs.fat -F 32 -s 1 -i fa7ba7c4 "$image" >/dev/null
  export TRACE_COMMENT="$1: Linux $vm_release, mount -o $3, virtio-blk, cache=$4"
  vm_serve_unix "$image" trace="$vm_dir/$1.trace" max="$5" fsck=1
  vm_run "$vm_dir/initramfs" "$vm_dir/$1" "load=$2 options=$3" \
         -drive "file=nbd+unix:///?socket=$vm_socket,format=raw,if=virtio,cache=$4" ||
    vm_fail "the guest's script ended with status $?"
  vm_serve_stop
  cp "$vm_dir/$1.trace" "$here/"
}

wanted=$*
record sync-fallocate fallocate sync directsync 256
record sync-tree tree sync directsync 256
record async-tree trees rw writeback 1536
