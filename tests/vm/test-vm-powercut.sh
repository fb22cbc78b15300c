#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# A guest changes files on a volume that is mounted with -o sync, and says what
# it has done.  Meanwhile the power is cut: what was not synced is gone, of the
# image and of the record (D1, D5); or the server alone is killed (D2).  The
# same command serves again and a client connects, no more than that; once that
# server has ended well, the power is cut again.  Then all that the guest had
# done is there, both FATs are equal, and the record is gone; and the next
# guest mounts it, finds all that, and goes on.
#
# As virtio-blk with cache=directsync, where each write has FUA, and by the
# guest's own NBD client, which sends none: with cache=writethrough they are
# durable all the same.
#
# At last a guest whose server is killed and started again while it works: QEMU
# connects anew, and the guest must not notice.
#
# FATBATCH_VM_CUTS is how many cuts there are.

set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/vm.sh"
. "$(dirname "${BASH_SOURCE[0]}")/fat-check.sh"
. "$(dirname "${BASH_SOURCE[0]}")/load-check.sh"

cuts=${FATBATCH_VM_CUTS:-3}
faultfs=${FAULTFS:-$vm_builddir/tests/faultfs}
seed=${FATBATCH_SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
rounds=0 operations=0 recovered=0 fault_pid=

vm_begin test-vm-powercut
vm_require fsck.fat mcopy mshowfat nbdinfo fusermount3 mountpoint
[ -x "$faultfs" ] || vm_skip "$faultfs is not built"
[ -w /dev/fuse ] || vm_skip "/dev/fuse cannot be used"
vm_prepare
vm_say "seed=$seed; replay with FATBATCH_SEED=$seed"

cat >"$vm_dir/guest.sh" <<'GUEST'
set -eu
. /guest-tree.sh
. /guest-load.sh
case $transport in
  virtio)
    modprobe -a virtio_blk vfat
    dev=/dev/vda;;
  nbd)
    modprobe -a virtio_net nbd vfat
    ip link set eth0 up
    ip addr add 10.0.2.15/24 dev eth0
    dev=/dev/nbd0
    nbd-client 10.0.2.2 "$nbd_port" $dev -N '';;
esac
mount -t vfat -o sync $dev /mnt
tree_manifest /mnt | sed 's/^/manifest: /' >/dev/ttyS1
load "$round" "$cycles"
umount /mnt
[ "$transport" = virtio ] || nbd-client -d $dev
GUEST
head -c 200000 /dev/urandom >"$vm_dir/pieces"
vm_initramfs "$vm_dir/guest.sh" "$vm_dir/initramfs" "$vm_dir/pieces" \
             "$vm_srcdir"/guest-{tree,load}.sh

# One window has the whole FAT.  Written in place, between a sector of FAT 1
# and its mirror, the FATs may differ after a cut; not so in an armed window.
backing=$vm_dir/backing/disk.img
mkdir "$vm_dir/backing" "$vm_dir/faulty"
truncate -s 80M "$backing"
mkfs.fat -F 32 -s 2 -n FATBATCH "$backing" >/dev/null
fat1=$(($(fat_number "$backing" 14 2) * 512))
fat=$(($(fat_number "$backing" 36 4) * 512))

# draw N WHAT: 0 to N - 1, by seed, round and purpose.
draw ()
{
  local hash

  hash=$(cksum <<<"$seed $rounds $2")
  echo $((${hash%% *} % $1))
}

# How many sectors of the mirror in the image alone are not FAT 1's.
sectors_behind ()
{
  { cmp -l -n "$fat" -i "$fat1:$((fat1 + fat))" "$backing" "$backing" || :; } |
    awk '{ s[int(($1 - 1) / 512)] } END { print length(s) }'
}

is_armed ()
{
  grep -qaF FATBENTR "$backing.fatbatch" 2>/dev/null
}

# A mirror is deferred at this moment, and the image alone is not complete.
is_behind ()
{
  is_armed && [ "$(sectors_behind)" -gt 0 ]
}

# ------------------------------------------------------------ the storage

# fault_mount [OPTION...]
fault_mount ()
{
  printf '' >"$vm_dir/faults"
  : >"$vm_dir/fault.log"
  "$faultfs" -f --control="$vm_dir/faults" \
             --log="$vm_dir/fault.log" "$@" \
             "$vm_dir/backing" "$vm_dir/faulty" >"$vm_dir/faultfs.log" 2>&1 &
  fault_pid=$!
  vm_wait_until 10 mountpoint -q "$vm_dir/faulty" ||
    vm_fail "faultfs is not mounted"
}

# Its users are dead, but the kernel may close their files a moment later.
fault_unmount ()
{
  [ -n "$fault_pid" ] || return 0
  vm_wait_until 10 fusermount3 -q -u "$vm_dir/faulty" ||
    fusermount3 -uz "$vm_dir/faulty" || :
  vm_wait_until 10 fault_has_ended || :
  vm_kill "$fault_pid"
  fault_pid=
}
vm_at_end fault_unmount

fault_has_ended ()
{
  ! kill -0 "$fault_pid" 2>/dev/null
}

# power_cut N: so many operations of the storage from now.
power_cut ()
{
  local now

  now=$(wc -l <"$vm_dir/fault.log")
  echo "cut_at=$((now + $1))" >"$vm_dir/faults.new"
  mv "$vm_dir/faults.new" "$vm_dir/faults"
  # Any operation will do for a cut at once.
  [ "$1" -ne 0 ] || stat "$vm_dir/faulty/disk.img" >/dev/null 2>&1 || :
  vm_wait_until 30 grep -q '^cut$' "$vm_dir/fault.log" ||
    vm_fail "the power is still on"
}

# -------------------------------------------------------------- the guest

# guest_start TRANSPORT IMAGE CYCLES REST [PARAMETER...]: server and guest.
guest_start ()
{
  local transport=$1 image=$2 args

  # It must not begin with what an earlier one has left.
  rm -f "$vm_dir/guest.log" "$vm_dir/guest.report"
  args="transport=$transport round=round$rounds cycles=$3 load_rest=$4"
  shift 4
  case $transport in
    virtio)
      vm_serve_unix "$image" "${vm_stats[@]}" "$@"
      uri="nbd+unix:///?socket=$vm_socket"
      args+=" nbd_port=-"
      set -- -drive "if=virtio,format=raw,cache=directsync,file.driver=nbd,$(
        )file.server.type=unix,file.server.path=$vm_socket,$(
        )file.reconnect-delay=60";;
    nbd)
      vm_serve_tcp "$image" cache=writethrough "${vm_stats[@]}" "$@"
      uri=nbd://127.0.0.1:$vm_port
      args+=" nbd_port=$vm_port"
      set -- -netdev user,id=net \
          -device virtio-net-pci,netdev=net,romfile=;;
  esac
  vm_start "$vm_dir/initramfs" "$vm_dir/guest" "$args" "$@"
}

# guest_comes_to CMD...: it becomes true, if only for a moment, while the guest
# works.
guest_comes_to ()
{
  vm_wait_until 120 guest_is_at "$@" && [ "$guest_state" = there ]
}

guest_is_at ()
{
  guest_state=there
  "$@" && return
  guest_state=ended
  ! kill -0 "$vm_guest_pid" 2>/dev/null
}

# guest_work NUMBER: until it has done so many operations, and mirrors are
# deferred.
guest_work ()
{
  guest_comes_to load_has_done "$vm_dir/guest.report" "$1" ||
    vm_fail "the guest has not done $1 operations"
  guest_comes_to is_behind || vm_fail "no mirror is deferred"
}

# The guest found what mtools had found after the last round.
guest_found ()
{
  local name

  vm_manifest "$vm_dir/guest.report" "$vm_dir/manifest"
  for name in "${!load_want[@]}"; do
    case ${load_want[$name]} in
      dir) echo "dir  ./$name";;
      *) awk -v name="$name" '{ print $2 "  ./" name }' \
             <<<"${load_want[$name]}";;
    esac
  done | LC_ALL=C sort >"$vm_dir/expected"
  diff "$vm_dir/expected" "$vm_dir/manifest" ||
    vm_fail "the guest does not find what was there"
}

# guest_wrote TRANSPORT: as each sends it.
guest_wrote ()
{
  local fua=0

  [ "$1" = nbd ] || fua=1
  [ "$(requests_count " Write .* fua=$fua ")" -gt 0 ] ||
    vm_fail "no write came with fua=$fua"
  [ "$(requests_count " Write .* fua=$((1 - fua)) ")" -eq 0 ] ||
    vm_fail "not every write came with fua=$fua"
}

# ------------------------------------------------------------- the rounds

# recover: server and guest are gone.  The same command; a client; a stop.
recover ()
{
  local behind

  behind=$(sectors_behind)
  is_armed || [ "$behind" -eq 0 ] ||
    vm_fail "$behind sectors of the FATs differ, and no record says so"
  cp --sparse=always "$backing" "$vm_dir/before.img"
  [ "$storage" = plain ] || fault_mount --powercut=$((seed - rounds)) --keep=0
  vm_serve_again
  nbdinfo --size "$uri" >/dev/null
  vm_serve_stop
  if [ "$storage" != plain ]; then
    power_cut 0
    fault_unmount
  fi
  [ "$(vm_counter recovered_sectors)" -eq "$behind" ] ||
    vm_fail "$(vm_counter recovered_sectors) sectors were brought back," \
            "of $behind"
  vm_say "$behind sectors of the mirror were brought back"
  recovered=$((recovered + behind))

  ! ls "$backing".* >/dev/null 2>&1 || vm_fail "$(ls "$backing".*) is left"
  fat_check_mirror "$backing" 0
  if ! cmp -n $((fat1 + fat)) "$vm_dir/before.img" "$backing" ||
     ! cmp -i $((fat1 + 2 * fat)) "$vm_dir/before.img" "$backing"; then
    vm_fail "recovery has changed more than the mirror"
  fi
}

# Those of the first two cycles that end without a flush: mkdir, rename and
# truncate do.  (fallocate(1) has an fsync.)
unflushed=(6 7 12 19 20 25)

# cut_round TRANSPORT WHEN STORAGE [FAULTFS-OPTION...]: the guest is busy, or
# rests after an operation, so that no later one has made it durable.
cut_round ()
{
  local transport=$1 when=$2 image=$backing work rest=0 soon parameters=()
  storage=$3
  shift 3

  rounds=$((rounds + 1))
  vm_say "round $rounds: $transport, $when, $storage${1+ $*}"
  if [ "$storage" != plain ]; then
    image=$vm_dir/faulty/disk.img
    fault_mount --powercut=$((seed + rounds)) "$@"
  fi
  case $when in
    busy) work=$((10 + $(draw 25 work))) soon=$(draw 60 cut);;
    resting)
      work=${unflushed[$(draw ${#unflushed[@]} work)]} soon=0
      rest=$work
      parameters=(mirror-delay=3600);;
  esac
  guest_start "$transport" "$image" 1000 "$rest" \
              ${parameters[@]+"${parameters[@]}"}
  guest_work "$work"
  [ "$storage" = plain ] || power_cut "$soon"
  vm_serve_kill
  vm_guest_kill
  [ "$storage" = plain ] || fault_unmount

  guest_wrote "$transport"
  guest_found
  load_read "$vm_dir/guest.report"
  vm_say "cut after $load_done operations, during: ${load_open[*]:-none}"
  [ "$rest" -eq 0 ] || [ "$load_done" -eq "$rest" ] ||
    vm_fail "it should rest after $rest"
  operations=$((operations + load_done))
  recover
  load_fsck "$backing"
  load_check "$backing"
}

# The server is killed and started again, and the guest goes on to its end.
survive_round ()
{
  storage=plain
  rounds=$((rounds + 1))
  vm_say "round $rounds: virtio, the guest survives"
  guest_start virtio "$backing" 8 0
  guest_work $((10 + $(draw 25 work)))
  vm_serve_kill
  vm_serve_again
  vm_wait || vm_fail "the guest's script ended with status $?"
  vm_serve_stop
  vm_say "$(vm_counter mirrors_deferred) mirror sectors and" \
         "$(vm_counter commits_deferred) allocations deferred," \
         "$(vm_counter recoveries) windows recovered"
  [ "$(vm_counter mirrors_deferred)" -gt 0 ] ||
    vm_fail "no mirror was deferred"
  [ "$(vm_counter commits_deferred)" -gt 0 ] ||
    vm_fail "no allocation was deferred"
  [ "$(vm_counter recoveries)" -gt 0 ] || vm_fail "nothing was brought back"

  ! ls "$backing".* >/dev/null 2>&1 || vm_fail "$(ls "$backing".*) is left"
  guest_found
  load_read "$vm_dir/guest.report"
  if [ "$load_done" -eq 0 ] || [ ${#load_open[@]} -ne 0 ]; then
    vm_fail "the guest did not come to its end"
  fi
  load_unmounted
  fat_check_mirror "$backing" 0
  load_fsck "$backing"
  load_check "$backing"
}

# --writeback: a sync of one range makes no other one durable.
while [ $rounds -lt "$cuts" ]; do
  case $((rounds % 6)) in
    0) cut_round virtio busy faulty --keep=0 --writeback;;
    1) cut_round nbd resting faulty --keep=0 --writeback;;
    2) cut_round virtio busy plain;;
    3) cut_round virtio resting faulty --keep="$(draw 100 keep)";;
    4) cut_round nbd busy faulty --keep=50;;
    5) cut_round nbd busy plain;;
  esac
done
[ $recovered -gt 0 ] || vm_fail "no cut came when a mirror was behind"
vm_say "$cuts cuts, $operations operations before them," \
       "$recovered sectors of the mirror brought back"
survive_round
vm_say PASS
