#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

# Image locking as QEMU does it, in both directions: neither serves for
# writing what the other has open, however the other ends.
#
# A read-only start needs the image to itself among writers, and so does
# every start; the right to write is taken with the first writable
# connection.  So another writer shows at start, another reader then.

. "$(dirname "$0")/../functions.sh"
requires qemu-io qemu-img nbdop nbdinfo
make_tmpdir

img=$tmpdir/disk.img
truncate -s 1M "$img"

# has_lock FIRST-BYTE LAST-BYTE: QEMU takes its locks one after the other.
has_lock () {
  grep -q "OFDLCK.*:$(stat -c %i "$img") $1 $2\$" /proc/locks
}

# Holds the image until release_image: as qemu-io, which lets others do as
# they like, writes or only reads; or as a virtual machine's disk, which
# lets others read only.  Byte 101 says "I write", 201 "others may not".

# hold_image_by_qemu_io LAST-BYTE [OPTION...]
hold_image_by_qemu_io () {
  local last=$1
  shift
  rm -f "$tmpdir/fifo"
  mkfifo "$tmpdir/fifo"
  qemu-io "$@" -f raw "$img" <"$tmpdir/fifo" >"$tmpdir/holder.log" 2>&1 &
  holder=$!
  cleanup_fn kill_job "$holder"
  exec 8>"$tmpdir/fifo"
  wait_until 10 has_lock 100 "$last" || fail "qemu-io does not lock the image"
}

# hold_image_by_vm READ-ONLY (on or off)
hold_image_by_vm () {
  qemu-system-x86_64 -S -machine pc,accel=tcg -nodefaults -display none \
    -drive "if=none,id=d,format=raw,file=$img,readonly=$1" \
    -device virtio-blk-pci,drive=d >"$tmpdir/holder.log" 2>&1 8>&- &
  holder=$!
  cleanup_fn kill_job "$holder"
  wait_until 20 has_lock 201 201 || fail "QEMU does not lock the image"
}

release_image () {
  exec 8>&-
  kill "$holder" 2>/dev/null || true
  wait "$holder" || true
}

# A connection that must get an error instead of an export.
expect_refused_connection () {
  ! "$nbdop" "$uri" read:0:512:0 >/dev/null 2>&1 ||
    fail "$1: the connection is served"
  server_says lock "$img" lock=off
}

# ---- we have it: QEMU refuses ----

start_server "$img"
expect_fail lock -- qemu-io -f raw -c 'write 0 512' "$img"
expect_answers ok -- write:0:512:0x11
mkfifo "$tmpdir/wait"
: >"$tmpdir/client"
"$nbdop" "$uri" write:512:512:0x22 wait <"$tmpdir/wait" >"$tmpdir/client" &
client=$!
cleanup_fn kill_job "$client"
exec 7>"$tmpdir/wait"
wait_until 10 grep -q ok "$tmpdir/client"
expect_fail lock -- qemu-io -f raw -c 'write 0 512' "$img"
expect_fail lock -- qemu-img resize -f raw "$img" 2M
expect_fail lock -- qemu-img convert -n -f raw -O raw "$img" "$img"
expect_bad_start lock "$img" lock=off -- "$img"
expect_bad_start lock "$img" lock=off -- -r -- "$img"
exec 7>&-
wait "$client"
stop_server
qemu-io -f raw -c 'read -P 0x11 0 512' -c 'read -P 0x22 512 512' \
  -c 'write -P 0 0 1k' "$img" >"$tmpdir/qemu-io.out"
! grep -i fail "$tmpdir/qemu-io.out" || fail "the writes are not there"

# ---- a killed server leaves no lock behind ----

start_server "$img"
expect_answers ok -- write:0:512:0
kill_server
qemu-io -f raw -c 'write 0 512' "$img" >/dev/null ||
  fail "SIGKILL leaves a lock behind"

# ---- QEMU has it: we refuse, unless lock=off ----

hold_image_by_qemu_io 101
expect_bad_start lock "$img" lock=off -- "$img"
expect_bad_start lock "$img" lock=off -- -r -- "$img"
start_server "$img" lock=off
expect_answers ok ok -- write:0:512:0x33 read:0:512:0x33
stop_server
release_image
start_server "$img"
expect_answers ok ok -- read:0:512:0x33 write:0:512:0
stop_server

# qemu-io -r lets others write: no reason to refuse.
hold_image_by_qemu_io 100 -r
start_server "$img"
expect_answers ok -- write:0:512:0
stop_server
release_image

# ---- two of ours ----

start_server -r -- "$img"
first=$pid first_uri=$uri
start_server -r -- "$img"
second=$pid
"$nbdop" "$first_uri" read:0:512:0 >/dev/null || fail "first reader"
expect_answers ok -- read:0:512:0
start_server "$img"
expect_refused_connection "writer beside two readers"
stop_server
stop_server "$first"
stop_server "$second"

# Readers gone, the refused server would be served: so is a new one.
start_server "$img"
expect_answers ok -- write:0:512:0
stop_server

# ---- a virtual machine's disk ----

if ! command -v qemu-system-x86_64 >/dev/null; then
  echo "$0: note: no qemu-system-x86_64: virtual machines not tested" >&2
  exit 0
fi

hold_image_by_vm on
start_server -r -- "$img"
expect_answers ok -- read:0:512:0
stop_server
start_server "$img"
expect_refused_connection "writer beside a virtual machine that reads"
release_image
expect_answers ok -- write:0:512:0
stop_server

hold_image_by_vm off
expect_bad_start lock "$img" lock=off -- "$img"
expect_bad_start lock "$img" lock=off -- -r -- "$img"
release_image

start_server "$img"
expect_answers ok -- write:0:512:0
qemu_status=0
timeout 20 qemu-system-x86_64 -S -machine pc,accel=tcg -nodefaults \
  -display none -drive "if=none,id=d,format=raw,file=$img" \
  -device virtio-blk-pci,drive=d >"$tmpdir/vm.log" 2>&1 || qemu_status=$?
[ "$qemu_status" -eq 1 ] ||
  fail "a virtual machine starts beside us: status $qemu_status"
grep -q lock "$tmpdir/vm.log" || fail "QEMU: $(cat "$tmpdir/vm.log")"
stop_server
