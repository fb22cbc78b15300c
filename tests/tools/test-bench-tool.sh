#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck disable=SC1091,SC2034,SC2154,SC2209
#
# `fatbatch bench`: each workload against other people's servers; what it says
# it sent is what the server got, and what was in flight at once is what should
# be; the formats of the result.

. "$(dirname "$0")/bench.sh"

# ---- each workload; what the server got is what the result says ----

# FUA is used by nothing but the stream; making the volume costs a FLUSH.
expect_counts () {
  [ "$(field .result.fua)" -eq "$(logged ' Write .* fua=1 ')" ] ||
    fail "result has $(field .result.fua) FUA writes," \
         "the log $(logged ' Write .* fua=1 ')"
  [ "$(($(field .result.flushes) + $1))" -eq "$(logged ' Flush ')" ] ||
    fail "result has $(field .result.flushes) flushes, and $1 untimed," \
         "the log $(logged ' Flush ')"
}

# behind_volume LOG: the bytes of each write from 33 MiB on, which is where the
# smallest volume, of 65525 clusters of 512 bytes, has ended.
behind_volume () {
  sed -n -E 's/.* Write id=[0-9]+ offset=([^ ]+) count=([^ ]+) .*/\1 \2/p' \
    "$1" |
    while read -r offset count; do
      if [ $((offset)) -ge $((33 << 20)) ]; then
        echo $((count))
      fi
    done
}

test_workloads () {
  local guest

  # 3 files of 128 clusters: 4 writes each, but 2 for a file's first; two of
  # the directory for each file, one of FSInfo.
  serve "$@"
  bench fallocate --files=3 --size=64K --cluster=512
  expect .result.fat_sectors $((3 * (4 * 128 - 2)))
  expect .result.ops $((3 * (4 * 128 - 2) + 3 * 2 + 1))
  expect .result.fua $((3 * (4 * 128 - 2) + 3 * 2 + 1))
  expect .result.latency_us.count $((3 * (4 * 128 - 2) + 3 * 2 + 1))
  expect '[.result.histogram[][1]] | add' $((3 * (4 * 128 - 2) + 3 * 2 + 1))
  expect .verify.fsck clean
  expect_counts 1
  stop_server

  serve "$@"
  bench fallocate --files=3 --size=64K --cluster=512 --durable=flush
  expect .result.fua 0
  expect .result.flushes 3
  expect_counts 1
  stop_server

  serve "$@"
  bench fallocate --files=3 --size=64K --cluster=512 --durable=none
  expect .result.fua 0
  expect .result.flushes 0
  expect_counts 1
  stop_server

  # More directory entries than a cluster holds, and a stream cut short, after
  # the cluster that is being appended: 510, then 2, then 4 for each.
  serve "$@"
  bench fallocate --files=40 --size=64K --cluster=512 --limit=1001
  expect .result.fat_sectors 1004
  expect .verify.fsck clean
  expect_counts 1
  stop_server

  # 256 clusters a file are 2 to 3 sectors of FAT: cluster 3 on.
  for guest in serial batched; do
    serve "$@"
    bench fallocate --preset=1M-4K --guest="$guest"
    expect .result.fat_sectors $((16 * 3 * 2))
    expect .options.files 16
    expect .options.size 1048576
    expect .options.cluster 4096
    expect .verify.fsck clean
    expect_counts 1
    stop_server
  done

  serve "$@"
  bench append --size=100001 --bs=1536 --cluster=2K
  expect .result.fat_sectors $((49 * 4 - 2))
  expect .verify.fsck clean
  expect_counts 1
  expect '.result | .first_tenth_us > 0 and .last_tenth_us > 0' true
  stop_server

  serve "$@"
  bench append --size=64K --cluster=512 --durable=flush
  expect .result.flushes 16
  expect_counts 1
  stop_server

  serve "$@"
  bench fua --clients=3 --count=50
  expect .result.fua 150
  expect .verify.fsck clean
  expect_counts 3               # two for the volume, one for the places
  expect '.result | has("first_tenth_us")' false
  stop_server

  # Dirty bytes: as many as asked for, behind the volume, before the first FUA
  # write; no flush is added.
  serve "$@"
  bench fua --clients=2 --count=5 --dirty=5000K
  expect .options.dirty 5120000
  expect .result.fua 10
  expect .result.bytes 5120
  expect .verify.fsck clean
  expect_counts 3
  behind_volume "$log" >"$tmpdir/behind"
  [ "$(awk '{ n += $1 } END { print n + 0 }' "$tmpdir/behind")" -eq 5120000 ] ||
    fail "--dirty=5000K: other bytes were written: $(cat "$tmpdir/behind")"
  [ "$(logged ' Flush ')" -eq \
    "$(sed '/ fua=1 /,$d' "$log" | grep -c ' Flush ')" ] ||
    fail "--dirty: a flush after the first FUA write"
  awk '/ Flush / { dirty = 0 }
       / Write .* count=0x100000 fua=0 / { dirty = 1 }
       / Write .* fua=1 / { exit !dirty }' "$log" ||
    fail "--dirty: flushed, or not written before the first FUA write"
  stop_server

  serve "$@"
  bench randwrite --jobs=2 --iodepth=4 --runtime=0.3 --size=1M --bs=2K
  expect .result.fua 0
  expect .verify.fsck clean
  [ "$(field .result.ops)" -eq "$(logged ' Write .* count=0x800 ')" ] ||
    fail "result and log differ in the number of random writes"
  expect '.result | has("metadata_latency_us")' false
  stop_server

  serve "$@"
  bench randwrite --preset=published --runtime=0.5 --size=8M --metadata
  expect .options.jobs 8
  expect .options.iodepth 32
  expect .verify.fsck clean
  expect .result.metadata_fua "$(logged ' Write .* fua=1 ')"
  expect .result.metadata_latency_us.count "$(logged ' Write .* fua=1 ')"
  stop_server
}

truncate -s $size "$tmpdir/export"
test_workloads memory $size
test_workloads file "$tmpdir/export"
echo "workloads: ok"

# ---- traces ----

for trace in "$traces"/*.trace; do
  serve memory 64M
  bench replay --trace="$trace"
  expect .verify.fsck clean
  expect .result.writes "$(grep -c '^W' "$trace")"
  expect .result.fua "$(grep -c '^W [^ ]* [^ ]* fua' "$trace" || true)"
  expect .result.flushes "$(grep -c '^F' "$trace")"
  expect_counts 1
  # The requests, in order.
  diff <(sed -n -E 's/.* Write id=[0-9]+ offset=([^ ]+) count=([^ ]+) fua=([01]) .*/\1 \2 \3/p' "$log" |
           while read -r offset count fua; do
             echo $((offset)) $((count)) "$fua"
           done | tail -n "$(grep -c '^W' "$trace")" | sort) \
       <(sed -n -E 's/^W ([^ ]+) ([^ ]+) (fua|-) .*/\1 \2 \3/p' "$trace" |
           while read -r offset count fua; do
             echo $((offset)) $((count)) \
                  "$([ "$fua" = fua ] && echo 1 || echo 0)"
           done | sort) >/dev/null || fail "$trace: other requests were sent"
  bench replay --trace="$trace" --concurrency=serial
  stop_server
done
echo "traces: ok"

# ---- what is in flight at once ----

# in_flight LOG START END: how many writes to those bytes, at most.
in_flight () {
  sed -n -E \
    -e 's/.* (Write) id=([0-9]+) offset=([^ ]+) .*/begin \2 \3/p' \
    -e 's/.* \.\.\.(Write) id=([0-9]+) .*/end \2/p' "$1" |
    while read -r what id offset; do
      if [ "$what" = begin ]; then
        echo begin "$id" $((offset))
      else
        echo end "$id"
      fi
    done |
    awk -v start="$2" -v end="$3" '
      $1 == "begin" && $3 >= start && $3 < end {
        open[$2] = 1; if (++n > max) max = n }
      $1 == "end" && $2 in open { delete open[$2]; n-- }
      END { print max + 0 }'
}

# What is sent at once is seen at once if the server takes its time; on a busy
# machine not always, so there are several attempts.  More than there should
# be is never seen.

# up_to N LOG START END: whether it was N.  More is a failure.
up_to () {
  local n
  n=$(in_flight "${@:2}")
  [ "$n" -le "$1" ] || fail "$n requests in flight, not $1"
  [ "$n" -eq "$1" ]
}

# try_groups GUEST MIRRORS: 1500 clusters are 12 sectors of the FAT, a group of
# 8, and the rest.
try_groups () {
  local guest=$1 mirrors=$2 fat kept=$tmpdir/$1.log
  serve file --filter=delay -- "$tmpdir/export" wdelay=50ms
  bench fallocate --files=1 --size=750K --cluster=512 --guest="$guest"
  stop_server
  fat=$(od -An -v -tu4 --endian=little -j 36 -N 4 "$tmpdir/export")
  fat=$((fat * 512))
  # Making the volume is not of interest: its writes have no FUA.
  grep -E ' Write .* fua=1 |\.\.\.Write ' "$log" >"$kept"
  up_to 8 "$kept" 16384 $((16384 + fat)) &&
    up_to "$mirrors" "$kept" $((16384 + fat)) $((16384 + 2 * fat)) &&
    up_to 8 "$kept" 0 $((1 << 40))
}

# A log of nbdkit's log filter is replayed with what was in flight with what.
try_replay () {
  serve memory --filter=delay -- $size wdelay=50ms
  bench replay --trace="$tmpdir/batched.log"
  expect .result.fua "$(grep -c fua=1 "$tmpdir/batched.log")"
  stop_server
  grep -E ' Write .* fua=1 |\.\.\.Write ' "$log" >"$tmpdir/again.log"
  up_to 8 "$tmpdir/again.log" 0 $((1 << 40))
}

# attempt CMD ARG...
attempt () {
  local i
  for i in 1 2 3 4 5 6; do
    if "$@"; then
      return
    fi
    echo "attempt $i: not all at once: $*"
  done
  fail "never all at once: $*"
}

# Whatever is to be dirty is written with many requests in flight.
try_dirty () {
  serve memory --filter=delay -- $size wdelay=20ms
  bench fua --count=1 --dirty=40M
  stop_server
  up_to 16 "$log" $((33 << 20)) $((1 << 40))
}

attempt try_dirty
attempt try_groups serial 1
attempt try_groups batched 8
attempt try_replay
serve memory --filter=delay -- $size wdelay=10ms
bench replay --trace="$tmpdir/batched.log" --concurrency=serial
grep -E ' Write .* fua=1 |\.\.\.Write ' "$log" >"$tmpdir/again.log"
up_to 1 "$tmpdir/again.log" 0 $((1 << 40)) || fail "nothing was sent"
stop_server
echo "in flight: ok"

# ---- tenths ----

# A server that sleeps a second for each data write but the first ten: of
# twelve, the last tenth is the last one.
truncate -s 64M "$tmpdir/slowing"
: >"$tmpdir/count"
FATBATCH_SO=eval
start_server get_size='echo 64M' can_write='exit 0' can_fua='echo native' \
  can_flush='exit 0' flush='exit 0' thread_model='echo serialize_requests' \
  pread="dd if='$tmpdir/slowing' iflag=skip_bytes,count_bytes bs=1M \
            skip=\$4 count=\$3 status=none" \
  pwrite="if [ \$3 = 1024 ]; then
            echo >>'$tmpdir/count'
            [ \$(wc -l <'$tmpdir/count') -le 10 ] || sleep 1
          fi
          dd of='$tmpdir/slowing' oflag=seek_bytes bs=1M seek=\$4 \
             conv=notrunc iflag=fullblock status=none"
bench append --size=12K --bs=1K --cluster=512
[ "$(wc -l <"$tmpdir/count")" -eq 12 ] || fail "not 12 writes of data"
expect '.result | .last_tenth_us >= 1000000' true
expect '.result | .first_tenth_us + .last_tenth_us <= .seconds * 1e6' true
stop_server
FATBATCH_SO=memory
echo "tenths: ok"

# ---- output ----

serve memory $size
"$fatbatch" bench fua "$uri" --count=10 --csv >"$tmpdir/out.csv"
[ "$(wc -l <"$tmpdir/out.csv")" -eq 2 ] || fail "CSV has not 2 lines"
"$fatbatch" bench append "$uri" --csv >"$tmpdir/append.csv"
for file in out append; do
  [ "$(awk -F, '{ print NF }' "$tmpdir/$file.csv" | uniq | wc -l)" -eq 1 ] ||
    fail "$file.csv: header and row differ in length"
done
"$fatbatch" bench fua "$uri" --count=10 --no-verify --quiet \
  >"$tmpdir/out.txt" 2>"$tmpdir/err.txt"
grep -q 'data skipped, fsck.fat skipped' "$tmpdir/out.txt" ||
  fail "--no-verify checks"
grep -q 'requests  *10: 10 writes (10 with FUA), 0 flushes' \
  "$tmpdir/out.txt" || fail "the table lacks the requests"
[ ! -s "$tmpdir/err.txt" ] || fail "stderr is not empty"
"$fatbatch" bench append "$uri" >"$tmpdir/out.txt"
grep -q -E '^write\(2\), us +first tenth [0-9.]+  last tenth [0-9.]+$' \
  "$tmpdir/out.txt" || fail "the table of append lacks its tenths"
# The same seed, the same bytes.
bench append --seed=7
nbdcopy "$uri" "$tmpdir/first"
bench append --seed=7
nbdcopy "$uri" "$tmpdir/second"
cmp "$tmpdir/first" "$tmpdir/second" || fail "--seed: different bytes"
bench append --seed=8
nbdcopy "$uri" "$tmpdir/second"
! cmp -s "$tmpdir/first" "$tmpdir/second" || fail "--seed changes nothing"
rm "$tmpdir/first" "$tmpdir/second"
stop_server
echo "output: ok"
