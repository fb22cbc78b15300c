#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# A guest kernel's own NBD client over TCP mounts a volume that the server
# serves, with -o sync and without.  Afterwards the image alone, looked at by
# fsck.fat and mtools, holds what the guest wrote.
#
# First with clusters of 512 bytes: as many writes to the FATs as there can be.
# Then on two processors with a connection for each: requests overlap.

set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/vm.sh"
. "$(dirname "${BASH_SOURCE[0]}")/fat-check.sh"

vm_begin test-vm-nbd
vm_require fsck.fat mcopy
vm_prepare

cat >"$vm_dir/guest.sh" <<'GUEST'
set -eu
. /guest-tree.sh
modprobe -a virtio_net nbd vfat
ip link set eth0 up
ip addr add 10.0.2.15/24 dev eth0
nbd-client 10.0.2.2 "$nbd_port" /dev/nbd0 -N '' -C "$nbd_connections"
tree_test /dev/nbd0 -F 32 -s "$nbd_cluster" -n FATBATCH
nbd-client -d /dev/nbd0
GUEST
vm_initramfs "$vm_dir/guest.sh" "$vm_dir/initramfs" "$vm_srcdir/guest-tree.sh"

# test_nbd CACHE CONNECTIONS SECTORS-PER-CLUSTER
test_nbd ()
{
  local image=$vm_dir/$1.img size=$((80 << 20)) log=$vm_dir/$1 start=$SECONDS
  local args

  vm_say "cache=$1, $2 connection(s), clusters of $3 sector(s)"
  truncate -s $size "$image"
  vm_serve_tcp "$image" cache="$1"
  args="nbd_port=$vm_port nbd_connections=$2 nbd_cluster=$3"
  vm_run "$vm_dir/initramfs" "$log" "$args" \
         -netdev user,id=net -device virtio-net-pci,netdev=net,romfile= ||
    vm_fail "the guest's script ended with status $?"
  vm_serve_stop
  vm_say "the guest ran for $((SECONDS - start)) s"

  vm_say "the guest sent $(requests_count ' Write ') writes and" \
         "$(requests_count ' Flush ') flushes"
  [ "$(requests_count ' Flush ')" -gt 0 ] || vm_fail "no FLUSH was sent"
  [ "$(requests_count ' Connect ')" -eq "$2" ] ||
    vm_fail "$(requests_count ' Connect ') connections instead of $2"

  vm_manifest "$log.report" "$vm_dir/manifest"
  fat_check "$image" 0 $size "$vm_dir/manifest"
  rm -f "$image" "$log.log" "$log.report"
}

vm_cpus=1
test_nbd writeback 1 1
vm_cpus=2
test_nbd writethrough 2 2
vm_say PASS
