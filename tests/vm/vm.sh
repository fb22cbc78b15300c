# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Library for tests that run a real guest kernel.  Source it from bash with
# `set -euo pipefail` in force.
#
# The guest is Debian's cloud kernel, unpacked but never installed, booted by
# QEMU from an initramfs that holds busybox, a few kernel modules and a few of
# the host's programs.  It runs one script and powers off.
#
#   vm_begin NAME           temporary directory $vm_dir, clean-up trap
#   vm_prepare              find the kernel; sets vm_kernel, vm_release, vm_root
#   vm_initramfs SCRIPT OUT [FILE...]
#   vm_serve_unix IMAGE [NBDKIT-ARG...]    starts the server; sets vm_socket
#   vm_serve_tcp IMAGE [NBDKIT-ARG...]     starts the server; sets vm_port
#   vm_serve_again          the same command once more, on the same address
#   vm_serve_stop           stops it, and fails unless it ended well
#   vm_serve_kill           SIGKILL
#   vm_counter NAME         of a server with "${vm_stats[@]}" that has stopped
#   vm_run INITRAMFS LOG KERNEL-ARGS [QEMU-ARG...]
#                           vm_start, then vm_wait: the guest's exit status
#   vm_guest_kill           the guest ends at once, or did so before
#   vm_manifest REPORT OUT  what the guest said about its files
#   vm_wait_until SECONDS CMD...   polls; false if the time ran out
#   vm_at_end CMD...        run it on every way out, the last one first
#
# Set before vm_initramfs: vm_modules, vm_programs.  Before vm_run: vm_cpus,
# vm_memory.  From the environment: NBDKIT, FATBATCH_SO, FATBATCH_VM_CACHE,
# FATBATCH_VM_TIMEOUT (seconds), FATBATCH_VM_ACCEL, FATBATCH_VM_KEEP (keeps
# the temporary directory).
#
# None of these may be called in a subshell: the server ends with its parent.

# mkfs.fat, nbd-client and depmod are not in every user's PATH.
PATH=$PATH:/usr/sbin:/sbin

vm_srcdir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$vm_srcdir/vm-kernel.sh"
NBDKIT=${NBDKIT:-nbdkit}
vm_builddir=${abs_top_builddir:-${vm_srcdir%/tests/vm}}
FATBATCH_SO=${FATBATCH_SO:-$vm_builddir/fatbatch.so}

vm_cache=${FATBATCH_VM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/fatbatch/vm}
# One thread runs all of the guest's processors: several, when the host is
# busy, wait for each other.
vm_accel=${FATBATCH_VM_ACCEL:-tcg,thread=single}
vm_timeout=${FATBATCH_VM_TIMEOUT:-180}
vm_cpus=1
vm_memory=256
vm_modules=(virtio_pci virtio_blk virtio_net nbd vfat
            nls_cp437 nls_iso8859-1 nls_ascii nls_utf8
            dm-mod dm-flakey dm-log-writes dm-delay)
vm_programs=(mkfs.fat nbd-client fallocate)

# For vm_serve_*: log the counters at the end, and not each request.
# shellcheck disable=SC2034
vm_stats=(-v -D fatbatch.stats=1
          -D nbdkit.backend.datapath=0 -D nbdkit.backend.controlpath=0)

vm_dir=
vm_guest_pid=
vm_server_pid=
vm_served=()
vm_ends=()

# ---------------------------------------------------------------- the test

vm_say ()
{
  printf '%s: %s\n' "${vm_name:-vm}" "$*"
}

vm_skip ()
{
  vm_say "SKIP: $*"
  exit 77
}

vm_fail ()
{
  vm_say "FAIL: $*" >&2
  exit 1
}

# vm_begin NAME: every test starts with this.
vm_begin ()
{
  vm_name=$1
  vm_dir=$(mktemp -d "${TMPDIR:-/tmp}/fatbatch-vm.XXXXXXXXXX")
  trap vm_end EXIT
  trap 'exit 129' HUP
  trap 'exit 130' INT
  trap 'exit 143' TERM
}

# On every way out: end what was started, show the logs of a failure.
vm_end ()
{
  local status=$? log i
  trap - EXIT
  set +e

  vm_kill "$vm_guest_pid"
  if [ -n "$vm_server_pid" ] && ! kill -0 "$vm_server_pid" 2>/dev/null; then
    wait "$vm_server_pid"
    vm_say "the server had ended before, with status $?"
  fi
  vm_kill "$vm_server_pid"
  for ((i = ${#vm_ends[@]} - 1; i >= 0; i--)); do
    eval "${vm_ends[i]}"
  done
  if [ $status -ne 0 ] && [ $status -ne 77 ]; then
    for log in "$vm_dir"/*.log "$vm_dir"/*.report; do
      [ -s "$log" ] || continue
      echo "---------------- ${log##*/} (last 100 lines)"
      tail -n 100 "$log" | tr -d '\r'
    done >&2
  fi
  if [ -n "${FATBATCH_VM_KEEP:-}" ]; then
    vm_say "kept $vm_dir"
  else
    rm -rf "$vm_dir"
  fi
  exit $status
}

vm_at_end ()
{
  vm_ends+=("$(printf '%q ' "$@")")
}

vm_wait_until ()
{
  local end=$((SECONDS + $1 + 1))
  shift

  until "$@"; do
    [ "$SECONDS" -lt "$end" ] || return 1
    sleep 0.1
  done
}

# vm_kill PID: end a child of ours, if it still runs.
vm_kill ()
{
  local i

  [ -n "$1" ] || return 0
  kill -TERM "$1" 2>/dev/null || return 0
  for ((i = 0; i < 50; i++)); do
    kill -0 "$1" 2>/dev/null || break
    sleep 0.1
  done
  kill -KILL "$1" 2>/dev/null
  wait "$1" 2>/dev/null
  return 0
}

# vm_require PROGRAM...
vm_require ()
{
  local program

  for program; do
    command -v "$program" >/dev/null || vm_skip "$program is not installed"
  done
}

# -------------------------------------------------------------- the server

# vm_serve_unix IMAGE [NBDKIT-ARG...]
vm_serve_unix ()
{
  local image=$1
  shift

  vm_socket=$vm_dir/nbd.sock
  rm -f "$vm_socket"
  vm_serve "$image" -U "$vm_socket" "$@" || vm_fail "the server did not start"
}

# vm_serve_tcp IMAGE [NBDKIT-ARG...].  The guest sees it at 10.0.2.2:vm_port.
vm_serve_tcp ()
{
  local image=$1 i
  shift

  for ((i = 0; i < 20; i++)); do
    # Below the ports that the kernel hands out by itself.
    vm_port=$((10000 + RANDOM % 20000))
    vm_serve "$image" -i 127.0.0.1 -p "$vm_port" "$@" && return
    grep -q 'Address already in use' "$vm_dir/server.log" || break
  done
  vm_fail "the server did not start"
}

# vm_serve IMAGE NBDKIT-ARG...: returns once it listens, or 1 if it ended.
# Requests are logged to $vm_dir/requests, so that a test can tell whether the
# guest really sent what it means to test.
vm_serve ()
{
  local image=$1 arg args=() i
  vm_served=("$@")
  shift

  for arg; do
    # The control: nbdkit's file plugin, to tell our faults from others'.
    # Its cache= means something else.
    case $FATBATCH_SO:$arg in
      file:cache=*) ;;
      *) args+=("$arg");;
    esac
  done

  rm -f "$vm_dir/server.pid" "$vm_dir/requests"
  # shellcheck disable=SC2086    # NBDKIT may be a command with arguments.
  $NBDKIT -f -P "$vm_dir/server.pid" --exit-with-parent --filter=log \
          "$FATBATCH_SO" "$image" logfile="$vm_dir/requests" "${args[@]}" \
          >"$vm_dir/server.log" 2>&1 &
  vm_server_pid=$!
  for ((i = 0; i < 300; i++)); do
    [ -s "$vm_dir/server.pid" ] && return 0
    kill -0 $vm_server_pid 2>/dev/null || break
    sleep 0.1
  done
  vm_kill $vm_server_pid
  vm_server_pid=
  return 1
}

# nbdkit leaves its socket behind, as README.md says.
vm_serve_again ()
{
  rm -f "${vm_socket:-}"
  vm_serve "${vm_served[@]}" || vm_fail "the server did not start again"
}

# Stop the server and fail unless it was alive and ends with status 0.
vm_serve_stop ()
{
  local pid=$vm_server_pid status=0

  kill -TERM "$pid" 2>/dev/null || vm_say "the server ended too early"
  wait "$pid" || status=$?
  vm_server_pid=
  [ $status -eq 0 ] || vm_fail "the server ended with status $status"
}

# The server must have lived until now.
vm_serve_kill ()
{
  local pid=$vm_server_pid status=0

  vm_server_pid=
  # The shell would report the death.
  { kill -KILL "$pid" && wait "$pid" || status=$?; } 2>/dev/null
  [ $status -eq 137 ] || vm_fail "the server had ended before, status $status"
}

vm_counter ()
{
  local value

  value=$(sed -n "s/.* stats: $1=\([0-9]*\) .*/\1/p" "$vm_dir/server.log")
  [ -n "$value" ] || vm_fail "the server's log has no counter $1"
  echo "$value"
}

# --------------------------------------------------------------- the guest

# vm_start INITRAMFS LOG KERNEL-ARGS [QEMU-ARG...]
#
# The console goes to LOG.log, what the guest's script reports to LOG.report.
# KERNEL-ARGS of the form name=value become the script's environment.
vm_start ()
{
  local initramfs=$1 log=$2 append=$3 args
  shift 3

  # A guest that can't go on ends at once: panic=-1 reboots, -no-reboot exits,
  # init= leaves no other init to try.  no_timer_check: on a busy host the
  # kernel's test of an emulated timer fails at random, which is a panic.
  args="console=ttyS0 init=/init panic=-1 no_timer_check mitigations=off quiet"

  # The guest must not outlive us, even if we are killed.
  setpriv --pdeathsig TERM \
          timeout --kill-after=10 "$vm_timeout" \
          setpriv --pdeathsig KILL \
          qemu-system-x86_64 -accel "$vm_accel" -cpu max \
          -smp "$vm_cpus" -m "$vm_memory" \
          -nodefaults -no-user-config -display none -no-reboot \
          -serial file:"$log.log" -serial file:"$log.report" \
          -kernel "$vm_kernel" -initrd "$initramfs" \
          -append "$args $append" \
          "$@" >"$vm_dir/qemu.log" 2>&1 </dev/null &
  vm_guest_pid=$!
  vm_guest_report=$log.report
}

# Wait for the guest to power off; returns the exit status of its script, 124
# if it took too long, 125 if it died before the script came to its end.
vm_wait ()
{
  local status=0

  wait "$vm_guest_pid" || status=$?
  vm_guest_pid=
  case $status in
    0) ;;
    124|137) vm_say "the guest was ended after $vm_timeout s"; return 124;;
    *) vm_say "qemu ended with status $status"; return 125;;
  esac
  status=$(sed -n 's/^exit status: \([0-9]*\)$/\1/p' "$vm_guest_report")
  return "${status:-125}"
}

vm_run ()
{
  vm_start "$@"
  vm_wait
}

# What we started is timeout(1); QEMU dies with it, and asks nobody.
vm_guest_kill ()
{
  {
    kill -KILL "$vm_guest_pid" || :
    wait "$vm_guest_pid" || :
  } 2>/dev/null
  vm_guest_pid=
}

# vm_manifest REPORT OUT: one line a file or directory, as tree_manifest in
# guest-tree.sh writes them.
vm_manifest ()
{
  sed -n 's/^manifest: //p' "$1" >"$2"
}
