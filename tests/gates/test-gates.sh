#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The gates of this build go red: each planted fault that its sanitizers are
# for ends the program with a failure, and a program without one passes.
# Where nothing is instrumented, valgrind is the gate.

. "$(dirname "$0")/../functions.sh"

planted=$top_builddir_abs/tests/gates/planted
sanitizers=${SANITIZERS:-no}

green () {
  "$@" >/dev/null 2>&1 || fail "goes red without a fault: $*"
}

red () {
  if "$@" >/dev/null 2>&1; then
    fail "stays green over a planted fault: $*"
  fi
}

case $sanitizers in
  no)
    requires valgrind
    gate=("$tests_srcdir/gates/valgrind.sh")
    faults="use-after-free leak" ;;
  address,undefined)
    gate=(env)
    faults="use-after-free undefined leak" ;;
  thread)
    # Without the high-entropy layout that gcc 12's runtime can't cope with.
    gate=(setarch -R)
    faults="race" ;;
  *)
    skip "nothing to prove for --enable-sanitizers=$sanitizers" ;;
esac

green "${gate[@]}" "$planted" none
for fault in $faults; do
  echo "$sanitizers: $fault"
  red "${gate[@]}" "$planted" "$fault"
done
