"""Training runs over hosts, for tests: a small model, its lines as they come, its end."""
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from hosts import SUBNET

PROGRAM = os.environ.get("ZEEPO_PROGRAM", "")
MODEL = Path(__file__).resolve().parent.parent / "data" / "golden" / "llama-tiny"
NAMES = ("zeepo", "orted", "mpirun")
# What an mpirun that a program starts by itself needs to talk over the hosts' network alone.
OVER_HOSTS = {"OMPI_MCA_oob_tcp_if_include": f"{SUBNET}.0/24", "OMPI_MCA_btl_tcp_if_include": f"{SUBNET}.0/24",
              "OMPI_MCA_btl": "tcp,self,vader", "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_pml": "ob1"}


class Failed(Exception):
    pass


def expect(condition, text, job):
    if not condition:
        raise Failed(f"{text}\n{job.messages()[-6000:]}")


def run_cases(cases):
    """Those named on the command line or all, some at a time; the exit code."""
    wanted = [case for case in cases if not sys.argv[1:] or case.__name__ in sys.argv[1:]]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(3) as threads:
        for case, future in [(case, threads.submit(case)) for case in wanted]:
            try:
                print(f"{case.__name__}: {future.result()}", flush=True)
            except Exception:
                failed += 1
                print(f"{case.__name__}: FAILED\n{traceback.format_exc()}", flush=True)
    return 1 if failed else 0


def arguments(*options, data=MODEL / "tokens.bin"):
    return [PROGRAM, "train", "--device", "cpu", "--model", MODEL, "--data", data, "--seq-len", "8",
            "--threads", "1", *options]


class Job:
    """A command on a host, with its output in files."""

    def __init__(self, hosts, head, words, env=None):
        self.hosts = hosts
        self.directory = tempfile.TemporaryDirectory(dir=hosts.directory)
        self.paths = [Path(self.directory.name, name) for name in ("out", "err")]
        with open(self.paths[0], "wb") as out, open(self.paths[1], "wb") as err, open(os.devnull, "rb") as nothing:
            self.process = hosts.popen(head, words, stdin=nothing, stdout=out, stderr=err, env=env or {})

    def out(self):
        return self.paths[0].read_text(errors="replace")

    def err(self):
        return self.paths[1].read_text(errors="replace")

    def messages(self):
        """What it said beside its steps."""
        return "\n".join(line for line in self.err().splitlines() if not line.startswith("step "))

    def steps(self):
        return sum(line.startswith("step ") for line in self.err().splitlines())

    def wait_for(self, condition, seconds=60):
        """Whether the condition comes true in time, and before the job ends."""
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end or self.process.poll() is not None:
                return condition()
            time.sleep(0.05)
        return True

    def wait(self, seconds):
        """The exit code; nothing when it takes longer."""
        end = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        return self.process.poll()

    def left(self):
        """Processes of the job that are still there, by host."""
        found = {name: len(self.hosts.processes(name, NAMES)) for name in self.hosts.hosts}
        return {name: count for name, count in found.items() if count}

    def wait_until_gone(self, seconds):
        end = time.monotonic() + seconds
        while self.left() and time.monotonic() < end:
            time.sleep(0.1)
        return self.left()


def of_supervisor(process):
    try:
        return b"--elastic" in Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False  # has ended


def ranks_on(hosts, name):
    return [process for process in hosts.processes(name, ["zeepo"]) if not of_supervisor(process)]


def supervisor_on(hosts, name):
    """The process of --elastic; nothing where there is none."""
    return next((process for process in hosts.processes(name, ["zeepo"]) if of_supervisor(process)), None)


def events(path):
    """The JSON lines of a log; a last one may be half written."""
    found = []
    for line in Path(path).read_text().splitlines() if Path(path).exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            pass
    return found


def weights_hash(log):
    hashes = [event["weights_hash"] for event in log if event["event"] == "summary"]
    return hashes[-1] if hashes else None


def undisturbed(directory, steps, micro_batches, at_most=240):
    """The log of a run of one rank that nobody disturbs."""
    log = Path(directory, "undisturbed.jsonl")
    words = arguments("--steps", str(steps), "--grad-accum", str(micro_batches), "--log", log)
    subprocess.run([str(word) for word in words], check=True, capture_output=True, timeout=at_most)
    return events(log)
