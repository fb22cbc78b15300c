#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

# fio's random requests of many sizes, 4 connections with 16 in flight
# each, carry checksums that are right when read back, and again after a
# restart.

. "$(dirname "$0")/../functions.sh"
requires fio cmp
make_tmpdir
requires_o_direct
grep -qw nbd <<<"$(fio --enghelp)" || skip "fio has no nbd engine"
find_io_leaves

img=$tmpdir/disk.img

# run_fio NAME OPTION...: the same name gives the same requests.
run_fio () {
  local name=$1
  shift
  fio --output="$tmpdir/fio.out" --name="$name" --ioengine=nbd --uri="$uri" \
    --thread --numjobs=4 --iodepth=16 --size=6M --offset_increment=6M \
    --verify=crc32c --verify_fatal=1 --verify_state_save=0 --randseed=11 \
    --group_reporting "$@" >"$tmpdir/fio.err" 2>&1 ||
    fail "io=$io cache=$cache: fio $name $*:" \
         "$(cat "$tmpdir/fio.err" "$tmpdir/fio.out")"
}

for io in $io_leaves; do
  for cache in writeback none directsync; do
    rm -f "$img"
    truncate -s 24M "$img"
    start_server "$img" io="$io" cache="$cache"
    run_fio mixed --rw=randrw --bsrange=512-64k --fsync=64
    # Odd sizes: no two requests begin or end on one alignment.
    run_fio odd --rw=randwrite --bs=1537 --fsync=128 --io_size=1M
    run_fio sizes --rw=randwrite --bsrange=512-64k --bs_unaligned
    stop_server

    start_server -r -- "$img" io="$io" cache="$cache"
    run_fio sizes --rw=randwrite --bsrange=512-64k --bs_unaligned \
      --verify_only
    stop_server
  done
done
