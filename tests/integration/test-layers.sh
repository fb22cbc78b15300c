#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

# The engine stays an engine: core/ knows nothing of nbdkit, never logs or
# ends the process, and keeps nothing in variables of its own.

# No server is started.
FATBATCH_SO=none
. "$(dirname "$0")/../functions.sh"
requires objdump nm
core=$top_srcdir_abs/core
ls "$core"/*.c >/dev/null

# code FILE: without comments and strings.
code () {
  "${CC:-cc}" -fpreprocessed -dD -E -P -x c "$1" |
    sed 's/"\([^"\\]\|\\.\)*"/""/g'
}

# ---- the source ----

forbidden='(v?[fd]?printf|perror|v?syslog|v?warnx?|v?errx?|abort|_?[eE]xit'
forbidden+='|quick_exit|nbdkit_[a-z_]+)'
for file in "$core"/*.c "$core"/*.h; do
  ! grep -nE '^[[:space:]]*#[[:space:]]*include.*nbdkit' "$file" ||
    fail "$file includes a header of nbdkit"
  ! grep -nE '^[[:space:]]*#[[:space:]]*include.*(plugin|tools|tests)/' \
    "$file" || fail "$file includes what depends on core/"
  ! code "$file" | grep -nE "(^|[^A-Za-z0-9_])${forbidden}[[:space:]]*\\(" ||
    fail "$file logs or ends the process"
done

# Only plugin/ talks to nbdkit.
! grep -lE '^[[:space:]]*#[[:space:]]*include.*nbdkit-' \
  "$top_srcdir_abs"/tools/*.[ch] 2>/dev/null ||
  fail "tools/ talks to nbdkit"

# ---- what was built ----

archive=
for file in "$top_builddir_abs"/core/{,.libs/}libfatbatch*.a; do
  if [ -e "$file" ]; then archive=$file; fi
done
if [ -z "$archive" ]; then
  echo "$0: note: core/ is not built, only its source was checked" >&2
  exit 0
fi

# Not by a pipe: grep -q ends early, and pipefail takes that for a failure.
if grep -qE '__(asan|ubsan|tsan|msan|gcov|llvm_prof|sanitizer)' \
     <<<"$(nm -u "$archive")"; then
  echo "$0: note: an instrumented build has variables of its own" >&2
  exit 0
fi

# Whatever macros and headers made of it.
called='(__)?(v?[fd]?printf(_chk)?|perror|v?syslog(_chk)?|abort|_?[eE]xit'
called+='|nbdkit_.*)'
! nm -u "$archive" | grep -E "^ +U $called(@.*)?\$" ||
  fail "core/ logs, ends the process or calls nbdkit"

# .data.rel.ro is constant once relocated: tables of functions.
! objdump -t "$archive" |
  awk '$NF !~ /^\./ && / O / { print }' |
  grep -E '[[:space:]](\.t?data|\.t?bss|\*COM\*)' |
  grep -vE '\.data\.rel\.ro' || fail "core/ has variables of its own"
