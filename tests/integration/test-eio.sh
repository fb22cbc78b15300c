#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

# D6: a sync that failed is an error at the client, and from then on every
# FUA write and every FLUSH fails, though the storage works again.  Reads go
# on, and a restart serves again.  In each cache mode but unsafe, which
# never syncs, with each leaf.

. "$(dirname "$0")/../functions.sh"
requires faultfs nbdop fusermount3 mountpoint
make_tmpdir
find_io_leaves

mkdir "$tmpdir/backing"
truncate -s 1M "$tmpdir/backing/disk.img"
mount_faultfs
img=$tmpdir/faulty/disk.img

# Plain writes are durable in the modes that sync each write.
set_plain () {
  case $cache in
    writethrough | directsync) plain="error EIO" ;;
    *) plain=ok ;;
  esac
}

for io in $io_leaves; do
  for cache in writeback writethrough none directsync; do
    set_plain

    # ---- a sync fails under a FUA write ----
    set_faults
    start_server "$img" cache="$cache" io="$io"
    expect_answers ok ok ok -- write:0:64k:0x11 write:64k:512:0x22:fua flush
    set_faults fsync_error=EIO
    expect_answers "error EIO" -- write:128k:512:0x33:fua
    set_faults
    expect_answers "error EIO" "error EIO" "error EIO" "error EIO" -- \
      write:4k:512:0x44:fua flush flush zero:8k:512:fua
    # A trim that did not happen needs no sync, but this one says FUA.
    expect_answers "error EIO" -- trim:16k:4k:fua
    expect_answers ok ok "$plain" -- \
      read:0:4k:0x11 read:64k:512:0x22 write:256k:512:0x55
    stop_server

    start_server "$img" cache="$cache" io="$io"
    expect_answers ok ok ok ok -- \
      read:64k:512:0x22 write:128k:512:0x66:fua flush read:128k:512:0x66
    stop_server

    # ---- a sync fails under a FLUSH ----
    case $cache in
      writeback | none)
        start_server "$img" cache="$cache" io="$io"
        expect_answers ok -- write:0:64k:0x11
        set_faults fsync_error=EIO
        expect_answers "error EIO" -- flush
        set_faults
        expect_answers "error EIO" "error EIO" ok -- \
          flush write:0:512:0x11:fua read:0:64k:0x11
        stop_server ;;
    esac

    # ---- a write fails: the error is the storage's own ----
    start_server "$img" cache="$cache" io="$io"
    set_faults write_error=ENOSPC
    expect_answers "error ENOSPC" -- write:0:4k:0x77
    set_faults
    expect_answers "error EIO" "error EIO" ok -- \
      write:0:4k:0x77:fua flush read:64k:512:0x22
    stop_server
  done

  # ---- unsafe never syncs: nothing to fail ----
  cache=unsafe
  set_faults fsync_error=EIO
  start_server "$img" cache="$cache" io="$io"
  expect_answers ok ok ok -- write:0:4k:1:fua flush read:0:4k:1
  stop_server
  set_faults
done
