#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

# Which syncs the kernel is asked for between a request and its reply, in
# each cache mode, seen by strace (D1).
#
# A single sync is a plain system call with io=uring, too (disk-uring.h, rule
# 4), so that no io_uring_enter(2) is expected.  test-sync-count.sh sees what
# the file system gets.

. "$(dirname "$0")/../functions.sh"
requires strace nbdop awk
make_tmpdir
requires_o_direct
strace -f -o /dev/null true 2>/dev/null || skip "strace may not trace"
find_io_leaves

img=$tmpdir/disk.img
trace=$tmpdir/trace
truncate -s 1M "$img"

calls=fdatasync,fsync,msync,sync_file_range,syncfs,pwrite64,pwritev,pwritev2
calls=$calls,io_uring_enter,recvfrom,recvmsg,read,sendto,sendmsg
real_nbdkit=$(command -v "$NBDKIT")
cat >"$tmpdir/traced" <<END
#!/bin/sh
exec strace -f -xx -s 16 -o "$trace" -e trace=$calls -e signal=none \
  "$real_nbdkit" "\$@"
END
chmod +x "$tmpdir/traced"
NBDKIT=$tmpdir/traced

# Of the one request with the given type (bytes as strace writes them),
# prints four numbers: writes that ended before its reply began; syncs and
# io_uring_enters that began after the request came and after those writes,
# and ended before the reply began; and syncs at any other time.
#
# The magic numbers are the NBD protocol's: a request, a simple reply.
# A call that another thread interrupts has two lines: the first ends in
# "<unfinished ...>", the second begins with "<... NAME resumed>".
summarize='
function call_name(line) {
  sub(/^[0-9]+ +(<\.\.\. )?/, "", line)
  sub(/[( ].*/, "", line)
  return line
}
{
  thread = $1
  call = call_name($0)
  begins = !/<\.\.\. [a-z0-9_]+ resumed>/
  ends = !/<unfinished \.\.\.>/
  is_write = call ~ /^pwrite/
  is_enter = call == "io_uring_enter"
  is_sync = call ~ /^(fdatasync|fsync|msync|syncfs|sync_file_range)$/
}
index($0, request) && index($0, type) { requests++; inside = 1 }
inside && begins && index($0, reply) {
  replies++
  inside = 0
  for (t in running)
    if (running[t])
      problem = "a reply before a call has ended"
}
begins && is_sync && !inside { outside++ }
begins && inside && (is_sync || is_enter) {
  if (is_sync) syncs++; else enters++
  for (t in running)
    if (running[t] == "write")
      problem = "a sync before a write has ended"
}
begins && inside && is_write && syncs + enters > 0 {
  problem = "a write after the sync"
}
begins && inside && is_write { writes++ }
{
  running[thread] = ""
  if (!ends && inside && (is_write || is_sync || is_enter))
    running[thread] = is_write ? "write" : "sync"
}
END {
  if (requests != 1 || replies != 1)
    problem = requests + 0 " requests, " replies + 0 " replies"
  if (problem)
    print "problem:", problem
  else
    print writes + 0, syncs + 0, enters + 0, outside + 0
}'

# \x00\x01 FUA \x00\x01 WRITE, and so on: flags, type.
type_fua='\x13\x00\x01\x00\x01'
type_write='\x13\x00\x00\x00\x01'
type_flush='\x13\x00\x00\x00\x03'

# trace_op OP TYPE: sets writes, syncs, enters, outside.
trace_op () {
  local line
  rm -f "$trace"
  start_server "$img" cache="$cache" io="$io" lock=off
  expect_answers ok -- "$1"
  stop_server
  line=$(awk -v request='\\x25\\x60\\x95\\x13' -v reply='\\x67\\x44\\x66\\x98' \
    -v type="${2//\\/\\\\}" "$summarize" "$trace")
  case $line in
    problem*) trace_fail "$1: $line" ;;
  esac
  read -r writes syncs enters outside <<<"$line"
}

trace_fail () {
  cp "$trace" "$tmpdir/server.trace.log"
  fail "cache=$cache io=$io $*"
}

# expect_count OP WHAT GOT WANTED
expect_count () {
  [ "$3" -eq "$4" ] || trace_fail "$1: $3 $2, not $4"
}

# expect_syncs OP TYPE WRITES SYNCS
expect_syncs () {
  trace_op "$1" "$2"
  expect_count "$1" writes "$writes" "$3"
  expect_count "$1" syncs "$syncs" "$4"
  expect_count "$1" io_uring_enters "$enters" 0
}

for io in $io_leaves; do
  for cache in writeback none; do
    expect_syncs write:0:4k:1 "$type_write" 1 0
    expect_syncs write:0:4k:2:fua "$type_fua" 1 1
    expect_syncs flush "$type_flush" 0 1
  done
  for cache in writethrough directsync; do
    expect_syncs write:0:4k:3 "$type_write" 1 1
    expect_syncs write:0:4k:4:fua "$type_fua" 1 1
  done
  cache=unsafe
  expect_syncs write:0:4k:5 "$type_write" 1 0
  expect_count write "syncs at other times" "$outside" 0
  expect_syncs write:0:4k:6:fua "$type_fua" 1 0
  expect_count write:fua "syncs at other times" "$outside" 0
  expect_syncs flush "$type_flush" 0 0
  expect_count flush "syncs at other times" "$outside" 0
done
