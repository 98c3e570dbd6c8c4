#!/usr/bin/env python3
"""The first process of a host, in namespaces of its own (hosts.py): sets the host up, starts sshd, and collects the dead.

It ends when its standard input does, and the kernel then ends every process of the host.
"""
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path


def mount(*words):
    subprocess.run(["mount", *map(str, words)], check=True, stdin=subprocess.DEVNULL)


def set_up(host):
    socket.sethostname(host["name"])
    mount("--make-rprivate", "/")
    mount("-t", "proc", "proc", "/proc")
    # What ends with the host: shared memory, sockets, files of a launcher.
    for folder in ("/dev/shm", "/run"):
        mount("-t", "tmpfs", "tmpfs", folder)
    os.mkdir("/run/sshd", 0o755)
    folder = Path(host["folder"])
    for name in ("hosts", "nsswitch.conf", "resolv.conf"):
        if Path("/etc", name).exists():
            mount("--bind", folder / name, f"/etc/{name}")
    mount("--bind", folder / host["name"] / "ssh", "/etc/ssh")
    os.environ.update(host["environment"])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def start_sshd(host):
    # -D: a child of this process. Its lines go to a file of the host.
    log = os.open(Path(host["folder"], host["name"], "sshd.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    subprocess.Popen([host["sshd"], "-D", "-e", "-f", "/etc/ssh/sshd_config"], stdin=subprocess.DEVNULL, stdout=log,
                     stderr=log)
    os.close(log)
    end = time.monotonic() + 20
    while True:
        try:
            socket.create_connection((host["address"], 22), 2).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


def main():
    host = json.loads(sys.stdin.readline())
    set_up(host)
    print("set up", flush=True)
    if sys.stdin.readline() != "go\n":  # the network is there
        return
    start_sshd(host)
    print("started", flush=True)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready = select.select([sys.stdin], [], [], 0.2)[0]
        while True:
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    break
            except ChildProcessError:
                break
        if ready and not sys.stdin.readline():
            return


if __name__ == "__main__":
    main()
