# SPDX-License-Identifier: BSD-3-Clause

"""What a sync costs: sync_cost.py DIR prints microseconds.

The same for all disks: the median of a 512-byte overwrite of a file and
fdatasync(2).  This is the x axis of the plots.
"""

import os
import statistics
import sys
import tempfile
import time


def measure_sync(directory, seconds=0.5, least=11):
    """Median microseconds, from syncs for so many seconds."""
    with tempfile.NamedTemporaryFile(dir=directory) as scratch:
        fd = scratch.fileno()
        os.pwrite(fd, bytes(1 << 16), 0)
        os.fsync(fd)
        costs = []
        end = time.monotonic() + seconds
        while len(costs) < least or time.monotonic() < end:
            sector = os.urandom(512)
            start = time.perf_counter()
            os.pwrite(fd, sector, len(costs) % 128 * 512)
            os.fdatasync(fd)
            costs.append((time.perf_counter() - start) * 1e6)
        return statistics.median(costs)


if __name__ == "__main__":
    print(f"{measure_sync(sys.argv[1]):.1f}")
