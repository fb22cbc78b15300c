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

attempt try_groups serial 1
attempt try_groups batched 8
attempt try_replay
serve memory --filter=delay -- $size wdelay=10ms
bench replay --trace="$tmpdir/batched.log" --concurrency=serial
grep -E ' Write .* fua=1 |\.\.\.Write ' "$log" >"$tmpdir/again.log"
up_to 1 "$tmpdir/again.log" 0 $((1 << 40)) || fail "nothing was sent"
stop_server
echo "in flight: ok"

# ---- output ----

serve memory $size
"$fatbatch" bench fua "$uri" --count=10 --csv >"$tmpdir/out.csv"
[ "$(wc -l <"$tmpdir/out.csv")" -eq 2 ] || fail "CSV has not 2 lines"
[ "$(awk -F, 'NR == 1 { print NF }' "$tmpdir/out.csv")" -eq \
  "$(awk -F, 'NR == 2 { print NF }' "$tmpdir/out.csv")" ] ||
  fail "CSV: header and row differ in length: $(cat "$tmpdir/out.csv")"
"$fatbatch" bench fua "$uri" --count=10 --no-verify --quiet \
  >"$tmpdir/out.txt" 2>"$tmpdir/err.txt"
grep -q 'data skipped, fsck.fat skipped' "$tmpdir/out.txt" ||
  fail "--no-verify checks"
grep -q 'requests  *10: 10 writes (10 with FUA), 0 flushes' \
  "$tmpdir/out.txt" || fail "the table lacks the requests"
[ ! -s "$tmpdir/err.txt" ] || fail "stderr is not empty"
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
