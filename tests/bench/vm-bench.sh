#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The loads of guest-bench.sh in a real guest, on two disks that servers which
# run already serve.  Prints the guest's "bench: ..." lines.
#
#   vm-bench.sh virtio ROUNDS FILES SOCKET-A SOCKET-B
#   vm-bench.sh nbd    ROUNDS FILES PORT-A PORT-B
#
# virtio: as virtio-blk, with QEMU's cache=directsync: every write has FUA.
# nbd: by the guest kernel's own NBD client.  Exit status 77: not possible
# here; the last line says why.

set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../vm/vm.sh"

bench_srcdir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
vm_timeout=${FATBATCH_VM_TIMEOUT:-1800}
transport=$1
args="bench_transport=$1 bench_rounds=$2 bench_files=$3"

vm_begin vm-bench
vm_require mkfs.fat
vm_prepare >&2
vm_initramfs "$bench_srcdir/guest-bench.sh" "$vm_dir/initramfs"

devices=()
case $transport in
  virtio)
    for socket in "$4" "$5"; do
      drive="file=nbd+unix:///?socket=$socket,format=raw,if=virtio"
      devices+=(-drive "$drive,cache=directsync")
    done
    ;;
  nbd)
    args+=" bench_a=$4 bench_b=$5"
    devices+=(-netdev "user,id=net"
              -device "virtio-net-pci,netdev=net,romfile=")
    ;;
  *)
    vm_fail "no such transport: $transport"
    ;;
esac

vm_run "$vm_dir/initramfs" "$vm_dir/guest" "$args" "${devices[@]}" ||
  vm_fail "the guest's script ended with status $?"
tr -d '\r' <"$vm_dir/guest.report" | grep '^bench: '
