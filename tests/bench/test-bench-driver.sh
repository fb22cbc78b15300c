#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The benchmark's driver, in a tiny run: two servers, two workloads, tmpfs,
# one round.  results.json has what it must, in particular commands that can
# be run again; table.md has no number that is not in there; the plots are
# SVG.  And nothing is left behind, also when the driver is ended.

. "$(dirname "$0")/../functions.sh"
requires python3 jq gnuplot mkfs.fat fsck.fat
FATBATCH=${FATBATCH:-$top_builddir_abs/tools/fatbatch}
export FATBATCH FATBATCH_SO NBDKIT
[ -x "$FATBATCH" ] || skip "$FATBATCH is not built"
[ -w /dev/shm ] || skip "no /dev/shm"
make_tmpdir
export TMPDIR=$tmpdir

out=$tmpdir/out
run_driver () {
  python3 -B "$tests_srcdir/bench/bench.py" --out="$out" --dir="$tmpdir" \
    --tmpfs="$tmpdir" --servers="fatbatch,nbdkit file" --no-vm "$@"
}

leftovers () {
  find "$tmpdir" -maxdepth 1 -name 'f*b*bench.*'
}

: >"$tmpdir/began"
run_driver --disks=tmpfs --workloads=fallocate-6.1,fua-16 --rounds=1 \
  --seconds=0.05 >"$tmpdir/driver.log" || fail "$(cat "$tmpdir/driver.log")"

# check_json EXPRESSION: must be true.
check_json () {
  jq -e "$1" "$out/results.json" >/dev/null || fail "results.json: not $1"
}
check_json '.rows | length == 4'
check_json '[.rows[].id] | unique | length == 4'
check_json 'all(.rows[]; .status == "ok" and (.values | length) == 1)'
check_json 'all(.rows[]; .median > 0 and .min == .median)'
check_json 'all(.rows[]; .runs[0].verify.data == "ok")'
check_json 'all(.rows[]; .server_command | contains ("nbdkit"))'
check_json 'all(.rows[]; .client_command | contains ("bench "))'
check_json 'all(.rows[]; ([.histogram[][1]] | add) >= 32)'
check_json '.disks.tmpfs.sync_us > 0'
check_json '.environment | .nbdkit and .kernel and .cpu and .date and .libnbd'
check_json 'all(.targets[]; .verdict == "not measured" or .verdict == "short"
                            or .verdict == "pass")'

# A row's line in the table: its id, and numbers of that very row.
rows=$(grep -c '^| r[0-9]* | [^|]* | [0-9]' "$out/table.md")
[ "$rows" -eq 4 ] || fail "table.md has $rows rows instead of 4"
python3 -B - "$out" "$tests_srcdir/bench" <<'CHECK' || fail "table.md"
import json
import re
import sys

sys.path.insert(0, sys.argv[2])
import report

document = json.load(open(sys.argv[1] + "/results.json"))
rows = {row["id"]: row for row in document["rows"]}
for line in open(sys.argv[1] + "/table.md"):
    cells = [cell.strip() for cell in line.split("|")[1:-1]]
    if not cells or not re.fullmatch(r"r\d+", cells[0]) or len(cells) != 7:
        continue
    row = rows[cells[0]]
    known = {report.number(row[key]) for key in ("median", "min", "max")}
    known |= {report.number(row["latency_us"][key])
              for key in ("p50", "p99.9")}
    used = re.findall(r"[\d.]+", " ".join(cells[2:4] + cells[5:]))
    assert used and cells[1] == row["server"], line
    for word in used:
        assert word in known, (word, line)
    ratio = re.findall(r"[\d.]+", cells[4])
    if ratio:
        us = next(r for r in document["rows"] if r["server"] == "fatbatch"
                  and r["workload"] == row["workload"])
        a, b = us["median"], row["median"]
        want = b / a if row["lower_is_better"] else a / b
        assert ratio[0] == f"{want:.2f}", line
CHECK

# Targets and published results: each is there, here with the reason why it
# was not measured.
check_json 'all(.targets[], .published[]; .measured == null and .reason != "")'
check_json '[.published[].published] | unique ==
            ["1.10x", "1.13x", "1.376x", "2.60x", "3.50x", "4.06x", "4.31x"]'
for section in Targets "Published kernel results beside ours, as ratios"; do
  grep -qx "## $section" "$out/table.md" || fail "table.md lacks: $section"
done
[ "$(sed -n '/^## Targets/,/^## Pub/p' "$out/table.md" | grep -c '^|')" -eq \
  $(($(jq '.targets | length' "$out/results.json") + 2)) ] ||
  fail "table.md has not every target"
[ "$(sed -n '/^## Published/,/^## Left/p' "$out/table.md" | grep -c '^|')" \
  -eq $(($(jq '.published | length' "$out/results.json") + 2)) ] ||
  fail "table.md has not every published result"

# The verdicts, from made-up rows.
python3 -B "$tests_srcdir/bench/check-targets.py" || fail "targets"

# Each workload's options are such as the client knows.
python3 -B - "$tests_srcdir/bench" "$FATBATCH" "$tmpdir/nosuch" \
  <<'CHECK' || fail "a workload's options"
import subprocess
import sys
import types

sys.path.insert(0, sys.argv[1])
from workloads import WORKLOADS, client_command

programs = types.SimpleNamespace(fatbatch=sys.argv[2])
disk = types.SimpleNamespace(sync_us=100, delay_us=0)
uri = "nbd+unix:///?socket=" + sys.argv[3]
for workload in WORKLOADS:
    if workload.client == "fatbatch":
        command = client_command(programs, workload, disk, uri, 1, True)
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        # 3: nobody listens there; 2 would be wrong usage.
        assert done.returncode == 3, (command, done.stderr)
CHECK

for plot in sync-fallocate-6.1 latency-fua-16-tmpfs; do
  python3 -c 'import sys, xml.dom.minidom as dom
assert dom.parse(sys.argv[1]).documentElement.tagName == "svg"' \
    "$out/$plot.svg" || fail "$plot.svg is no SVG"
  grep -q 'nbdkit file' "$out/$plot.svg" || fail "$plot.svg lacks a curve"
  grep -q 'r[0-9]' "$out/$plot.dat" || fail "$plot.dat does not name its rows"
done

# What belongs on other disks runs here if it is named; counters of the server
# come from its log; the other presets run as a whole.
run_driver --disks=tmpfs \
  --workloads=fua-16-syncs,fallocate-serial-1M-4K,append \
  --rounds=1 --seconds=0.05 >"$tmpdir/driver.log" ||
  fail "$(cat "$tmpdir/driver.log")"
check_json '[.rows[] | .workload + " " + .server] | sort ==
            ["append fatbatch", "append nbdkit file",
             "fallocate-serial-1M-4K fatbatch",
             "fallocate-serial-1M-4K nbdkit file", "fua-16-syncs fatbatch"]'
check_json '.rows[] | select (.workload == "fua-16-syncs") |
            .status == "ok" and
            .values == [.runs[0].fua / .runs[0].stats.syncs] and
            .runs[0].stats.fua == .runs[0].fua and
            .runs[0].stats.commit_groups > 0'
check_json 'all(.rows[] | select (.workload == "fallocate-serial-1M-4K");
                .runs[0].fat_sectors == 96)'
check_json 'all(.rows[] | select (.workload == "append");
                .runs[0].first_tenth_us > 0 and .runs[0].last_tenth_us > 0)'

# A server that does not work is a row that says so, and a failed run.
export DSYNC_SO=$tmpdir/began
status=0
python3 -B "$tests_srcdir/bench/bench.py" --out="$out" --tmpfs="$tmpdir" \
  --disks=tmpfs --no-vm --servers="fatbatch,dsync plugin" --workloads=fua-1 --rounds=1 \
  --seconds=0.05 >"$tmpdir/driver.log" 2>&1 || status=$?
[ "$status" -eq 1 ] ||
  fail "a server fails, but the driver's status is $status"
check_json '[.rows[].status] == ["ok", "failed"]'
grep -q '| dsync plugin | failed: ' "$out/table.md" || fail "not in table.md"

# Ended in the middle: it cleans up all the same.
run_driver --disks=tmpfs --workloads=fua-1 --rounds=1 --seconds=60 \
  >"$tmpdir/driver.log" 2>&1 &
driver=$!
cleanup_fn kill_job "$driver"
server_runs () { compgen -G "$tmpdir/fb-bench.*/sock" >/dev/null; }
wait_until 30 server_runs || fail "no server was started"
kill "$(pgrep -P "$driver" python3 || echo "$driver")"
wait "$driver" || :
[ -z "$(leftovers)" ] || fail "left behind: $(leftovers)"
