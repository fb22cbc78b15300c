#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

# Deferred commits of allocations (D9), on the real server: the parameter
# commit-delay with good and bad values; what a guest's stream costs with and
# without; and what kill -9 and a power cut leave of an allocation and of what
# refers to it.

. "$(dirname "$0")/mirror-lib.sh"
requires nbdop qemu-io mkfs.fat mcopy timeout od
[ -x "$fatbatch" ] || skip "$fatbatch is not built"
make_tmpdir

img=$tmpdir/disk.img

# ---- the parameter, and what it does to a guest's stream ----

# stream PARAMETER...: clusters appended on a synchronous mount by virtio-blk.
stream () {
  rm -f "$img"
  truncate -s 64M "$img"
  serve "$img" "$@"
  "$fatbatch" bench fallocate "$uri" --files=1 --size=20K --cluster=512 \
    --guest=6.1 --durable=fua --quiet >"$tmpdir/bench.out" ||
    fail "$*: $(cat "$tmpdir/bench.out")"
  stop_cleanly "$img"
}

deferring () {
  stream "$@"
  [ "$(counter commits_deferred)" -gt 0 ] || fail "$*: none deferred"
}
not_deferring () {
  stream "$@"
  [ "$(counter commits_deferred)" -eq 0 ] || fail "$*: deferred"
}

deferring
for delay in 0.001 .5 3600; do
  deferring commit-delay="$delay"
done
not_deferring commit-delay=0
not_deferring commit-delay=1 durability=block
not_deferring commit-delay=1 cache=unsafe
not_deferring commit-delay=1 intent=none

for bad in "" -1 soon 1s 1.5x inf nan 1e 0x "1 " 3601 1e30 .; do
  expect_bad_start commit-delay "$bad" second -- "$img" commit-delay="$bad"
done
"$NBDKIT" "$FATBATCH_SO" --help >"$tmpdir/help"
grep -qF commit-delay= "$tmpdir/help" || fail "--help lacks commit-delay"

# Nothing expires, so the number of syncs is exact: an appended cluster is one,
# where it was two.
stream commit-delay=0 mirror-delay=3600
groups=$(counter commit_groups)
stream commit-delay=3600 mirror-delay=3600
deferred=$(counter commits_deferred)
saved=$((groups - $(counter commit_groups)))
[ "$saved" -gt $((deferred * 9 / 10)) ] && [ "$saved" -le "$deferred" ] ||
  fail "$deferred deferred commits saved $saved of $groups"
[ "$saved" -gt $((groups * 4 / 10)) ] ||
  fail "$saved syncs saved, of $groups"

# ---- what is left of an allocation ----

# The client's requests are answered, and it keeps its connection: its end would
# be a flush.
client_lines=0
start_client () {
  rm -f "$tmpdir/requests"
  mkfifo "$tmpdir/requests"
  qemu-io -f raw -t writeback "$uri" <"$tmpdir/requests" \
    >"$tmpdir/answers" 2>&1 &
  client=$!
  cleanup_fn kill_job "$client"
  exec 8>"$tmpdir/requests"
  client_lines=0
}
end_client () {
  exec 8>&-
  { kill -9 "$client" && wait "$client"; } 2>/dev/null || true
}

has_answers () {
  [ "$(grep -c 'wrote 512/512 ' "$tmpdir/answers")" -ge "$1" ]
}

# fua FILE BYTE: 512 bytes.
fua () {
  client_lines=$((client_lines + 1))
  echo "write -f -s $1 $2 512" >&8
  wait_until 20 has_answers "$client_lines" ||
    fail "write of $1: $(cat "$tmpdir/answers")"
}

# put FILE BYTE HEX...: change these bytes.
put () {
  local file=$1 at=$2 byte
  shift 2
  for byte; do
    printf '%b' "\\x$byte"
  done | dd of="$file" bs=1 seek="$at" conv=notrunc status=none
}

# entry IMAGE COPY: entry 5 of slot 600 of FAT 1 (its byte) or the mirror.
entry () {
  number "$1" $(($2 + 600 * sector + 20)) 4
}
end_mark=268435455

# Cluster 600 * 128 + 5 = 0x12c05: a sector of a FAT with its end mark, and one
# of the data with a directory entry that names it.
head -c 512 /dev/zero >"$tmpdir/zeros"
cp "$tmpdir/zeros" "$tmpdir/allocated"
put "$tmpdir/allocated" 20 ff ff ff 0f
cp "$tmpdir/zeros" "$tmpdir/named"
put "$tmpdir/named" 64 4e 41 4d 45 20 20 20 20 20 20 20 20
put "$tmpdir/named" 84 01 00
put "$tmpdir/named" 90 05 2c
make_volume "$tmpdir/pristine.img"
data=$((mirror + fat_size + 40000 * 512))

# allocate: the window's record is there, the slot has been committed once, and
# then the end mark is deferred, in FAT 1 and in the mirror.
allocate () {
  start_client
  fua "$tmpdir/zeros" "$(slot 600)"
  fua "$tmpdir/zeros" "$(mirror_slot 600)"
  fua "$tmpdir/allocated" "$(slot 600)"
  fua "$tmpdir/allocated" "$(mirror_slot 600)"
}

# expect_entries IMAGE FAT1 MIRROR
expect_entries () {
  [ "$(entry "$1" "$fat1"):$(entry "$1" "$mirror")" = "$2:$3" ] ||
    fail "FAT 1, mirror: $(entry "$1" "$fat1"), $(entry "$1" "$mirror")"
}

never_syncs=(commit-delay=3600 mirror-delay=3600)

# D2: what was acknowledged survives the server.
copy_image "$tmpdir/pristine.img" "$img"
serve "$img" "${never_syncs[@]}"
allocate
kill_server
end_client
expect_entries "$img" "$end_mark" 0
again "$img" "${never_syncs[@]}"
expect_answers ok ok -- read:0:1:0xeb flush
stop_cleanly "$img"
expect_entries "$img" "$end_mark" "$end_mark"

# ---- and by a power cut that takes all that was not synced ----

requires faultfs fusermount3 mountpoint
img=$tmpdir/faulty/disk.img
backing=$tmpdir/backing/disk.img
mkdir -p "$tmpdir/backing"

power_on () {
  set_faults
  mount_faultfs --powercut=1 --keep=0 "$@"
}

is_cut () {
  stat "$img" >/dev/null 2>&1 || true
  grep -q '^cut$' "$fault_log"
}

power_off () {
  set_faults cut_at=1
  wait_until 20 is_cut || fail "the power is still on"
  kill_server
  end_client
  wait_until 30 fusermount3 -q -u "$tmpdir/faulty" || fail "still mounted"
}

# recover FAT1 MIRROR: what is there after the next start.
recover () {
  power_on
  again "$img" "${never_syncs[@]}"
  expect_answers ok ok -- read:0:1:0xeb flush
  stop_cleanly "$img"
  wait_until 30 fusermount3 -q -u "$tmpdir/faulty" || fail "still mounted"
  expect_entries "$backing" "$@"
}

# The storage's newest write is older than its newest sync.
is_synced () {
  awk '/^write/ { w = NR } /^f(data)?sync/ { s = NR }
       END { exit !(s > w) }' "$fault_log"
}

find_io_leaves
for io in $io_leaves; do
  # Alone it may be gone: a free cluster, in both copies.
  copy_image "$tmpdir/pristine.img" "$backing"
  power_on
  again "$img" "${never_syncs[@]}" io="$io"
  allocate
  power_off
  expect_entries "$backing" 0 0
  recover 0 0

  # But not if something refers to it that is there.
  copy_image "$tmpdir/pristine.img" "$backing"
  power_on
  again "$img" "${never_syncs[@]}" io="$io"
  allocate
  fua "$tmpdir/named" "$data"
  power_off
  cmp -s -n 512 -i "$data:0" "$backing" "$tmpdir/named" ||
    fail "a durable directory entry is gone"
  expect_entries "$backing" "$end_mark" 0
  recover "$end_mark" "$end_mark"

  # Nor after its time: here at once.
  copy_image "$tmpdir/pristine.img" "$backing"
  power_on
  again "$img" commit-delay=0.001 mirror-delay=3600 io="$io"
  allocate
  wait_until 20 is_synced || fail "commit-delay=0.001: no sync"
  power_off
  expect_entries "$backing" "$end_mark" 0
  recover "$end_mark" "$end_mark"
done
