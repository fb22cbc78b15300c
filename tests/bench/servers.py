# SPDX-License-Identifier: BSD-3-Clause

"""The servers that are compared: how each is started, reached and ended.

A new one is a line in US or PEERS.
"""

import contextlib
import dataclasses
import os
import shutil
import socket
import subprocess
import time

# Our parameters.  One that this plugin does not have yet is left out of the
# run, with the reason (see missing_parameter).  The first is "us" in the
# tables' ratio column.
US = [
    ("fatbatch", {}),
    ("fatbatch durability=block", {"durability": "block"}),
    ("fatbatch parallel=off", {"parallel": "off"}),
    ("fatbatch cache=writethrough", {"cache": "writethrough"}),
    ("fatbatch cache=none", {"cache": "none"}),
    ("fatbatch cache=directsync", {"cache": "directsync"}),
]

# name, group, command, whether each write is synced without being asked.
QEMU_NBD = ["qemu-nbd", "--persistent", "--shared=0", "--format=raw",
            "--socket={sock}"]
PEERS = [
    ("nbdkit file", "nbdkit",
     ["{nbdkit}", "-f", "-U", "{sock}", "file", "{image}"], False),
    ("qemu-nbd writeback", "qemu",
     QEMU_NBD + ["--cache=writeback", "{image}"], False),
    ("qemu-nbd none+io_uring", "qemu",
     QEMU_NBD + ["--cache=none", "--aio=io_uring", "{image}"], False),
    ("qemu-nbd directsync", "qemu",
     QEMU_NBD + ["--cache=directsync", "{image}"], True),
    ("nbd-server", "nbd-server",
     ["nbd-server", "-C", "{dir}/nbd-server.conf", "-p", "{dir}/pid"], False),
    ("dsync plugin", "dsync",
     ["{nbdkit}", "-f", "-U", "{sock}", "{dsync}", "{image}"], False),
]

# With fua it calls fdatasync(2) after the write (seen with strace, 3.24).
NBD_SERVER_CONF = """[generic]
    unixsock = {sock}
[bench]
    exportname = {image}
    flush = true
    fua = true
"""


class ServerFailed(Exception):
    """It did not start, or did not end well."""


@dataclasses.dataclass
class Server:
    name: str
    group: str                  # "us", or whose
    command: list
    syncs_each: bool = False
    missing: str = ""           # why it cannot run here
    uri: str = "nbd+unix:///?socket={sock}"


def find_plugin(paths):
    return next((p for p in paths if os.path.exists(p)), paths[0])


class Programs:
    """Where everything is: as `make` built it, or as the environment says."""

    def __init__(self, srcdir):
        top = os.environ.get("abs_top_builddir") or \
            os.path.abspath(os.path.join(srcdir, "..", ".."))
        bench = os.path.join(top, "tests", "bench")
        env = os.environ.get
        self.nbdkit = env("NBDKIT", "nbdkit")
        self.fatbatch = env("FATBATCH", os.path.join(top, "tools", "fatbatch"))
        self.plugin = env("FATBATCH_SO") or find_plugin(
            [os.path.join(top, "fatbatch.so"),
             os.path.join(top, "plugin", ".libs",
                          "nbdkit-fatbatch-plugin.so")])
        self.dsync = env("DSYNC_SO") or find_plugin(
            [os.path.join(bench, ".libs", "dsync-plugin.so"),
             os.path.join(bench, "dsync-plugin.so")])
        os.environ["PATH"] += ":/usr/sbin:/sbin"

    def dump_plugin(self):
        text = subprocess.run(
            [self.nbdkit, self.plugin, "--dump-plugin"], check=True,
            stdout=subprocess.PIPE, text=True).stdout
        return dict(line.split("=", 1) for line in text.splitlines()
                    if "=" in line)


def missing_parameter(dump, parameters):
    """Which of them the plugin lacks, going by its --dump-plugin: KEY=VALUE
    is there if VALUE is a word of fatbatch_KEY or fatbatch_KEY_modes."""
    for key, value in parameters.items():
        words = dump.get(f"fatbatch_{key}_modes", dump.get(f"fatbatch_{key}"))
        if words is None or value not in words.split():
            return f"this plugin has no {key}={value}"
    return ""


def all_servers(programs):
    """Every Server, also those that cannot run here."""
    dump = programs.dump_plugin()
    servers = []
    for name, parameters in US:
        command = ["{nbdkit}", "-f", "-U", "{sock}", "{plugin}", "{image}"]
        command += [f"{k}={v}" for k, v in parameters.items()]
        cache = parameters.get("cache", "")
        servers.append(Server(
            name, "us", command, cache in ("writethrough", "directsync"),
            missing_parameter(dump, parameters)))
    for name, group, command, syncs_each in PEERS:
        server = Server(name, group, command, syncs_each)
        if group == "nbd-server":
            server.uri = "nbd+unix:///bench?socket={sock}"
        program = command[0].format(nbdkit=programs.nbdkit)
        if not shutil.which(program):
            server.missing = f"{program} is not installed"
        if group == "dsync" and not os.path.exists(programs.dsync):
            server.missing = f"{programs.dsync} is not built"
        servers.append(server)
    return servers


def with_stats(server):
    """Its command, so that our plugin tells its counters at the end.  nbdkit
    has to be verbose for that."""
    return server.command[:1] + ["-v", "-D", "fatbatch.stats=1"] + \
        server.command[1:]


def is_listening(path, port):
    """On a Unix socket, or on a port of this machine."""
    with socket.socket(socket.AF_INET if port else socket.AF_UNIX) as sock:
        try:
            sock.connect(("127.0.0.1", int(port)) if port else path)
        except OSError:
            return False
        return True


def wait_until(condition, seconds):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def is_running(pid):
    """Whether there is such a process; one that nobody has reaped is not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def end_pid(pid):
    """SIGTERM, then SIGKILL, to one process that we know to be ours."""
    for signal, patience in ((15, 20), (9, 5)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal)
        if wait_until(lambda: not is_running(pid), patience):
            return


class Running:
    """A server on an image, over a Unix socket or PORT, until the block
    ends.

    .uri and .command are what a reader needs to do it again.
    """

    def __init__(self, programs, server, image, directory, command=None,
                 port=None):
        # A short path: socket addresses are.
        self.directory = directory
        self.sock = os.path.join(directory, "sock")
        self.log = os.path.join(directory, "log")
        self.pidfile = os.path.join(directory, "pid")
        self.server = server
        self.port = port
        names = {"sock": self.sock, "image": image, "dir": directory,
                 "nbdkit": programs.nbdkit, "plugin": programs.plugin,
                 "dsync": programs.dsync}
        self.command = [w.format(**names) for w in command or server.command]
        self.uri = server.uri.format(**names)
        with open(os.path.join(directory, "nbd-server.conf"), "w",
                  encoding="utf-8") as conf:
            conf.write(NBD_SERVER_CONF.format(**names))
        self.process = None
        self.pid = None

    def __enter__(self):
        for path in (self.sock, self.pidfile):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        # It must not outlive us, even if we are killed.
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM"] + self.command,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            self.wait_ready()
        except BaseException:
            self.end()
            raise
        return self

    def wait_ready(self):
        daemon = self.server.group == "nbd-server"
        ended = False

        def settled():
            nonlocal ended
            ended = self.process.poll() is not None and not daemon
            return ended or is_listening(self.sock, self.port)
        if not wait_until(settled, 30) or ended:
            raise ServerFailed(f"{self.server.name} does not start: "
                               + self.log_end())
        if daemon:
            with open(self.pidfile, encoding="ascii") as pidfile:
                self.pid = int(pidfile.read())

    def log_text(self):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return log.read()

    def log_end(self):
        return " / ".join(self.log_text().splitlines()[-3:])

    def end(self):
        if self.pid is not None:
            end_pid(self.pid)
            self.pid = None
        if self.process is not None:
            if self.process.poll() is None:
                end_pid(self.process.pid)
            self.process.wait()

    def __exit__(self, kind, *_):
        was_there = self.process.poll() is None or self.pid is not None
        self.end()
        if kind is None and not was_there:
            raise ServerFailed(f"{self.server.name} ended by itself: "
                               + self.log_end())
