#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

# Starting and ending: SIGTERM during load ends cleanly and loses nothing
# that was acknowledged; connections leave nothing behind; and after SIGKILL
# a new server takes over (D2: acknowledged writes survive the process).

. "$(dirname "$0")/../functions.sh"
requires nbdop fio
make_tmpdir
find_io_leaves

img=$tmpdir/disk.img

count () {
  find "/proc/$pid/$1" -mindepth 1 -maxdepth 1 | wc -l
}

fewer_or_equal () {
  [ "$(count fd)" -le "$1" ] && [ "$(count task)" -le "$2" ]
}

load_runs () {
  [ "$(stat -c %b "$img")" -gt 2048 ]
}

for io in $io_leaves; do
  rm -f "$img"
  truncate -s 64M "$img"

  # ---- SIGTERM during load ----
  start_server "$img" io="$io"
  expect_answers ok -- write:63M:1M:0x5a
  fio --output=/dev/null --name=load --ioengine=nbd --uri="$uri" --thread \
    --numjobs=2 --iodepth=16 --rw=randwrite --bs=4k --size=60M --fsync=32 \
    --time_based --runtime=60 >/dev/null 2>&1 &
  load=$!
  cleanup_fn kill_job "$load"
  wait_until 20 load_runs || fail "io=$io: fio writes nothing"
  stop_server
  kill "$load" 2>/dev/null || true
  wait "$load" || true
  start_server "$img" io="$io"
  expect_answers ok -- read:63M:1M:0x5a

  # ---- connections leave nothing behind ----
  # The first ones may create what is kept for all.
  ops=(write:0:5:1:fua read:0:5:1 zero:100:1k flush trim:4k:4k)
  expect_answers ok ok ok ok ok -- "${ops[@]}"
  expect_answers ok ok ok ok ok -- "${ops[@]}"
  # Of those two, the threads may be on their way out still.
  sleep 0.5
  fds=$(count fd) tasks=$(count task)
  for i in $(seq 20); do
    expect_answers ok ok ok ok ok -- "${ops[@]}"
  done
  wait_until 5 fewer_or_equal "$fds" "$tasks" ||
    fail "io=$io: 20 connections: $fds descriptors, $tasks threads became" \
         "$(count fd), $(count task)"

  # ---- SIGKILL, and a new server on the same socket ----
  expect_answers ok ok -- write:1234567:99999:0x77 write:5M:1:0x78
  kill_server
  [ -S "$sock" ] || fail "no stale socket: this test proves nothing"
  rm "$sock"
  server_count=$((server_count - 1))
  rm "$tmpdir"/server.*.pid
  start_server "$img" io="$io"
  expect_answers ok ok ok -- \
    read:1234567:99999:0x77 read:5M:1:0x78 read:63M:1M:0x5a
  stop_server
done
