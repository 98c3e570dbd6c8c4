#!/usr/bin/env python3
"""faults.py --program ZEEPO --shim LIBRARY: faults of the system at random.

Threads, files, memory, locks and room on a disk are refused: by limits of the process, by a small file system, or by a
library (fault_shim.c) that lets the n-th call of a kind fail. The program ends in seconds with an error that names the
cause, on every rank; or it ends well, with the bits of an undisturbed run. It leaves nothing half written behind.
"""
import errno
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from harness import MPI_ENVIRONMENT, Case, Failed, Soak, partial_files
from models import DATA

GOLDEN = DATA / "golden"
SECONDS, SECONDS_OF_JOB = 20, 45  # until it must have ended
STRANGER = "54321"                # a user id without processes of its own, for limits that do not bind root

# What may go wrong with each call.
ERRORS = {
    "open": [errno.EMFILE, errno.ENFILE, errno.EIO, errno.EACCES, errno.ENOSPC], "fopen": [errno.EMFILE, errno.EACCES],
    "mkostemp": [errno.EMFILE, errno.ENOSPC], "mkdir": [errno.ENOSPC, errno.EACCES], "read": [errno.EIO, "short"],
    "pread": [errno.EIO, errno.EINTR, "short"], "write": [errno.EIO, errno.ENOSPC, errno.EINTR, "short"],
    "pwrite": [errno.EIO, errno.ENOSPC, "short"], "fsync": [errno.EIO, errno.ENOSPC, errno.EDQUOT],
    "rename": [errno.EACCES, errno.ENOSPC, errno.EIO], "fallocate": [errno.ENOSPC, errno.EOPNOTSUPP, errno.EIO],
    "close": [errno.EIO, errno.ENOSPC], "mmap": [errno.ENOMEM], "malloc": [errno.ENOMEM],
    "pthread_create": [errno.EAGAIN], "eventfd": [errno.EMFILE],
    "io_uring_queue_init": [errno.ENOSYS, errno.EPERM, errno.ENOMEM], "io_uring_register_buffers": [errno.ENOMEM],
    "io_uring_submit": [errno.EAGAIN, errno.EBUSY, errno.EIO],
}
# How a message may name a cause other than in the system's words.
OTHER_WORDS = {errno.ENOMEM: ["memory"], errno.EAGAIN: ["thread"], errno.ENOSPC: ["room", "free"], errno.EDQUOT: ["room"],
               errno.EFBIG: ["room"]}


class Job:
    """A command, where it writes, and what is compared of it."""

    def __init__(self, name, ranks, arguments, writes, saves=False):
        self.name, self.ranks, self.arguments, self.writes = name, ranks, arguments, writes
        self.saves = saves  # checkpoints in "saved"
        self.codes = (0, 1, 2, 3) if saves else (0, 1, 2)

    def arguments_in(self, folder):
        return [word.replace("HERE", str(folder)) for word in self.arguments]

    def result(self, folder, finished):
        """What must be the same whenever the job ends well."""
        result = {}
        log = folder / "log.jsonl"
        if log.exists():
            events = [json.loads(line) for line in log.read_text().splitlines()]
            result["losses"] = [event["loss"] for event in events if event["event"] == "step"]
            result["hash"] = [event["weights_hash"] for event in events if event["event"] == "summary"]
        if self.arguments[0] == "generate":
            result["ids"] = [event["ids"] for event in finished.events() if "ids" in event]
        for name in self.writes:
            if not (folder / name).exists():
                raise Failed(f"ended well without {name}", finished)
            result[name] = digest(folder / name)
        return result


def digest(path):
    if path.name == "trace.json":  # times differ
        return bool(json.loads(path.read_text()))
    if path.is_dir():
        return {inner.name: digest(inner) for inner in sorted(path.iterdir())}
    return hashlib.sha256(path.read_bytes()).hexdigest()


def train_on(model, *more):
    return ["train", "--device", "cpu", "--model", str(GOLDEN / model), "--data", str(GOLDEN / model / "tokens.bin"),
            "--steps", "2", "--seq-len", "16", "--micro-batch", "2", "--threads", "2", "--memory",
            "device=64MiB,host=64MiB", "--log", "HERE/log.jsonl", "--output", "HERE/model", "--output-retry", "1", *more]


def jobs(checkpoint):
    """`checkpoint` is one that was written undisturbed."""
    files = ["--offload-param", "nvme", "--offload-optimizer", "host=0.4,nvme=0.5", "--offload-activations", "nvme",
             "--nvme-path", "HERE/nvme"]
    text = GOLDEN / "tokenizers" / "gpt2-bpe"
    generate = ["generate", "--device", "cpu", "--model", str(GOLDEN / "llama-tiny"), "--max-new-tokens", "5", "--threads",
                "2", "--memory", "device=64MiB,host=64MiB", "--json"]
    return [
        Job("resident", 1, train_on("gpt2-tiny", "--trace", "HERE/trace.json"), ["model", "trace.json"]),
        Job("sharded files", 1, train_on("mistral-tiny", *files), ["model"]),
        Job("host", 1, train_on("llama-tiny", "--offload-optimizer", "host", "--offload-param", "host", "--clip", "0"),
            ["model"]),
        Job("two ranks", 2, train_on("qwen3-tiny", "--stage", "3", *files), ["model"]),
        Job("two ranks at stage 0", 2, train_on("qwen2-tiny", "--stage", "0", "--trace", "HERE/trace.json"),
            ["model", "trace.json"]),
        Job("checkpoints", 1, train_on("gpt2-tiny", "--checkpoint-dir", "HERE/saved", "--checkpoint-every", "1"), ["model"],
            saves=True),
        Job("checkpoints of two ranks", 2, train_on("llama-tiny", "--stage", "2", "--checkpoint-dir", "HERE/saved",
                                                    "--checkpoint-every", "1", *files), ["model"], saves=True),
        Job("generate", 1, [*generate, "--ids", "1,2,3", "--logits", "HERE/logits.safetensors"], ["logits.safetensors"]),
        Job("generate streamed codes", 1, [*generate, "--batch-file", "HERE.jsonl", "--weights-dtype", "int8", "--cache-dir",
                                           "HERE/cache", "--offload-param", "nvme", "--nvme-path", "HERE/nvme", "--trace",
                                           "HERE/trace.json"], ["trace.json"]),
        Job("generate from the model's files", 1, [*generate, "--ids", "1,2,3", "--dtype", "fp32", "--offload-param", "nvme",
                                                   "--offload-kv", "host", "--nvme-path", "HERE/nvme"], []),
        Job("export", 1, ["export", str(checkpoint), "--output", "HERE/model"], ["model"]),
        Job("inspect", 1, ["inspect", str(checkpoint)], []),
        Job("tokenize", 1, ["tokenize", "--model", str(text), "--input", "HERE.txt", "--output", "HERE/tokens.bin"],
            ["tokens.bin"]),
    ]


class Faults:
    """Jobs, what they give undisturbed, and how many calls of each kind they make."""

    def __init__(self, soak):
        self.soak, self.known = soak, {}
        self.jobs = [job for job in jobs(self.make_checkpoint()) if job.ranks <= soak.most_ranks]
        self.can_mount = os.getuid() == 0 and self.try_mount()

    def make_checkpoint(self):
        folder = Path(self.soak.directory) / "checkpoint"
        folder.mkdir()
        folder.chmod(0o755)
        arguments = train_on("gpt2-tiny", "--checkpoint-dir", "HERE/saved")
        words = [self.soak.options.program, *(word.replace("HERE", str(folder)) for word in arguments)]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return next((folder / "saved").glob("step-*"))

    def try_mount(self):
        folder = Path(self.soak.directory) / "mount"
        folder.mkdir()
        mounted = mount(folder, 1 << 20)
        if mounted:
            unmount(folder)
        return mounted

    def reference(self, case, job):
        """The result and the calls of an undisturbed run, once a job."""
        if job.name not in self.known:
            folder = new_folder(case)
            finished = self.launch(case, job, folder, [self.preload(folder, "")] * job.ranks)
            finished.check_end(job.codes)
            if finished.code != 0:
                raise Failed("fails undisturbed", finished)
            counts = {}
            for path in folder.glob("report.*.counts"):
                for line in path.read_text().splitlines():
                    name, count = line.split()
                    counts[name] = max(counts.get(name, 0), int(count))
            self.known[job.name] = job.result(folder, finished), counts
        return self.known[job.name]

    def preload(self, folder, faults, rank=None):
        words = ["env", f"LD_PRELOAD={self.soak.options.shim}", f"ZEEPO_FAULT_REPORT={folder}/report",
                 f"ZEEPO_FAULTS={faults}"]
        return words + ([f"ZEEPO_FAULT_RANK={rank}"] if rank is not None else [])

    def launch(self, case, job, folder, before):
        """Runs a job with words before the program, for each rank its own."""
        each = [[*words, self.soak.options.program, *job.arguments_in(folder)] for words in before]
        if job.ranks == 1:
            return case.launch(each[0], {}, SECONDS)
        command = list(self.soak.launcher)
        for rank, words in enumerate(each):
            command += [":"] * (rank > 0) + ["-n", "1", *words]
        return case.launch(command, MPI_ENVIRONMENT, SECONDS_OF_JOB)

    def __call__(self, case: Case):
        kinds = [self.by_call] * 6 + [self.by_limit] * 3 + ([self.by_disk] if self.can_mount else [])
        case.one_of(kinds)(case)

    def by_call(self, case):
        """Calls of one or two kinds fail."""
        job = case.one_of(self.jobs)
        expected, counts = self.reference(case, job)
        folder, faults, causes = new_folder(case), [], []
        called = [name for name in ERRORS if counts.get(name)]
        if counts.get("io_uring_queue_init") and case.chance(0.4):  # files by threads instead
            faults.append(f"io_uring_queue_init:1+:{errno.ENOSYS}")
            called += ["pread", "pwrite", "pthread_create"]
            counts = {**counts, "pread": counts["pread"] + 40, "pwrite": counts["pwrite"] + 40,
                      "pthread_create": counts["pthread_create"] + 16}
        name = case.one_of(called)
        code = case.one_of(ERRORS[name])
        onward = "+" if case.chance(0.3) and code != errno.EINTR else ""
        faults.append(f"{name}:{1 + case.random.randrange(counts[name])}{onward}:{code}")
        if isinstance(code, int):
            causes.append(code)
        rank = case.one_of([None, 0, 1]) if job.ranks > 1 else None
        finished = self.launch(case, job, folder, [self.preload(folder, ";".join(faults), rank)] * job.ranks)
        fired = any(folder.glob("report.*.fired"))
        case.soak.count("calls refused" if fired else "calls not reached")
        # What may open nothing any more cannot list a directory that it is to remove.
        may_leave = name == "open" and onward
        self.check(case, job, folder, finished, expected, causes if fired else [], may_leave)

    def by_limit(self, case):
        """The process, or one rank of two, is granted less of something."""
        job = case.one_of(self.jobs)
        expected, _ = self.reference(case, job)
        folder = new_folder(case)
        limits = {
            "nofile": lambda: case.random.randrange(3, 40), "as": lambda: case.random.randrange(30 << 20, 3 << 30),
            "fsize": lambda: case.random.choice((5000, 20000, 100000, 1 << 20)),
            "memlock": lambda: case.random.choice((0, 4096, 1 << 20)),
            "nproc": lambda: case.random.randrange(1, 12), "data": lambda: case.random.randrange(5 << 20, 200 << 20),
        }
        # MPI itself needs the others, and does not always say so.
        limit = "memlock" if job.ranks > 1 else case.one_of(limits)
        words = ["prlimit", f"--{limit}={limits[limit]()}", "--core=0"]
        if limit == "nproc":
            if os.getuid() == 0:
                words = ["setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups", *words]
        before = [words, words]
        if job.ranks > 1 and case.chance(0.7):
            before[case.one_of([0, 1])] = []
        finished = self.launch(case, job, folder, before[:job.ranks])
        case.soak.count(f"limits of {limit}")
        if finished.code == 127 and "shared libraries" in finished.err:
            return  # the program did not start
        if finished.code < 0 and not starts([*words, self.soak.options.program, "--version"]):
            return  # nor here: a library's own beginning has failed
        self.check(case, job, folder, finished, expected, [])

    def by_disk(self, case):
        """All that is written goes to a file system that is too small, or nearly."""
        job = case.one_of([job for job in self.jobs if job.writes])
        expected, _ = self.reference(case, job)
        folder = new_folder(case, "disk")
        if not mount(folder, case.random.choice((1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 4 << 20))):
            return
        try:
            (folder / "nvme").mkdir()
            finished = self.launch(case, job, folder, [[]] * job.ranks)
            case.soak.count("small disks")
            self.check(case, job, folder, finished, expected, [])
        finally:
            unmount(folder)

    @staticmethod
    def check(case, job, folder, finished, expected, causes, may_leave=False):
        finished.check_end(job.codes)
        if (left := partial_files(folder)) and not may_leave:
            raise Failed(f"left behind: {', '.join(left)}", finished)
        if job.saves and any(path.suffix != ".partial" for path in folder.glob("saved/step-*")):
            looked = case.run(["inspect", str(folder / "saved")])
            if looked.code != 0:
                raise Failed("a checkpoint is not whole", finished, looked)
        if finished.code == 0:
            found = job.result(folder, finished)
            if found != expected:
                raise Failed(f"ended well with another result: {found} instead of {expected}", finished)
            return
        for name in job.writes:
            if (folder / name).exists() and digest(folder / name) != expected[name]:
                raise Failed(f"failed, and {name} is there and not whole", finished)
        for cause in causes:
            words = [os.strerror(cause), *OTHER_WORDS.get(cause, [])]
            if not any(re.search(re.escape(word), finished.err, re.I) for word in words):
                raise Failed(f"the message does not name the cause ({os.strerror(cause)})", finished)


def starts(command):
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


def new_folder(case, name="run"):
    folder = case.new_directory(name)
    Path(f"{folder}.txt").write_text("It's a text of 12 words; naïve 你好 🙂\n" * 50)
    Path(f"{folder}.jsonl").write_text('{"ids":[1,2,3]}\n{"ids":[7],"max_new_tokens":3}\n')
    if name == "run":
        (folder / "nvme").mkdir()
    for path in (case.directory, folder, folder / "nvme"):
        if path.exists():
            path.chmod(0o777)
    return folder


def mount(folder, size):
    return subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True,
                          check=False).returncode == 0


def unmount(folder):
    subprocess.run(["umount", "-l", folder], capture_output=True, check=False)


def add_options(parser):
    parser.add_argument("--shim", required=True, type=lambda text: str(Path(text).resolve()), help="fault_shim.c as a library")


def main():
    soak = Soak("faults", __doc__, add_options)
    return soak(Faults(soak))


if __name__ == "__main__":
    sys.exit(main())
