# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=dash disable=SC2154
#
# Runs inside the guest (see vm-bench.sh): the same loads on two disks in
# turn.  Each timed part is reported as a line
#
#   bench: LOAD DISK SECONDS
#
# $bench_transport, $bench_rounds, $bench_files, $bench_a and $bench_b are
# from the kernel's command line.

set -eu

# attach: sets disk_a, disk_b.
attach ()
{
  modprobe vfat
  case $bench_transport in
    virtio)
      modprobe virtio_blk
      disk_a=/dev/vda disk_b=/dev/vdb
      ;;
    nbd)
      modprobe -a virtio_net nbd
      ip link set eth0 up
      ip addr add 10.0.2.15/24 dev eth0
      nbd-client 10.0.2.2 "$bench_a" /dev/nbd0 -N ''
      nbd-client 10.0.2.2 "$bench_b" /dev/nbd1 -N ''
      disk_a=/dev/nbd0 disk_b=/dev/nbd1
      ;;
  esac
}

# timed LOAD DISK CMD ARG...: by the kernel's clock, to a hundredth.
timed ()
{
  load=$1 disk=$2
  shift 2
  begin=$(cut -d ' ' -f 1 /proc/uptime)
  "$@"
  end=$(cut -d ' ' -f 1 /proc/uptime)
  echo "bench: $load $disk $(echo "$begin $end" | awk '{ print $2 - $1 }')" \
    >/dev/ttyS1
}

# The published load: files of 1 MiB, in clusters of 4 KiB.
load_fallocate ()
{
  for i in $(seq "$bench_files"); do
    : >"/mnt/file$i"
    /bin/fallocate -n -l 1048576 "/mnt/file$i"
  done
}

# A small tree: files of one to nine clusters, one appended to, one renamed,
# one removed in each directory.
load_tree ()
{
  for dir in one two three; do
    mkdir "/mnt/$dir"
    for i in 1 2 3 4 5 6; do
      head -c $((i * 6000)) /dev/zero >"/mnt/$dir/a file with a long name $i"
    done
    head -c 5000 /dev/zero >>"/mnt/$dir/a file with a long name 1"
    mv "/mnt/$dir/a file with a long name 2" "/mnt/$dir/renamed"
    rm "/mnt/$dir/a file with a long name 3"
  done
}

# run_loads NAME DEVICE
run_loads ()
{
  mkfs.fat -F 32 -s 8 "$2" >/dev/null
  mount -t vfat -o sync "$2" /mnt
  timed fallocate "$1" load_fallocate
  timed tree "$1" load_tree
  umount /mnt
}

attach
round=0
while [ $round -lt "$bench_rounds" ]; do
  if [ $((round % 2)) -eq 0 ]; then
    run_loads a "$disk_a"
    run_loads b "$disk_b"
  else
    run_loads b "$disk_b"
    run_loads a "$disk_a"
  fi
  round=$((round + 1))
done
