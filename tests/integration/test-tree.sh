#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

# Writes in front of files' ends, and others (tree.h), on the real server: what
# the counters say of each kind, with each value of parallel=, and good and bad
# values of that.

. "$(dirname "$0")/mirror-lib.sh"
requires nbdop mkfs.fat mcopy od
make_tmpdir

img=$tmpdir/disk.img
make_volume "$tmpdir/clean.img"
data=$((fat1 + 2 * fat_size))           # cluster 2, the root directory
inside=$((data + 64 * 1024))            # of the first file
free=$((data + 20 * 1024 * 1024))
# The mirrors' own syncs are not what is counted here.
never="$never commit-delay=0"

# sent WAIT PARAMETER... -- OP...: what a client sends after so many seconds.
sent () {
  local wait=$1 parameters=()
  shift
  while [ "$1" != -- ]; do
    parameters+=("$1")
    shift
  done
  shift
  copy_image "$tmpdir/clean.img" "$img"
  # shellcheck disable=SC2086
  serve "$img" $never "${parameters[@]}"
  { sleep "$wait"; echo; } | "$nbdop" "$uri" wait "$@" >"$tmpdir/answers" ||
    fail "$*: $(cat "$tmpdir/answers")"
  stop_cleanly "$img"
}

# counted NAME=VALUE...: of the last server.
counted () {
  local pair
  for pair in "$@"; do
    [ "$(counter "${pair%=*}")" -eq "${pair#*=}" ] || return 1
  done
}

# found_out PARAMETER... -- OP... -- NAME=VALUE...: the server has had the time
# to look at the files, however slow the machine is.
found_out () {
  local all=("$@") i=0 wait
  while [ "${all[i]}" != -- ]; do i=$((i + 1)); done
  i=$((i + 1))
  while [ "${all[i]}" != -- ]; do i=$((i + 1)); done
  for wait in .2 1 5 20; do
    sent "$wait" "${all[@]:0:i}"
    ! counted "${all[@]:i+1}" || return 0
  done
  fail "$*: $(grep -E 'place|ordered|struct|truncate' "$server_log")"
}

for parallel in on off; do
  found_out parallel=$parallel -- write:$inside:4k:1 write:$inside:512:2:fua -- \
    inplace_writes=2 ordered_writes=0 structural_writes=0 ordered_syncs=0
  # Data where no file is; then metadata that might expose it.
  found_out parallel=$parallel -- \
    write:$free:4k:1 write:"$(slot 1000)":512:0:fua -- \
    inplace_writes=0 ordered_writes=1 structural_writes=1 ordered_syncs=1
  found_out parallel=$parallel -- \
    write:$free:4k:1 flush write:"$(slot 1000)":512:0:fua -- ordered_syncs=0
  found_out parallel=$parallel -- \
    write:$free:4k:1:fua write:"$(slot 1000)":512:0:fua -- ordered_syncs=0
  found_out parallel=$parallel -- \
    write:$free:4k:1 write:"$(slot 1000)":512:0 -- ordered_syncs=0
  # In place nothing is exposed.
  found_out parallel=$parallel -- \
    write:$inside:4k:1 write:$data:512:0:fua -- \
    inplace_writes=1 structural_writes=1 ordered_syncs=0
  # The first file's clusters are freed; of free ones nothing has to be.
  found_out parallel=$parallel -- write:"$(slot 1)":512:0 -- truncate_waits=1
  found_out parallel=$parallel -- write:"$(slot 1000)":512:0 -- \
    structural_writes=1 truncate_waits=0
done

# A file that is cut off: what was its is not settled any more.
found_out -- write:"$(slot 1)":512:0 write:$inside:4k:1 -- \
  structural_writes=1 inplace_writes=0 ordered_writes=1

found_out durability=block -- \
  write:$inside:4k:1 write:$free:4k:1 write:"$(slot 1)":512:0:fua -- \
  inplace_writes=0 ordered_writes=0 structural_writes=0 ordered_syncs=0 \
  truncate_waits=0 tree_scans=0

# A file that grows is followed, and nothing has to be looked for again.
if [ -x "$fatbatch" ]; then
  rm -f "$img"
  truncate -s 1G "$img"
  serve "$img"
  "$fatbatch" bench append "$uri" --size=16M --bs=64K --cluster=4K \
    --durable=fua --quiet >"$tmpdir/bench.out" ||
    fail "append: $(cat "$tmpdir/bench.out")"
  stop_cleanly "$img"
  counted tree_doubts=0 || fail "append: $(counter tree_doubts) doubts"
fi

# Nobody writes, so nothing is looked for.
serve -r -- "$img"
nbdinfo --size "$uri" >/dev/null
stop_server
counted tree_scans=0 || fail "-r: a scan"

for bad in "" yes ON 2 "on "; do
  expect_bad_start parallel "$bad" on off -- "$img" parallel="$bad"
done
"$NBDKIT" "$FATBATCH_SO" --help >"$tmpdir/help"
grep -qF parallel= "$tmpdir/help" || fail "--help lacks parallel"
"$NBDKIT" --dump-plugin "$FATBATCH_SO" >"$tmpdir/dump"
grep -qx 'fatbatch_parallel=on off' "$tmpdir/dump" ||
  fail "--dump-plugin lacks fatbatch_parallel"
