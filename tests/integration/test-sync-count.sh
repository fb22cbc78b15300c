#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

# What the image's file system gets for each kind of request: its log tells
# that data arrived before the reply (D2), and how many syncs followed it
# before the reply (D1), in each cache mode, with each leaf.

. "$(dirname "$0")/../functions.sh"
requires faultfs nbdop fusermount3 mountpoint
make_tmpdir
find_io_leaves

mkdir "$tmpdir/backing"
truncate -s 1M "$tmpdir/backing/disk.img"
mount_faultfs
img=$tmpdir/faulty/disk.img

# expect_log OP WANTED: sends OP; the log then has these operations, in this
# order; "write+ sync" stands for one write or more, then one sync.  Trailing
# "?" : may be absent.
expect_log () {
  local got
  : >"$fault_log"
  expect_answers ok -- "$1"
  got=$(sed 's/ .*//; s/^fdatasync$/sync/; s/^fsync$/sync/' "$fault_log" |
        uniq | paste -sd' ')
  [[ $got =~ ^($2)$ ]] ||
    fail "cache=$cache io=$io $1: '$got', not '$2': $(cat "$fault_log")"
  # uniq joined neighbours: count the syncs apart.
  [ "$(grep -c sync "$fault_log")" -le 1 ] ||
    fail "cache=$cache io=$io $1: more than one sync: $(cat "$fault_log")"
}

for io in $io_leaves; do
  for cache in $cache_modes; do
    start_server "$img" cache="$cache" io="$io"
    # The first connection may have had things to do.
    expect_answers ok -- write:0:4k:1
    case $cache in
      writeback | none)
        expect_log write:0:4k:1 "write"
        expect_log write:4k:4k:2:fua "write sync"
        expect_log write:1:700:2:fua "write sync"
        expect_log zero:8k:4k:fua "(write|fallocate|fallocate write) sync"
        expect_log write:0:4k:3 "write"
        expect_log flush "sync" ;;
      writethrough | directsync)
        expect_log write:0:4k:1 "write sync"
        expect_log write:4k:4k:2:fua "write sync"
        expect_log write:1:700:2 "write sync"
        expect_log zero:8k:4k "(write|fallocate|fallocate write) sync"
        # All is durable already.
        expect_log flush "sync|" ;;
      unsafe)
        expect_log write:0:4k:1 "write"
        expect_log write:4k:4k:2:fua "write"
        expect_log zero:8k:4k:fua "write|fallocate|fallocate write"
        expect_log flush "" ;;
    esac
    : >"$fault_log"
    stop_server
    if [ "$cache" = unsafe ]; then
      ! grep -q sync "$fault_log" || fail "cache=unsafe: a sync at the end"
    fi
  done
done
