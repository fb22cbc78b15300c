#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# No test: measures.  How long a real guest takes for fallocate(KEEP_SIZE) of
# files on a volume mounted with -o sync, by virtio-blk with cache=directsync,
# where each write has FUA: on us, and on nbdkit's file plugin, on a disk whose
# flush takes a chosen time.  One guest has both disks and takes turns, file by
# file, so that whatever else the machine does disturbs both.  Both servers log
# requests, and pay for that alike.
#
#   measure-fallocate.sh [CLUSTER-BYTES [FILES [FILE-BYTES]]]
#
# By default 512 16 1048576.  From the environment: DELAY_US (1000; 0: no such
# disk, but TMPDIR), PARAMETERS (of our plugin), and vm.sh's.  With a delay it
# needs root, loop devices and FUSE.

set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/vm.sh"
. "$vm_srcdir/../bench/slow-disk.sh"

cluster=${1:-512} files=${2:-16} bytes=${3:-1048576}
delay=${DELAY_US:-1000}
read -ra parameters <<<"${PARAMETERS:-}"
vm_timeout=${FATBATCH_VM_TIMEOUT:-7200}
declare -A pid=() socket=()

# For slow-disk.sh.
cleanup_fn ()
{
  vm_at_end "$@"
}

vm_begin measure-fallocate
vm_require fsck.fat
vm_prepare

cat >"$vm_dir/guest.sh" <<'GUEST'
set -eu
# NAME FILE: the time it took, by the kernel's clock.
measure ()
{
  : >"/mnt/$1/$2"
  begin=$(cut -d ' ' -f 1 /proc/uptime)
  /bin/fallocate -n -l "$bytes" "/mnt/$1/$2"
  end=$(cut -d ' ' -f 1 /proc/uptime)
  echo "$1 $(echo "$begin $end" | awk '{ print $2 - $1 }')" >/dev/ttyS1
}

modprobe -a virtio_blk vfat
for disk in vda:file vdb:fatbatch; do
  mkfs.fat -F 32 -s $((cluster / 512)) /dev/${disk%:*}
  mkdir /mnt/${disk#*:}
  mount -t vfat -o sync /dev/${disk%:*} /mnt/${disk#*:}
done
i=0
while [ $i -lt "$files" ]; do
  i=$((i + 1))
  if [ $((i % 2)) -eq 0 ]; then
    measure file file$i
    measure fatbatch file$i
  else
    measure fatbatch file$i
    measure file file$i
  fi
done
umount /mnt/*
GUEST
vm_initramfs "$vm_dir/guest.sh" "$vm_dir/initramfs"

where=$vm_dir
if [ "$delay" -gt 0 ]; then
  slow_disk_up "$vm_dir" "$delay" 1G || vm_fail "no such disk"
  where=$slow_disk_mount
  vm_say "a disk whose sync takes $slow_disk_sync_us us"
fi

# start NAME PLUGIN [PARAMETER...]
start ()
{
  local name=$1 FATBATCH_SO=$2 vm_dir=$vm_dir/$1
  shift 2

  mkdir "$vm_dir"
  # More clusters than FAT16 could have, also if they have 4 KiB.
  truncate -s 300M "$where/$name.img"
  vm_serve_unix "$where/$name.img" "${vm_stats[@]}" "$@"
  vm_at_end vm_kill "$vm_server_pid"
  pid[$name]=$vm_server_pid
  socket[$name]=$vm_socket
  vm_server_pid=
}

# stop NAME
stop ()
{
  local vm_dir=$vm_dir/$1

  vm_server_pid=${pid[$1]}
  vm_serve_stop
  fsck.fat -n "$where/$1.img" >"$vm_dir/fsck.log" 2>&1 ||
    vm_fail "$1: fsck.fat finds faults"
  vm_say "$1: $(grep -c ' Write .* fua=1 ' "$vm_dir/requests") writes with FUA"
  [ "$1" = file ] ||
    vm_say "$1: $(vm_counter mirrors_deferred) mirror sectors and" \
           "$(vm_counter commits_deferred) allocations deferred," \
           "$(vm_counter syncs) syncs"
}

start file file
start fatbatch "$FATBATCH_SO" ${parameters[@]+"${parameters[@]}"}
drive="if=virtio,format=raw,cache=directsync,file=nbd+unix:///?socket"
vm_run "$vm_dir/initramfs" "$vm_dir/guest" \
       "cluster=$cluster files=$files bytes=$bytes" \
       -drive "$drive=${socket[file]}" -drive "$drive=${socket[fatbatch]}" ||
  vm_fail "the guest's script ended with status $?"
stop file
stop fatbatch

vm_say "$files files of $bytes bytes, clusters of $cluster bytes"
tr -d '\r' <"$vm_dir/guest.report" | awk -v say="$vm_name: " '
  $1 == "file" || $1 == "fatbatch" { t[$1, ++n[$1]] = $2; sum[$1] += $2 }
  END {
    for (i = 1; i <= n["file"]; i++) {
      r = t["fatbatch", i] > 0 ? t["file", i] / t["fatbatch", i] : 0
      if (i == 1 || r < low) low = r
      if (i == 1 || r > high) high = r
    }
    printf "%snbdkit file %.2f s, fatbatch %.2f s: %.2f times as fast", say,
           sum["file"], sum["fatbatch"], sum["file"] / sum["fatbatch"]
    printf " (single files: %.2f to %.2f)\n", low, high
  }'
