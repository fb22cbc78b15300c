# SPDX-License-Identifier: BSD-3-Clause

"""A real guest's loads, on us and on `nbdkit file`, side by side in one
guest: by virtio-blk with cache=directsync, and by nbd-client against servers
that make every write durable."""

import contextlib
import os
import socket
import subprocess
import tempfile

from servers import Running, Server, ServerFailed
from workloads import LOWER, Workload

DISKS = ("own", "slow-1ms")
IMAGE_SIZE = 300 << 20
LISTEN = {"virtio": ["-U", "{sock}"],
          "nbd": ["-i", "127.0.0.1", "-p", "{port}"]}
US_NBD = Server("fatbatch cache=writethrough", "us", [
    "{nbdkit}", "-f", "{plugin}", "{image}", "cache=writethrough"])
FILE_NBD = Server("nbdkit file, filter=fua", "nbdkit", [
    "{nbdkit}", "-f", "--filter=fua", "file", "{image}", "fuamode=force"])
US_VIRTIO = Server("fatbatch", "us", ["{nbdkit}", "-f", "{plugin}",
                                      "{image}"])
FILE_VIRTIO = Server("nbdkit file", "nbdkit", ["{nbdkit}", "-f", "file",
                                               "{image}"])
SERVERS = {"virtio": (US_VIRTIO, FILE_VIRTIO), "nbd": (US_NBD, FILE_NBD)}
TITLES = {"virtio": "virtio-blk, cache=directsync",
          "nbd": "nbd-client, every write durable"}
LOADS = {"fallocate": "fallocate of 1 MiB files, clusters of 4 KiB",
         "tree": "a small tree of files"}


def workload(transport, load):
    return Workload(f"vm-{transport}-{load}",
                    f"a real guest, {TITLES[transport]}: {LOADS[load]}",
                    "seconds", "s", LOWER, None)


def files_for(disk):
    """As many files as take some seconds: a file is 1024 waits."""
    return max(1, min(16, int(8e6 / (1024 * (disk.sync_us + 300)))))


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return str(sock.getsockname()[1])


def start(bench, server, transport, disk, name, stack):
    """Returns the address: a socket's path or a port; and the Running."""
    image = os.path.join(disk.path, f"vm-{name}")
    with open(image, "wb") as out:
        out.truncate(IMAGE_SIZE)
    stack.callback(os.unlink, image)
    directory = stack.enter_context(
        tempfile.TemporaryDirectory(prefix="fb-bench."))
    port = free_port() if transport == "nbd" else None
    listen = [word.format(sock="{sock}", port=port)
              for word in LISTEN[transport]]
    running = Running(bench.programs, server, image, directory,
                      server.command[:2] + listen + server.command[2:], port)
    stack.enter_context(running)
    return port or running.sock, running


def run_guest(command, environment):
    """Its exit status and what it says.  Ended politely if we are: it has
    to clean up."""
    with subprocess.Popen(command, env=environment, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT) as guest:
        try:
            text, _ = guest.communicate()
        except BaseException:
            guest.terminate()
            raise
    if guest.returncode not in (0, 77):
        print(text, flush=True)
    return guest.returncode, text.splitlines()


def run_transport(bench, disk, transport, rows):
    with contextlib.ExitStack() as stack:
        addresses, running = zip(*[
            start(bench, server, transport, disk, name, stack)
            for name, server in zip("ab", SERVERS[transport])])
        command = [os.path.join(os.path.dirname(__file__), "vm-bench.sh"),
                   transport, str(bench.arguments.rounds),
                   str(files_for(disk)), *addresses]
        for (_, name), row in rows.items():
            row.commands(running["ab".index(name)].command, command)
        environment = dict(os.environ, NBDKIT=bench.programs.nbdkit,
                           FATBATCH_SO=bench.programs.plugin)
        status, lines = run_guest(command, environment)
    if status == 77:
        for row in rows.values():
            row.skip(lines[-1])
    elif status != 0:
        reason = next((x for x in lines if "FAIL" in x), "see above")
        raise ServerFailed(f"guest: {reason}")
    for line in lines:
        if status == 0 and line.startswith("bench: "):
            _, load, name, seconds = line.split()
            rows[load, name].add({"seconds": float(seconds)})


def run(bench, disk, say):
    for transport in LISTEN:
        rows = {(load, name): bench.results.add_row(
                    disk, workload(transport, load), server.name)
                for load in LOADS
                for name, server in zip("ab", SERVERS[transport])}
        try:
            run_transport(bench, disk, transport, rows)
        except ServerFailed as error:
            for row in rows.values():
                row.fail(str(error))
        for row in rows.values():
            say(f"  {row.workload:26} {row.server:28} {row.summary()}")
