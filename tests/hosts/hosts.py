"""Hosts on one machine, for tests: each has a network, a name, processes and an sshd of its own.

    with Hosts(3) as hosts:
        hosts.run("node1", ["hostname"])
        hosts.cut("node3")                 # its cable is pulled
        hosts.kill("node2")                # its power fails
        hosts.start("node2")               # and is back

A host is a set of namespaces: network, host name, mounts (/etc/hosts, /etc/ssh, /run and /dev/shm are its own; all other files are
shared, as in a cluster), processes. A veth pair leads from its eth0 to a bridge in one more network namespace. Nothing is
added to the machine's own network. All ends with the program that made the hosts, even if that is killed: the first process of
a host lives as long as a pipe from there. Needs root; without it, or where namespaces are forbidden, unavailable() says why.
"""
import concurrent.futures
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

PREFIX = "zeepo-hosts-"
SUBNET = "10.213.47"  # inside of the namespaces alone
SKIPPED = 77          # exit code of a test that cannot run here
MARK = "ZEEPO_HOSTS"
TOOLS = ("unshare", "nsenter", "ip", "tc", "ssh", "ssh-keygen", "sshd", "mount")
UNSHARE = ["unshare", "--net", "--uts", "--mount", "--pid", "--ipc", "--fork", "--kill-child"]


def tool(name):
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def unavailable():
    """Why hosts cannot be made here; nothing where they can."""
    missing = [name for name in TOOLS if not tool(name)]
    if missing:
        return f"there is no {', '.join(missing)}: install iproute2, openssh-client, openssh-server, util-linux"
    if os.geteuid() != 0:
        return "namespaces with networks need root"
    tried = subprocess.run([*UNSHARE, "sh", "-c", "mount --make-rprivate / && mount -t proc proc /proc && hostname zeepo-test &&"
                            " ip link add zeepo0 type veth peer name zeepo1 && ip link add zeepo2 type bridge"],
                           capture_output=True, text=True, timeout=20)
    if tried.returncode != 0:
        return f"this machine allows no namespaces: {tried.stderr.strip() or tried.returncode}"
    return ""


def skip_if_unavailable():
    if reason := unavailable():
        print(f"skipped: {reason}", flush=True)
        sys.exit(SKIPPED)


def call(*words, seconds=20):
    """A short command of the set-up; raises with what it said."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, words))}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def first_child(process, seconds=10):
    """The id of the process that unshare has forked."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        if children:
            return int(children[0])
        if process.poll() is not None:
            break
        time.sleep(0.002)
    raise RuntimeError("unshare has started no process")


def remove_leftovers(parent):
    """Directories of programs that were killed: nobody holds their lock, and somebody did."""
    for path in Path(parent).glob(PREFIX + "*"):
        try:
            with open(path / "lock") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if lock.read():
                    shutil.rmtree(path, ignore_errors=True)
        except OSError:
            pass  # in use, about to be, or removed by another program


class Host:
    """One host: what is known of it while it is on, and after."""

    def __init__(self, name, number):
        self.name, self.address = name, f"{SUBNET}.{number}"
        self.card = f"02:7a:65:65:70:{number:02x}"
        self.port = f"port{number}"  # of the bridge
        self.holder = None           # unshare
        self.init = 0                # the first process, as this machine numbers it

    def on(self):
        return self.holder is not None and self.holder.poll() is None


def marked_processes(mark):
    """The processes of a harness, wherever they are."""
    wanted, found = f"{MARK}={mark}".encode(), []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and wanted in Path("/proc", entry, "environ").read_bytes().split(b"\0"):
                found.append(int(entry))
        except OSError:
            pass
    return found


class Hosts:
    def __init__(self, count, names=None):
        remove_leftovers(tempfile.gettempdir())
        self.directory = Path(tempfile.mkdtemp(prefix=PREFIX))
        self.lock = open(self.directory / "lock", "w")
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.lock.write("held\n")
        self.lock.flush()
        self.mark = uuid.uuid4().hex  # in the environment of every process of the hosts
        self.hosts = {}
        self.switch = None
        try:
            self.make_switch()
            self.make_files(names or [f"node{i + 1}" for i in range(count)])
            with concurrent.futures.ThreadPoolExecutor(count) as threads:
                list(threads.map(self.start, self.hosts))
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for host in self.hosts.values():
            self.end_processes(host)
        if self.switch:
            self.switch.stdin.close()
            self.switch.wait(10)
        shutil.rmtree(self.directory, ignore_errors=True)
        self.lock.close()

    # The network and files.

    def make_switch(self):
        self.switch = subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        end = time.monotonic() + 10
        while os.readlink(f"/proc/{self.switch.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
            if time.monotonic() > end:
                raise RuntimeError("no network namespace for the bridge")
            time.sleep(0.002)
        self.on_switch("ip", "link", "add", "bridge", "type", "bridge")
        self.on_switch("ip", "link", "set", "bridge", "up")

    def on_switch(self, *words):
        return call("nsenter", f"--net=/proc/{self.switch.pid}/ns/net", *words)

    def in_network(self, host, *words):
        return call("nsenter", f"--net=/proc/{host.init}/ns/net", *words)

    def make_files(self, names):
        self.hosts = {name: Host(name, i + 1) for i, name in enumerate(names)}
        lines = ["127.0.0.1 localhost"] + [f"{host.address} {host.name}" for host in self.hosts.values()]
        (self.directory / "hosts").write_text("\n".join(lines) + "\n")
        (self.directory / "nsswitch.conf").write_text("passwd: files\ngroup: files\nshadow: files\nhosts: files\n")  # no DNS
        (self.directory / "resolv.conf").write_text("")
        ssh = self.directory / "ssh"
        ssh.mkdir(mode=0o700)
        for key in ("user_key", "host_key"):
            call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", ssh / key)
        (ssh / "authorized_keys").write_text((ssh / "user_key.pub").read_text())
        (ssh / "ssh_config").write_text(
            "Host *\n  IdentityFile /etc/ssh/user_key\n  IdentitiesOnly yes\n  StrictHostKeyChecking no\n"
            "  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n  BatchMode yes\n")
        for host in self.hosts.values():
            own = self.directory / host.name
            own.mkdir(mode=0o700)
            shutil.copytree(ssh, own / "ssh")
            (own / "tmp").mkdir(mode=0o1777)
            given = " ".join(f"{name}={value}" for name, value in self.environment(host).items())
            (own / "ssh" / "sshd_config").write_text(
                f"ListenAddress {host.address}:22\nHostKey /etc/ssh/host_key\nAuthorizedKeysFile /etc/ssh/authorized_keys\n"
                f"PidFile none\nUsePAM no\nStrictModes no\nPermitRootLogin prohibit-password\nPasswordAuthentication no\n"
                f"MaxStartups 100\nUseDNS no\nSetEnv {given}\n")

    def environment(self, host):
        return {MARK: self.mark, "TMPDIR": str(self.directory / host.name / "tmp"), "PATH": os.environ.get("PATH", "/usr/bin:/bin")}

    # Hosts on and off.

    def start(self, name):
        host = self.hosts[name]
        if host.on():
            raise RuntimeError(f"{name} is on")
        own = self.directory / name
        shutil.rmtree(own / "tmp", ignore_errors=True)
        (own / "tmp").mkdir(mode=0o1777)
        with open(own / "init.log", "a") as log:
            host.holder = subprocess.Popen([*UNSHARE, sys.executable, str(Path(__file__).with_name("host_init.py"))],
                                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, bufsize=1)
        host.init = first_child(host.holder)
        self.tell(host, json.dumps({"name": name, "address": host.address, "folder": str(self.directory),
                                    "sshd": tool("sshd"), "environment": self.environment(host)}), "set up")
        self.plug_in(host)
        self.tell(host, "go", "started")

    def tell(self, host, line, answer):
        host.holder.stdin.write(line + "\n")
        host.holder.stdin.flush()
        if host.holder.stdout.readline().strip() != answer:
            raise RuntimeError(f"{host.name} was not set up: {(self.directory / host.name / 'init.log').read_text()}")

    def plug_in(self, host):
        subprocess.run(["nsenter", f"--net=/proc/{self.switch.pid}/ns/net", "ip", "link", "del", host.port], capture_output=True)
        self.on_switch("ip", "link", "add", host.port, "type", "veth", "peer", "name", "eth0", "netns", host.init)
        self.on_switch("ip", "link", "set", host.port, "master", "bridge", "up")
        self.in_network(host, "ip", "link", "set", "eth0", "address", host.card)  # a host that returns has the same
        self.in_network(host, "ip", "address", "add", f"{host.address}/24", "dev", "eth0")
        self.in_network(host, "ip", "link", "set", "eth0", "up")

    def kill(self, name):
        """The power fails: nobody hears of it, and all its processes are gone at once."""
        host = self.hosts[name]
        self.on_switch("ip", "link", "set", host.port, "down")
        self.end_processes(host)

    def end_processes(self, host):
        if not host.holder:
            return
        try:
            if host.init:
                os.kill(host.init, signal.SIGKILL)  # with it go all processes of its namespace
        except ProcessLookupError:
            pass
        host.holder.wait(20)
        host.holder.stdin.close()
        host.holder.stdout.close()
        host.holder, host.init = None, 0

    def cut(self, name):
        """The cable is pulled. What is on its way is lost, and no connection is closed."""
        self.on_switch("ip", "link", "set", self.hosts[name].port, "down")

    def join(self, name):
        """The cable is back."""
        self.on_switch("ip", "link", "set", self.hosts[name].port, "up")

    def limit(self, name, rate, latency="400ms"):
        """Both ways at this rate, as tc writes it: 8mbit. None: as fast as it goes."""
        host = self.hosts[name]
        for enter, device in ((self.on_switch, host.port), (lambda *words: self.in_network(host, *words), "eth0")):
            if rate:
                enter("tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", rate, "burst", "80kb", "latency", latency)
            elif "tbf" in enter("tc", "qdisc", "show", "dev", device):
                enter("tc", "qdisc", "del", "dev", device, "root")

    # Commands.

    def command(self, name, words):
        """What runs the words on a host, from this machine."""
        host = self.hosts[name]
        if not host.on():
            raise RuntimeError(f"{name} is off")
        return ["nsenter", "-t", str(host.init), "-n", "-u", "-m", "-p", "-i", "--", *[str(word) for word in words]]

    def popen(self, name, words, **options):
        environment = {**os.environ, **options.pop("env", {}), **self.environment(self.hosts[name])}
        return subprocess.Popen(self.command(name, words), env=environment, **options)

    def run(self, name, words, timeout=60, env=None):
        environment = {**os.environ, **(env or {}), **self.environment(self.hosts[name])}
        return subprocess.run(self.command(name, words), env=environment, capture_output=True, text=True, timeout=timeout,
                              stdin=subprocess.DEVNULL)

    def mpirun(self, names, words, ranks_per_host=1):
        """mpirun over hosts, to be started on the first of them."""
        return ["mpirun", "--allow-run-as-root", "--host", ",".join(f"{name}:{ranks_per_host}" for name in names),
                "-n", str(ranks_per_host * len(names)), "--map-by", "node", "--bind-to", "none",
                "--mca", "plm_rsh_agent", "ssh", "--mca", "oob_tcp_if_include", f"{SUBNET}.0/24",
                "--mca", "btl_tcp_if_include", f"{SUBNET}.0/24", "--mca", "btl", "tcp,self,vader",
                "--mca", "btl_vader_single_copy_mechanism", "none", "--mca", "pml", "ob1", *[str(word) for word in words]]

    def processes(self, name, of=("zeepo", "orted", "mpirun")):
        """Ids, as this machine has them, of the host's live processes with these names."""
        host, found = self.hosts[name], []
        if not host.on():
            return found
        namespace = os.readlink(f"/proc/{host.init}/ns/pid")
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                if os.readlink(f"/proc/{entry}/ns/pid") != namespace:
                    continue
                stat = Path("/proc", entry, "stat").read_text()
                if stat[stat.index("(") + 1:stat.rindex(")")] in of and stat.rpartition(")")[2].split()[0] != "Z":
                    found.append(int(entry))
            except OSError:
                pass  # has ended meanwhile
        return found
