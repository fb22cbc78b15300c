#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck disable=SC1091,SC2034,SC2154,SC2209
#
# `fatbatch bench` notices a server that loses writes, fails or goes away, and
# explains wrong usage.

. "$(dirname "$0")/bench.sh"

# ---- servers that lie, fail, or go away ----

# serve_liar CONDITION: loses the writes for which the shell's condition on
# count ($3) and offset ($4) holds.
serve_liar () {
  truncate -s 0 "$tmpdir/lies"
  truncate -s 64M "$tmpdir/lies"
  FATBATCH_SO=eval
  start_server get_size='echo 64M' can_write='exit 0' \
    can_fua='echo native' can_flush='exit 0' flush='exit 0' \
    thread_model='echo serialize_requests' \
    pread="dd if='$tmpdir/lies' iflag=skip_bytes,count_bytes bs=1M \
              skip=\$4 count=\$3 status=none" \
    pwrite="if $1; then cat >/dev/null
            else dd of='$tmpdir/lies' oflag=seek_bytes bs=1M seek=\$4 \
                    conv=notrunc iflag=fullblock status=none; fi"
}

serve_liar false
bench fallocate --files=1 --size=4K --cluster=512
bench append --size=2K --bs=512 --cluster=512
stop_server

fat2=$((16384 + $(od -An -v -tu4 --endian=little -j 36 -N 4 \
                     "$tmpdir/lies") * 512))
serve_liar "[ \$3 = 512 ] && [ \$4 = $fat2 ]"
expect_status 1 "FAT 2" -- \
  "$fatbatch" bench fallocate "$uri" --files=1 --size=4K --cluster=512
grep -q 'data failed, fsck.fat failed' "$tmpdir/out" ||
  fail "the table does not tell what failed: $(cat "$tmpdir/out")"
"$fatbatch" bench fallocate "$uri" --files=1 --size=4K --cluster=512 \
  --no-verify --quiet >/dev/null || fail "--no-verify checks"
stop_server

# Data, but not the metadata in front of it.
data=$((fat2 + fat2 - 16384))
serve_liar "[ \$3 = 512 ] && [ \$4 -gt $data ]"
expect_status 1 "not what was written" -- \
  "$fatbatch" bench append "$uri" --size=2K --bs=512 --cluster=512
stop_server
serve_liar "[ \$3 = 4096 ]"
expect_status 1 "not what was written" -- \
  "$fatbatch" bench fua "$uri" --bs=4096 --count=3
expect_status 1 "not what was written" -- \
  "$fatbatch" bench randwrite "$uri" --size=64K --cluster=512 --runtime=0.1
stop_server
# Of --dirty's two pieces, the second.
serve_liar "[ \$3 = 4608 ]"
expect_status 1 "--dirty" "not what was written" -- \
  "$fatbatch" bench fua "$uri" --count=1 --dirty=1053184
grep -q 'data failed, fsck.fat clean' "$tmpdir/out" ||
  fail "lost bytes of --dirty: $(cat "$tmpdir/out")"
stop_server
serve_liar "[ \$3 = 4096 ]"
printf '%s\n' 'fatbatch-trace 1' 'size 1048576' 'W 0 512 - *' \
  'W 65536 4096 fua *' >"$tmpdir/small.trace"
expect_status 1 "0x10000" -- \
  "$fatbatch" bench replay "$uri" --trace="$tmpdir/small.trace"
stop_server

# A trace that stops in the middle of a write to the FATs leaves clusters
# that belong to no file.
FATBATCH_SO=memory
start_server 64M
head -n 40 "$traces/sync-fallocate.trace" >"$tmpdir/cut.trace"
expect_status 1 "fsck.fat" -- \
  "$fatbatch" bench replay "$uri" --trace="$tmpdir/cut.trace"
grep -q 'data ok, fsck.fat failed' "$tmpdir/out" ||
  fail "a broken file system is not told apart from lost data"
stop_server

start_server --filter=error -- $size error-pwrite=EIO error-pwrite-rate=100%
expect_status 3 "Input/output error" -- "$fatbatch" bench fua "$uri"
stop_server
start_server -r -- $size
expect_status 3 "read-only" -- "$fatbatch" bench fua "$uri"
stop_server
start_server 1M
expect_status 3 "1048576 bytes" "are needed" -- "$fatbatch" bench fua "$uri"
stop_server
start_server $size
expect_status 3 "335544320 bytes" "are needed" "--dirty=314572800" -- \
  "$fatbatch" bench fua "$uri" --dirty=300M
expect_status 3 "--dirty=1099511627776" -- \
  "$fatbatch" bench fua "$uri" --dirty=1T
stop_server
FATBATCH_SO=eval
start_server get_size='echo 1G' can_write='exit 0' can_fua='echo none' \
             can_flush='exit 3' pread='exit 1' pwrite='exit 1'
expect_status 3 "FUA" "--durable=flush" -- "$fatbatch" bench append "$uri"
expect_status 3 "FLUSH" "--durable=none" -- \
  "$fatbatch" bench append "$uri" --durable=flush
stop_server
FATBATCH_SO=memory

start_server $size
"$fatbatch" bench fua "$uri" --clients=2 --runtime=60 \
  >"$tmpdir/out" 2>"$tmpdir/err" &
job=$!
cleanup_fn kill_job "$job"
sleep 0.5
kill_server
status=0
wait "$job" || status=$?
[ "$status" -eq 3 ] || fail "status $status when the server is killed"
expect_status 3 "$sock" -- "$fatbatch" bench fua "$uri"
expect_status 3 "nosuch" -- \
  "$fatbatch" bench fua "nbd+unix:///?socket=$tmpdir/nosuch"
echo "servers that lie, fail, or go away: ok"

# ---- wrong usage ----

nowhere="nbd+unix:///?socket=$tmpdir/nosuch"
expect_status 0 -- "$fatbatch" --help
expect_status 0 -- "$fatbatch" --version
grep -q '^fatbatch [0-9]' "$tmpdir/out" || fail "--version tells no version"
expect_status 0 -- "$fatbatch" bench --help
for word in fallocate randwrite append fua replay --guest --metadata --dirty; do
  grep -q -- "$word" "$tmpdir/out" || fail "bench --help lacks $word"
done
expect_status 2 "Usage" -- "$fatbatch"
expect_status 2 "'nosuch'" bench -- "$fatbatch" nosuch
expect_status 2 "Usage" -- "$fatbatch" bench
expect_status 2 "'nosuch'" "fallocate, randwrite, append, fua, replay" -- \
  "$fatbatch" bench nosuch "$nowhere"
expect_status 2 "URI" -- "$fatbatch" bench fallocate
expect_status 2 "URI" -- "$fatbatch" bench fallocate "$nowhere" "$nowhere"

# bad_option WORKLOAD OPTION WORD...: told with its value and what is allowed.
bad_option () {
  expect_status 2 "${@:2}" -- "$fatbatch" bench "$1" "$nowhere" "$2"
}
bad_option fallocate --frob=1
bad_option fallocate --guest=7.1 "6.1, serial, batched"
bad_option fallocate --durable=maybe "fua, flush, none"
bad_option fallocate --preset=published "256M-512, 256M-4K, 1M-512, 1M-4K"
bad_option fallocate --files=0 "from 1 to 9999"
bad_option fallocate --files=-1 "from 1 to 9999"
bad_option fallocate --files=x "from 1 to 9999"
bad_option fallocate --size=1Q
bad_option fallocate --size=99999999999999999999
bad_option fallocate --size=17179869183G
bad_option fallocate --cluster=3K "power of two"
bad_option fallocate --cluster=128K "65536"
bad_option randwrite --preset=1M-512 published
bad_option randwrite --runtime=0 "more than 0"
bad_option randwrite --runtime=soon
bad_option randwrite --size=4294967296 "4294967295"
bad_option randwrite --size=2048 "too small"
bad_option append --bs=1000 "multiple of 512"
bad_option append --bs=2M "1048576"
bad_option fua --clients=1000 "256"
bad_option fua --dirty=lots "from 0 to 1099511627776"
bad_option fua --dirty=2T "from 0 to 1099511627776"
expect_status 2 "append has no option --dirty" -- \
  "$fatbatch" bench append "$nowhere" --dirty=1M
expect_status 2 "/dev/null" "fatbatch-trace 1" -- \
  "$fatbatch" bench replay "$nowhere" --trace=/dev/null
bad_option replay --trace=/nosuch "No such file"
for option in files=1 guest=6.1 limit=1 trace=x concurrency=serial; do
  expect_status 2 "fua has no option --${option%=*}" -- \
    "$fatbatch" bench fua "$nowhere" "--$option"
done
expect_status 2 "recorded, serial" -- \
  "$fatbatch" bench replay "$nowhere" --trace=x --concurrency=2
expect_status 2 "--trace" -- "$fatbatch" bench replay "$nowhere"
expect_status 2 "--output=/nosuch/x" -- \
  "$fatbatch" bench fua "$nowhere" --output=/nosuch/x

# Lines of a trace, after "size 4096", that must be refused.
while read -r line; do
  printf '%s\n' 'fatbatch-trace 1' 'size 4096' "$line" >"$tmpdir/bad.trace"
  expect_status 2 "bad.trace:3:" -- \
    "$fatbatch" bench replay "$nowhere" --trace="$tmpdir/bad.trace"
done <<'END'
X 0 512 - *
W
W 0 512 -
W 0 512 maybe *
W 0 512 fua 1
W 0 512 fua 0
W 0 512 fua x
W 0 512 fua -1
W x 512 fua *
W 0 5k fua *
W -512 512 fua *
W 4096 512 fua *
W 3585 512 fua *
W 18446744073709551104 1024 fua *
W 0 512 fua * 0
W 0 512 fua * 0:f
W 0 512 fua * 0:fg
W 0 512 fua * 0:FF
W 0 512 fua * 512:00
W 0 512 fua * 99999999999999999999999:00
W 0 512 fua * same;0:00
W 0 512 fua * 0:00 0:00
Z 0 512 fua * zero
F
F * *
I 0
I 4096 0:00
I 18446744073709551615 0:00
size 4096
size x
END
echo "wrong usage: ok"
