#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

# With deferred mirrors the image is in the end, byte for byte, what a server
# without any knowledge of FATs makes of the same requests, and no other file
# is there (D8); meanwhile reads return what was written (D3).

. "$(dirname "$0")/mirror-lib.sh"
requires mkfs.fat mcopy nbdcopy nbdop cmp qemu-img
requires_helpers mirror_stream fatbatch
make_tmpdir
requires_o_direct
find_io_leaves
choose_seed

clean=$tmpdir/clean.img         # a volume
blank=$tmpdir/blank.img         # nothing
other=$tmpdir/other.img         # another volume, to be copied
ours=$tmpdir/ours.img
theirs=$tmpdir/theirs.img
make_volume "$clean"
make_volume "$other" -i 0badcafe -R 9
locate_volume "$clean"
truncate -s 72M "$blank"
uring=io=posix
[ "$io_leaves" = posix ] || uring=io=uring

# ---- clients: functions that use $uri ----

bench_with () {
  "$fatbatch" bench "$1" "$uri" "${@:2}" --quiet --seed="$seed" \
    --output="$tmpdir/bench.out" ||
    fail "bench $*: $(cat "$tmpdir/bench.out")"
}

replay () {
  bench_with replay --trace="$traces/$1.trace"
}

# A guest that allocates clusters one by one, in the way of an old kernel, of a
# newer one, and in batches; and one that appends.
guests () {
  local guest
  for guest in 6.1 serial batched; do
    bench_with fallocate --guest="$guest" --durable="$1" --files=2 \
      --size=48K --cluster=512
  done
  bench_with append --size=16K --cluster=512 --durable="$1"
}

stream () {
  "$mirror_stream" "$uri" "$seed" "$1" "${@:2}" "$volume"
}

# The device gets a new volume while it is served.
make_anew () {
  stream 20
  nbdcopy "$other" "$uri"
  "$nbdop" "$uri" write:"$(slot 5)":1k:0x5a:fua \
    write:"$(mirror_slot 5)":1k:0x5a:fua trim:0:1M zero:1M:1M:may_trim flush \
    >"$tmpdir/nbdop.out" || fail "nbdop: $(cat "$tmpdir/nbdop.out")"
  nbdcopy "$clean" "$uri"
  stream 20
}

# ---- the comparison ----

# reference IMAGE CLIENT ARG...: what the judge makes of it.
reference () {
  start=$1
  client=("${@:2}")
  copy_image "$start" "$theirs"
  serve_plainly "$theirs"
  "${client[@]}" || fail "${client[*]}, with nbdkit's file plugin"
  stop_server
}

# same_with EXPECTED PARAMETER...: do we make the same of it?  EXPECTED: are
# mirrors `deferred`, or `none`?
same_with () {
  local n
  copy_image "$start" "$ours"
  serve "$ours" "${@:2}"
  "${client[@]}" || fail "${client[*]}, with ${*:2}"
  stop_cleanly "$ours"
  same_image "$ours" "$theirs" || fail "${client[*]}, ${*:2}: images differ"
  n=$(counter mirrors_deferred)
  case $1 in
    deferred) [ "$n" -gt 0 ] ||
                fail "${client[*]}, ${*:2}: none deferred: proves nothing" ;;
    none) [ "$n" -eq 0 ] || fail "${client[*]}, ${*:2}: deferred" ;;
  esac
}

# $never: not split.
read -ra late <<<"$never"

reference "$clean" stream 120
same_with deferred "$uring"
same_with deferred io=posix cache=writethrough "${late[@]}"
same_with deferred "$uring" cache=directsync mirror-batch=512
same_with deferred io=posix cache=none mirror-delay=0.001
same_with deferred "$uring" cache=unsafe mirror-delay=0.001
same_with none durability=block
echo "random requests: ok"

reference "$clean" stream 160 --boot
same_with deferred "$uring" "${late[@]}"
same_with deferred io=posix cache=directsync mirror-delay=0.001
same_with none durability=block cache=writethrough
echo "changing boot sectors: ok"

reference "$blank" replay sync-fallocate
same_with deferred cache=directsync
same_with none durability=block
reference "$blank" replay sync-tree
same_with deferred cache=writethrough "${late[@]}"
reference "$blank" replay async-tree
same_with deferred cache=writeback mirror-delay=0
echo "guests' traces: ok"

reference "$blank" guests fua
same_with deferred "$uring"
same_with deferred io=posix cache=none "${late[@]}"
reference "$blank" guests none
same_with deferred "$uring" cache=directsync
echo "guests: ok"

reference "$clean" make_anew
same_with deferred "${late[@]}"
same_with deferred cache=directsync
echo "new volumes: ok"
