#!/usr/bin/env python3
"""elastic.py --program ZEEPO: one run with --elastic on three hosts, whose power fails, whose links are cut and slow.

The hosts are namespaces on this machine (tests/hosts/hosts.py). Disturbances are drawn from a seed until the time is up; then
the run is told to end (exit code 75) and goes on undisturbed for a few steps. It has the weights of a run of one rank that
nobody disturbed, to the bit. The supervisor's memory stays as it was, and no process, file or device is left behind.
"""
import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "hosts"))
import hosts as harness  # noqa: E402
from hosts import Hosts, marked_processes  # noqa: E402

MICRO_BATCHES = 6
LONGEST_WITHOUT_CHECKPOINT = 240  # seconds
MORE_MEMORY = 4 << 20             # that a supervisor may take after its first jobs


class Failed(Exception):
    pass


def devices():
    return sorted(line.split(":")[1].strip() for line in subprocess.run(
        [harness.tool("ip"), "-o", "link"], capture_output=True, text=True, check=True).stdout.splitlines())


class Elastic:
    """The run, and what is done to its hosts."""

    def __init__(self, options, hosts, directory, training):
        self.training = training
        self.options, self.hosts, self.directory = options, hosts, Path(directory)
        self.random = random.Random(options.seed)
        self.log = self.directory / "log.jsonl"
        self.job = None
        self.counts, self.memory = {}, []
        self.later = []  # what puts a disturbance right
        self.start = time.monotonic()

    def say(self, text):
        print(f"elastic: {time.monotonic() - self.start:.0f} s: {text}", flush=True)

    def begin(self, steps, *more):
        self.job = self.training.Job(self.hosts, "node1", self.training.arguments(
            "--elastic", "--hosts", "node1,node2,node3", "--steps", str(steps), "--grad-accum", str(MICRO_BATCHES // 3),
            "--stage", "2", "--simulate-link", "ranks=10MB/s", "--checkpoint-dir", self.directory / "checkpoints",
            "--checkpoint-every", "10", "--log", self.log, *more), self.training.OVER_HOSTS)

    def fail(self, text):
        raise Failed(f"{text}\n{self.job.messages()[-8000:]}")

    def check(self):
        if self.job.process.poll() is not None:
            self.fail(f"ended with {self.job.process.poll()}")

    def newest(self):
        names = [path.name for path in (self.directory / "checkpoints").glob("step-*") if path.suffix != ".partial"]
        return max([int(name.split("-")[1]) for name in names], default=0)

    def sample_memory(self):
        try:
            text = Path(f"/proc/{self.training.supervisor_on(self.hosts, 'node1')}/status").read_text()
            self.memory.append(int(text.split("VmRSS:")[1].split()[0]) << 10)
        except (OSError, IndexError):
            pass

    def put_right(self, everything=False):
        """Undoes the disturbances whose time is up."""
        now = time.monotonic()
        due = [entry for entry in self.later if everything or entry[0] <= now]
        self.later = [entry for entry in self.later if entry not in due]
        for _, what, undo in due:
            self.say(what)
            undo()

    def wait_for_checkpoint(self, end):
        at, since = self.newest(), time.monotonic()
        while self.newest() <= at and time.monotonic() < end:
            self.check()
            self.put_right()
            if time.monotonic() - since > LONGEST_WITHOUT_CHECKPOINT:
                self.fail(f"no checkpoint for {LONGEST_WITHOUT_CHECKPOINT} s")
            time.sleep(0.1)
        self.sample_memory()

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    def signal_rank(self, name, number):
        ranks = self.training.ranks_on(self.hosts, name)[:1]
        for rank in ranks:
            try:
                os.kill(rank, number)
            except OSError:
                return []
        return ranks

    def disturb(self):
        """One disturbance, of a host that has none now."""
        busy = [what.split()[0] for _, what, _ in self.later]
        free = [name for name in self.hosts.hosts if name not in busy]
        if not free:
            return
        kinds = ["power", "cable", "cable", "slow link", "slow link", "killed rank", "stopped rank"]
        kind, name = self.random.choice(kinds), self.random.choice(free)
        seconds = self.random.uniform(1, 25)
        if kind == "power" and name == "node1":  # the head
            kind = "cable"
        text, undo = "", None
        if kind == "power":
            self.hosts.kill(name)
            text, undo = "is on again", lambda: self.hosts.start(name)
        elif kind == "cable":
            self.hosts.cut(name)
            text, undo = "has its link again", lambda: self.hosts.join(name)
        elif kind == "slow link":
            rate = self.random.choice(["200kbit", "1mbit", "10mbit"])
            self.hosts.limit(name, rate)
            text = "has its rate again"
            undo = lambda: self.hosts.limit(name, None) if self.hosts.hosts[name].on() else None  # noqa: E731
        elif kind == "killed rank":
            if not self.signal_rank(name, signal.SIGKILL):
                return
        else:
            ranks = self.signal_rank(name, signal.SIGSTOP)
            if not ranks:
                return
            text = "has its rank again"

            def undo():
                for rank in ranks:
                    try:
                        os.kill(rank, signal.SIGCONT)
                    except OSError:
                        pass
        self.say(f"{name}: {kind}" + (f" for {seconds:.0f} s" if undo else ""))
        self.count(kind)
        if undo:
            self.later.append((time.monotonic() + seconds, f"{name} {text}", undo))

    def run(self):
        self.begin(1 << 40)
        self.wait_for_checkpoint(self.start + LONGEST_WITHOUT_CHECKPOINT)
        end = time.monotonic() + self.options.seconds
        while time.monotonic() < end:
            self.disturb()
            self.wait_for_checkpoint(end)
            pause = time.monotonic() + self.random.uniform(0, 8)
            while time.monotonic() < min(pause, end):
                self.check()
                self.put_right()
                time.sleep(0.1)
        self.put_right(everything=True)
        self.finish()

    def finish(self):
        self.wait_for_checkpoint(time.monotonic() + LONGEST_WITHOUT_CHECKPOINT)
        os.kill(self.training.supervisor_on(self.hosts, "node1"), signal.SIGTERM)
        if self.job.wait(120) != 75:
            self.fail(f"told to end: exit code {self.job.process.poll()}, must be 75")
        steps = self.newest() + 5
        self.say(f"ends at step {steps}")
        reference = self.directory / "reference.jsonl"
        undisturbed = subprocess.Popen(
            [str(word) for word in self.training.arguments("--steps", str(steps), "--grad-accum", str(MICRO_BATCHES), "--log", reference)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self.begin(steps, "--resume")
            if self.job.wait(300) != 0:
                self.fail(f"exit code {self.job.process.poll()}")
            undisturbed.wait(self.options.seconds * 2 + 300)
        finally:
            undisturbed.kill()
            undisturbed.wait()
        found, wanted = (self.training.weights_hash(self.training.events(path)) for path in (self.log, reference))
        if found is None or found != wanted:
            self.fail(f"weights {found}, must be {wanted}")
        if left := self.job.wait_until_gone(30):
            self.fail(f"processes are left: {left}")
        files = [path.name for path in (self.directory / "checkpoints").iterdir()
                 if not path.name.startswith("step-") or ".partial" in path.name]
        if files:
            self.fail(f"files are left: {files}")
        if self.memory and max(self.memory[len(self.memory) // 2:]) > self.memory[min(2, len(self.memory) - 1)] + MORE_MEMORY:
            self.fail(f"the supervisor's memory grows: {self.memory[:3]} ... {self.memory[-3:]}")
        lives = [event for event in self.training.events(self.log) if event["event"] == "elastic"]
        done = ", ".join(f"{count} {what}" for what, count in sorted(self.counts.items()))
        self.say(f"{len(lives)} jobs, {steps} steps, {done or 'undisturbed'}; supervisor "
                 f"{max(self.memory, default=0) >> 10} KiB; the weights of the undisturbed run (seed {self.options.seed})")


def main():
    parser = argparse.ArgumentParser(prog="elastic.py", description=__doc__)
    parser.add_argument("--program", required=True, type=lambda text: str(Path(text).resolve()), help="zeepo")
    parser.add_argument("--seconds", type=float, default=60, help="how long to disturb the run")
    parser.add_argument("--seed", type=int, default=None, help="of all draws; a new one each time by default")
    parser.add_argument("--keep", type=Path, default=None, help="where the files of a failed run are put")
    parser.add_argument("--jobs", type=int, default=1, help="as the other soak programs have it; one run at a time")
    parser.add_argument("--mpirun", default="mpirun", help="likewise: --elastic takes the one in PATH")
    options = parser.parse_args()
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1 << 32)
    print(f"elastic: seed {options.seed}", flush=True)
    harness.skip_if_unavailable()
    os.environ["ZEEPO_PROGRAM"] = options.program
    import training  # reads it
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    before = devices()
    failure = ""
    with tempfile.TemporaryDirectory(prefix="zeepo-elastic-") as directory:
        with Hosts(3) as hosts:
            run = Elastic(options, hosts, directory, training)
            try:
                run.run()
            except Failed as failed:
                failure = str(failed)
                if options.keep and run.log.exists():
                    (options.keep / f"elastic-{options.seed}.jsonl").write_text(run.log.read_text())
            mark, made = hosts.mark, hosts.directory
    if not failure and (marked_processes(mark) or made.exists() or devices() != before):
        failure = f"left behind: processes {marked_processes(mark)}, files {made.exists()}, devices {devices()}"
    if failure:
        print(f"FAILED: {failure}\n  again   python3 {sys.argv[0]} --program {options.program} --seconds {options.seconds:.0f} "
              f"--seed {options.seed}", flush=True)
    return 1 if failure else 0


if __name__ == "__main__":
    sys.exit(main())
