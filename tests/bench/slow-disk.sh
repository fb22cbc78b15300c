#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# A disk whose flush takes a chosen time, so that the cost of durability can
# be set like a parameter.
#
#   a file system with that delay in fsync (faultfs), on it one file, on that
#   a loop device, on that ext4
#
# The block layer in between merges flushes as it does on a real disk: those
# who ask while one is on its way share the next.
#
# As a program: make the disk, print "MOUNTPOINT SYNC_US" (the median cost of
# a sync, measured), and remove it when standard input ends.
#
#   slow-disk.sh DIR DELAY_US SIZE
#
# Sourced, from bash with `set -euo pipefail`:
#
#   slow_disk_up DIR DELAY_US SIZE   below DIR, which should itself be fast;
#                                    sets slow_disk_mount, slow_disk_sync_us
#   slow_disk_down                   may be called at any time, and twice
#
# It is cleaned up on every way out: by cleanup_fn of tests/functions.sh where
# that is loaded, or else by traps of our own.  One disk at a time.
#
# From the environment: FAULTFS.  Needs root, loop devices and FUSE.

slow_disk_srcdir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
slow_disk_top=${abs_top_builddir:-$(cd "$slow_disk_srcdir/../.." && pwd)}
FAULTFS=${FAULTFS:-$slow_disk_top/tests/faultfs}
PATH=$PATH:/usr/sbin:/sbin

slow_disk_dir=
slow_disk_pid=
slow_disk_loop=
slow_disk_mount=
slow_disk_sync_us=

slow_disk_fail ()
{
  echo "slow-disk: $*" >&2
  return 1
}

# Whether this machine can have one; says why not.
slow_disk_possible ()
{
  local program

  [ "$(id -u)" -eq 0 ] || slow_disk_fail "only root can mount" || return
  [ -x "$FAULTFS" ] || slow_disk_fail "$FAULTFS is not built" || return
  [ -w /dev/fuse ] || slow_disk_fail "/dev/fuse cannot be used" || return
  [ -e /dev/loop-control ] || slow_disk_fail "no loop devices" || return
  for program in losetup mkfs.ext4 fusermount3 mountpoint; do
    command -v "$program" >/dev/null ||
      slow_disk_fail "$program is not installed" || return
  done
}

slow_disk_up ()
{
  local dir=$1 delay=$2 size=$3

  slow_disk_possible || return
  slow_disk_trap
  slow_disk_dir=$(mktemp -d "$dir/fatbatch-slow.XXXXXXXX") || return
  mkdir "$slow_disk_dir"/{backing,fuse,disk}
  truncate -s "$size" "$slow_disk_dir/backing/disk" || return

  # No delay yet: making the file system is not what is measured.
  # Without max_threads libfuse 3.14 complains about its own default.
  "$FAULTFS" -f -o max_threads=10 --control="$slow_disk_dir/control" \
    "$slow_disk_dir/backing" "$slow_disk_dir/fuse" \
    >"$slow_disk_dir/log" 2>&1 </dev/null &
  slow_disk_pid=$!
  slow_disk_wait mountpoint -q "$slow_disk_dir/fuse" ||
    slow_disk_fail "$(cat "$slow_disk_dir/log")" || return

  # Direct: a second page cache below would only cost memory.
  slow_disk_loop=$(losetup --find --show --direct-io=on \
                     "$slow_disk_dir/fuse/disk") || return
  mkfs.ext4 -q -F -m 0 "$slow_disk_loop" || return
  # Or the kernel goes on making the file system while we measure.
  mount -t ext4 -o noinit_itable "$slow_disk_loop" "$slow_disk_dir/disk" ||
    return
  slow_disk_mount=$slow_disk_dir/disk

  echo "fsync_delay_us=$delay" >"$slow_disk_dir/control.new"
  mv "$slow_disk_dir/control.new" "$slow_disk_dir/control"
  slow_disk_sync_us=$(python3 -B "$slow_disk_srcdir/sync_cost.py" \
                        "$slow_disk_mount")
}

# slow_disk_wait CMD ARG...: until it succeeds, for five seconds at most.
slow_disk_wait ()
{
  local i

  for ((i = 0; i < 100; i++)); do
    # In a trap, return alone gives the status from before it.
    "$@" && return 0
    sleep 0.05
  done
  return 1
}

slow_disk_trap ()
{
  if declare -F cleanup_fn >/dev/null; then
    cleanup_fn slow_disk_down
    return
  fi
  trap slow_disk_down EXIT
  trap 'exit 129' HUP
  trap 'exit 130' INT
  trap 'exit 143' TERM
}

slow_disk_down ()
{
  [ -n "$slow_disk_dir" ] || return 0
  # What is still dirty goes out without delays.
  rm -f "$slow_disk_dir/control"
  if mountpoint -q "$slow_disk_dir/disk"; then
    slow_disk_wait umount "$slow_disk_dir/disk" 2>/dev/null ||
      umount -l "$slow_disk_dir/disk" || :
  fi
  [ -z "$slow_disk_loop" ] || losetup -d "$slow_disk_loop" || :
  slow_disk_loop=
  if mountpoint -q "$slow_disk_dir/fuse"; then
    slow_disk_wait fusermount3 -u "$slow_disk_dir/fuse" 2>/dev/null ||
      fusermount3 -uz "$slow_disk_dir/fuse" || :
  fi
  if [ -n "$slow_disk_pid" ]; then
    kill "$slow_disk_pid" 2>/dev/null || :
    wait "$slow_disk_pid" 2>/dev/null || :
    slow_disk_pid=
  fi
  rm -rf "$slow_disk_dir"
  slow_disk_dir=
  slow_disk_mount=
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  set -euo pipefail
  if [ $# -ne 3 ]; then
    echo "usage: $0 DIR DELAY_US SIZE" >&2
    exit 2
  fi
  slow_disk_up "$@" || exit
  echo "$slow_disk_mount $slow_disk_sync_us"
  # Wakes up for signals, unlike cat; and at the end of standard input.
  while read -r _; do :; done
fi
