"""What the soak programs share: cases drawn from a seed until the time is up, and programs run with a limit of time.

A case is drawn from the seed and its number alone, so that `--seed S --case N` repeats it. Each case has a directory, which
is kept if the case fails; all that a program of the case has started is ended with it.
"""
import argparse
import concurrent.futures
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

MPI_ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
}
# What a program says that ends by a fault of its own, or that a sanitizer watches.
DUMPS = ("AddressSanitizer", "LeakSanitizer", "ThreadSanitizer", "runtime error:", "terminate called", "what():",
         "Assertion", "Segmentation fault", "stack smashing", "free():", "malloc():", "exited on signal")
# In the environment of all that a run has started; how its processes are found.
MARK = "ZEEPO_SOAK_RUN"
FULL_OUTPUT = 4000  # characters shown of what a program that failed has said


class Failed(Exception):
    """What a case found wrong. The text names it; the runs are those that show it."""

    def __init__(self, text, *runs):
        super().__init__(text)
        self.text, self.runs = text, runs


class OutOfTime(Exception):
    """The time of the whole soak is up, in the middle of a case."""


@dataclass
class Finished:
    """A program that has ended."""
    command: list
    environment: dict
    code: int
    out: str
    err: str
    seconds: float
    timed_out: bool
    left_processes: int  # that lived on after it
    peak_bytes: int      # of the largest process
    sign: str = "zeepo: "  # what the program's messages begin with

    def shell(self):
        """What repeats it in a shell."""
        given = [f"{name}={shlex.quote(value)}" for name, value in sorted(self.environment.items())]
        return " ".join(given + [shlex.join(self.command)])

    def messages(self):
        """The program's own error messages."""
        return [line for line in self.err.splitlines()
                if line.startswith(self.sign) and not line.startswith("zeepo: warning: ")]

    def check_end(self, codes=(0, 1, 2)):
        """Raises Failed for an end that no program may have, whatever it was asked."""
        if self.timed_out:
            raise Failed(f"did not end within {self.seconds:.0f} s", self)
        if self.code < 0:
            raise Failed(f"ended by signal {-self.code} ({signal.strsignal(-self.code)})", self)
        for dump in DUMPS:
            if dump in self.err or dump in self.out:
                raise Failed(f"said \"{dump}\"", self)
        if self.left_processes:
            raise Failed(f"{self.left_processes} of its processes lived on", self)
        if self.code not in codes:
            raise Failed(f"exit code {self.code}, must be one of {', '.join(map(str, codes))}", self)
        if self.code != 0 and not self.messages():
            raise Failed(f"exit code {self.code} without a message", self)

    def events(self):
        """The JSON lines of stdout."""
        try:
            return [json.loads(line) for line in self.out.splitlines()]
        except ValueError as fault:
            raise Failed(f"stdout is not JSON lines: {fault}", self) from None


def marked_processes(mark):
    """Ids of the processes that a run has started and that are still there."""
    found, wanted = [], f"{MARK}={mark}".encode()
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            if wanted in Path("/proc", entry, "environ").read_bytes().split(b"\0"):
                if Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                    found.append(int(entry))
        except OSError:
            pass  # has ended meanwhile
    return found


def end_processes(mark):
    """Ends what is left of a run, and says how many there were."""
    left = marked_processes(mark)
    for process in left:
        try:
            os.kill(process, signal.SIGKILL)
        except OSError:
            pass
    return len(left)


class Patience:
    """Seconds on a quiet machine: while more processes want to run than there are cores, they last longer."""

    def __init__(self, seconds):
        self.left, self.last = seconds, time.monotonic()

    def is_over(self):
        now = time.monotonic()
        self.left -= (now - self.last) / max(1, os.getloadavg()[0] / os.cpu_count())
        self.last = now
        return self.left < 0


def wait_for(process, seconds):
    """The status and usage of a child; nothing when it takes longer."""
    patience = Patience(seconds)
    pause = 0.001
    while True:
        child, status, usage = os.wait4(process.pid, os.WNOHANG)
        if child:
            process.returncode = os.waitstatus_to_exitcode(status)
            return usage
        if patience.is_over():
            return None
        time.sleep(pause)
        pause = min(pause * 1.5, 0.02)


def run(command, directory, environment=None, timeout=60, stdin=None):
    """Runs a command in a directory, in a process group of its own, and ends it as a whole after `timeout` seconds."""
    environment = dict(environment or {})
    mark = uuid.uuid4().hex
    command = [str(word) for word in command]
    start = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with open(stdin or os.devnull, "rb") as source:
            process = subprocess.Popen(command, cwd=directory, stdin=source, stdout=out, stderr=err,
                                       start_new_session=True, env={**os.environ, **environment, MARK: mark})
        usage = wait_for(process, timeout)
        timed_out = usage is None
        if timed_out:
            os.killpg(process.pid, signal.SIGTERM)  # a launcher ends its ranks
            if wait_for(process, 3) is None:
                os.killpg(process.pid, signal.SIGKILL)
                wait_for(process, 10)
        seconds = time.monotonic() - start
        left = 0
        if timed_out or marked_processes(mark):
            time.sleep(0 if timed_out else 1)  # ranks may end after their launcher
            left = end_processes(mark)
        out.seek(0)
        err.seek(0)
        text = [file.read().decode("utf-8", "replace") for file in (out, err)]
    return Finished(command, environment, process.returncode if process.returncode is not None else -9, text[0], text[1],
                    seconds, timed_out, 0 if timed_out else left, usage.ru_maxrss * 1024 if usage else 0)


class Case:
    """One draw: its random numbers, its directory, and the time it has."""

    def __init__(self, soak, number):
        self.soak, self.number = soak, number
        self.random = random.Random(f"{soak.options.seed}/{soak.name}/{number}")
        self.directory = Path(tempfile.mkdtemp(prefix=f"{soak.name}-{number}-", dir=soak.directory))
        self.runs = 0

    def chance(self, probability):
        return self.random.random() < probability

    def one_of(self, choices):
        return self.random.choice(list(choices))

    def new_directory(self, name):
        path = self.directory / f"{name}-{self.runs}"
        path.mkdir(exist_ok=True)
        return path

    def run(self, arguments, ranks=1, program=None):
        """Runs the program with these arguments; raises Failed for an end that nothing may have."""
        command, environment = [program or self.soak.options.program, *arguments], {}
        if ranks > 1:
            command, environment = [*self.soak.launcher, "-n", str(ranks), *command], MPI_ENVIRONMENT
        finished = self.launch(command, environment)
        if program:
            finished.sign = ""
        finished.check_end()
        return finished

    def launch(self, command, environment=None, timeout=None):
        """Runs any command in the case's directory, however it ends."""
        if time.monotonic() > self.soak.end and self.soak.options.case is None:
            raise OutOfTime
        self.runs += 1
        return run(command, self.directory, environment, timeout or self.soak.options.timeout)


class Soak:
    """Draws cases until the time is up, and reports."""

    def __init__(self, name, description, add_options=None):
        parser = argparse.ArgumentParser(prog=f"{name}.py", description=description)
        parser.add_argument("--program", required=True, type=lambda text: str(Path(text).resolve()), help="zeepo")
        parser.add_argument("--seconds", type=float, default=60, help="how long to go on")
        parser.add_argument("--seed", type=int, default=None, help="of all draws; a new one each time by default")
        parser.add_argument("--jobs", type=int, default=1, help="cases at a time")
        parser.add_argument("--case", type=int, default=None, help="this case alone, to its end")
        parser.add_argument("--timeout", type=float, default=180, help="seconds a program may take on a quiet machine")
        parser.add_argument("--keep", type=Path, default=None, help="where the files of failed cases are put")
        parser.add_argument("--most-failures", type=int, default=10, help="after which it stops")
        parser.add_argument("--mpirun", default="mpirun", help="what starts ranks; empty: one rank alone")
        if add_options:
            add_options(parser)
        self.name, self.options = name, parser.parse_args()
        if self.options.seed is None:
            self.options.seed = random.SystemRandom().randrange(1 << 32)
        if not os.access(self.options.program, os.X_OK):
            parser.error(f"--program {self.options.program}: not a program")
        if self.options.keep:  # absolute: each program runs in a directory of its own
            self.options.keep = self.options.keep.resolve()
            self.options.keep.mkdir(parents=True, exist_ok=True)
        self.directory = tempfile.mkdtemp(prefix=f"zeepo-soak-{name}-", dir=self.options.keep)
        os.chmod(self.directory, 0o755)
        self.launcher = [self.options.mpirun, "--bind-to", "none"]
        self.most_ranks = 4 if self.options.mpirun else 1
        self.end = time.monotonic() + self.options.seconds
        self.counts, self.failures, self.cases = {}, 0, 0
        self.lock = threading.Lock()

    def count(self, what):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    def say(self, text):
        with self.lock:
            print(text, flush=True)

    def __call__(self, draw):
        """Runs draw(case) for case after case; returns the exit code."""
        print(f"{self.name}: seed {self.options.seed}", flush=True)
        start = time.monotonic()
        self.end = start + self.options.seconds
        if self.options.case is not None:
            self.one(draw, self.options.case)
        else:
            with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as threads:
                workers = [threads.submit(self.work, draw, start) for _ in range(self.options.jobs)]
                for worker in workers:
                    worker.result()
        self.report(start)
        if not self.failures:
            shutil.rmtree(self.directory, ignore_errors=True)
        return 1 if self.failures else 0

    def work(self, draw, start):
        while time.monotonic() < self.end and self.failures < self.options.most_failures:
            with self.lock:
                number = self.cases
                self.cases += 1
            self.one(draw, number)
            with self.lock:
                due = time.monotonic() > getattr(self, "next_report", start + 10)
                if due:
                    self.next_report = time.monotonic() + 30
            if due:
                self.report(start)

    def one(self, draw, number):
        case = Case(self, number)
        try:
            draw(case)
        except OutOfTime:
            pass
        except Failed as failed:
            self.show(case, failed)
            return
        except Exception:
            self.say(f"case {number} of seed {self.options.seed}: the soak program itself failed")
            with self.lock:
                self.failures += 1
            raise
        shutil.rmtree(case.directory, ignore_errors=True)

    def show(self, case, failed):
        lines = [f"FAILED: {failed.text}", f"  case    {self.replay(case.number)}", f"  files   {case.directory}"]
        for finished in failed.runs:
            lines.append(f"  run     (cd {case.directory} && {finished.shell()})")
            lines.append(f"  ended   with {finished.code} after {finished.seconds:.1f} s")
            for name, text in (("stdout", finished.out), ("stderr", finished.err)):
                lines += [f"  {name}  {line}" for line in text[-FULL_OUTPUT:].splitlines()]
        self.say("\n".join(lines))
        with self.lock:
            self.failures += 1

    def replay(self, number):
        kept = [word for word in sys.argv[1:]]
        for option in ("--seed", "--seconds", "--jobs", "--case"):
            while option in kept:
                at = kept.index(option)
                del kept[at:at + 2]
        return shlex.join(["python3", sys.argv[0], *kept, "--seed", str(self.options.seed), "--case", str(number)])

    def report(self, start):
        seen = ", ".join(f"{count} {what}" for what, count in sorted(self.counts.items()))
        self.say(f"{self.name}: {time.monotonic() - start:.0f} s, {seen or 'nothing yet'}; "
                 f"{self.failures} failed (seed {self.options.seed})")


def partial_files(directory):
    """What a program has begun to write and left behind."""
    return sorted(str(path.relative_to(directory)) for path in Path(directory).rglob("*")
                  if ".partial-" in path.name or path.name.startswith("zeepo-swap-"))
