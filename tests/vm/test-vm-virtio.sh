#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# A guest kernel mounts, as virtio-blk, a partition of a disk that QEMU gets
# from the server.  With QEMU's cache=directsync every write of the guest
# comes with FUA.  Afterwards the image alone, looked at by fsck.fat and
# mtools, holds what the guest wrote, and nothing around the partition has
# changed.

set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/vm.sh"
. "$(dirname "${BASH_SOURCE[0]}")/fat-check.sh"

vm_begin test-vm-virtio
vm_require fsck.fat mcopy
vm_prepare

# Partition 1 starts at sector 63, as DOS had it: nothing in it lies on 4 KiB.
# There is something in front of it, and behind it.
image=$vm_dir/disk.img
start=$((63 * 512))
size=$((300 << 20))
tail=100000

# le32 NUMBER: its four bytes, as printf wants them.
le32 ()
{
  printf '\\x%02x\\x%02x\\x%02x\\x%02x' $(($1 & 255)) $(($1 >> 8 & 255)) \
         $(($1 >> 16 & 255)) $(($1 >> 24 & 255))
}

make_disk ()
{
  local entry

  head -c $start /dev/urandom >"$image"
  entry="\x00\x00\x02\x00\x0c\x00\x02\x00$(le32 $((start / 512)))"
  entry+=$(le32 $((size / 512)))
  {
    # shellcheck disable=SC2059    # The escapes are the point.
    printf "$entry"
    head -c 48 /dev/zero
    printf '\x55\xaa'
  } | dd of="$image" conv=notrunc bs=1 seek=446 status=none
  truncate -s $((start + size)) "$image"
  # QEMU wants whole sectors.
  head -c $((tail / 512 * 512)) /dev/urandom >>"$image"
}

# What lies around the partition.
surroundings ()
{
  head -c $start "$image"
  tail -c +$((start + size + 1)) "$image"
}

make_disk
surroundings >"$vm_dir/around"

cat >"$vm_dir/guest.sh" <<'GUEST'
set -eu
. /guest-tree.sh
modprobe -a virtio_blk vfat
tree_test /dev/vda1 -F 32 -s 8 -n FATBATCH
GUEST
vm_initramfs "$vm_dir/guest.sh" "$vm_dir/initramfs" "$vm_srcdir/guest-tree.sh"

vm_say "virtio-blk, cache=directsync, partition 1 of an MBR disk"
began=$SECONDS
vm_serve_unix "$image"
drive="file=nbd+unix:///?socket=$vm_socket,format=raw,if=virtio"
vm_run "$vm_dir/initramfs" "$vm_dir/virtio" "" \
       -drive "$drive,cache=directsync" ||
  vm_fail "the guest's script ended with status $?"
vm_serve_stop
vm_say "the guest ran for $((SECONDS - began)) s"

vm_say "the guest sent $(requests_count ' Write .* fua=1 ') writes with FUA," \
       "$(requests_count ' Write .* fua=0 ') without"
[ "$(requests_count ' Write .* fua=1 ')" -gt 0 ] || vm_fail "no FUA was sent"
[ "$(requests_count ' Write .* fua=0 ')" -eq 0 ] ||
  vm_fail "not every write came with FUA"

vm_manifest "$vm_dir/virtio.report" "$vm_dir/manifest"
fat_check "$image" $start $size "$vm_dir/manifest"

vm_say "nothing around the partition has changed"
surroundings | cmp - "$vm_dir/around" || vm_fail "it has"
vm_say PASS
