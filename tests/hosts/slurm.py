"""Slurm over hosts, for tests: munged and slurmd on each, slurmctld on the first. All of them end with the hosts.

    with Hosts(2) as hosts:
        slurm = Slurm(hosts)
        job = slurm.job(["srun", "--nodes", "2", "hostname"])

Each Slurm has a key and files of its own, in the hosts' directory. No control groups, no accounts, and more tasks than cores.
"""
import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

from hosts import tool
from training import Job, OVER_HOSTS

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scancel", "sinfo", "squeue")
SOCKET = "run/munge/munge.socket.2"  # where Slurm looks for it; a host's /run is its own
KILL_WAIT = 5                        # seconds; srun waits two more for a host that does not answer
# TmpFS: the hosts share /tmp, where the tasks of one step would meet.
CONF = """ClusterName=zeepo
SlurmctldHost={head}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
TmpFS={hosts}/%n/tmp
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/linear
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=pmix
ReturnToService=2
KillWait={kill_wait}
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""


def unavailable():
    """Why there is no Slurm with PMIx here; nothing where there is."""
    missing = [name for name in PROGRAMS if not tool(name)]
    if missing:
        return f"there is no {', '.join(missing)}: install slurmctld, slurmd"
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as conf:
        conf.write("ClusterName=zeepo\nSlurmctldHost=localhost\n")
        conf.flush()
        found = subprocess.run([tool("srun"), "--mpi=list"], env={**os.environ, "SLURM_CONF": conf.name}, capture_output=True,
                               text=True, timeout=20)
    if "pmix" not in found.stdout + found.stderr:
        return f"this Slurm has no PMIx; srun --mpi=list: {(found.stdout + found.stderr).strip()}"
    return ""


def cgroup_plugin():
    """Versions before 23.11 cannot do without one; that for version 1 makes no group by itself."""
    version = re.search(r"(\d+)\.(\d+)", subprocess.run([tool("slurmd"), "-V"], capture_output=True, text=True, timeout=20).stdout)
    return "disabled" if tuple(map(int, version.groups())) >= (23, 11) else "cgroup/v1"


class Slurm:
    def __init__(self, hosts):
        self.hosts, self.head = hosts, next(iter(hosts.hosts))
        self.folder = Path(hosts.directory, "slurm")
        for path in (self.folder, self.folder / "state", *(self.folder / f"spool-{name}" for name in hosts.hosts)):
            path.mkdir(mode=0o755)
        nodes = [f"NodeName={host.name} NodeAddr={host.address} CPUs=4" for host in hosts.hosts.values()]
        conf = self.folder / "slurm.conf"
        conf.write_text(CONF.format(head=self.head, folder=self.folder, hosts=hosts.directory, kill_wait=KILL_WAIT,
                                    nodes="\n".join(nodes)))
        (self.folder / "cgroup.conf").write_text(f"CgroupPlugin={cgroup_plugin()}\n")
        (self.folder / "munge.key").write_bytes(os.urandom(128))
        (self.folder / "munge.key").chmod(0o400)
        # As root, mpirun wants to be allowed twice.
        self.environment = {**OVER_HOSTS, "SLURM_CONF": str(conf), "OMPI_ALLOW_RUN_AS_ROOT": "1",
                            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        for name in hosts.hosts:
            self.start_munged(name)
        self.start_daemon(self.head, "slurmctld", "-D")
        for name in hosts.hosts:
            self.start_daemon(name, "slurmd", "-D", "-N", name)
        self.wait_until(lambda: self.idle_nodes() == len(hosts.hosts), "the nodes are not idle")

    def start_daemon(self, host, name, *words):
        with open(self.folder / f"{name}-{host}.err", "ab") as log:
            self.hosts.popen(host, [tool(name), *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment)

    def start_munged(self, name):
        root = Path(f"/proc/{self.hosts.hosts[name].init}/root")  # as the host sees it
        socket = root / SOCKET
        socket.parent.mkdir(mode=0o755)
        self.start_daemon(name, "munged", "--foreground", "--key-file", self.folder / "munge.key", "--socket", f"/{SOCKET}",
                          "--pid-file", "/run/munge/munged.pid", "--seed-file", "/run/munge/seed", "--log-file",
                          self.folder / f"munged-{name}.log")
        self.wait_until(socket.exists, f"no munged on {name}")

    def wait_until(self, condition, text, seconds=60):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                logs = [f"{path.name}:\n{path.read_text()[-2000:]}" for path in self.folder.iterdir() if path.suffix in (".err", ".log")]
                raise RuntimeError("\n".join([f"Slurm: {text}", *logs]))
            time.sleep(0.1)

    def idle_nodes(self):
        found = self.run("sinfo", "--noheader", "--states", "idle", "--format", "%D").stdout
        return sum(int(number) for number in found.split())

    def failed_jobs(self):
        return self.run("squeue", "--noheader", "--states", "FAILED,CANCELLED", "--format", "%i").stdout.split()

    def run(self, *words):
        return self.hosts.run(self.head, words, env=self.environment)

    def job(self, words):
        return Job(self.hosts, self.head, words, self.environment)
