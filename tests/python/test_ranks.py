"""Several ranks under mpirun."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import zeepo

HERE = Path(__file__).parent
AS_ROOT = dict(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_NUM_THREADS="1")
ON_THE_CPU = dict(CUDA_VISIBLE_DEVICES="")


def under_mpirun(ranks, program, *arguments, fails=False):
    command = ["mpirun", "--bind-to", "none", "--oversubscribe", "-n", str(ranks)]
    command += [sys.executable, str(program), *map(str, arguments)]
    environment = dict(os.environ, **AS_ROOT, **ON_THE_CPU)
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert (done.returncode != 0) == fails, done.stderr
    return done


def alone():
    """The environment of a script that nobody has started as several ranks."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("OMPI_")}
    return dict(others, OMP_NUM_THREADS="1", **ON_THE_CPU)


def test_every_stage_and_number_of_ranks_agrees(tmp_path):
    of_ranks = {n: json.loads(under_mpirun(n, HERE / "ranks_program.py", tmp_path).stdout) for n in (2, 1, 3)}
    saved = {n: results.pop("saved") for n, results in of_ranks.items()}
    for results in of_ranks.values():
        expected = {"loss_scale": 512, "skipped_steps": 1, "steps": 1, "stepped": True}
        assert results.pop("overflow") == expected
    for n in (1, 3):  # what two have saved
        assert saved[n]["loaded"] == saved[2]["loaded"]
        assert saved[n]["seen"] == pytest.approx(saved[2]["seen"], rel=1e-6)
        assert saved[n]["weights"] == pytest.approx(saved[2]["weights"], rel=1e-4, abs=1e-4)
    for kind, alone in of_ranks[1].items():
        for ranks, results in of_ranks.items():
            hashes = {name: result["hash"] for name, result in results[kind].items()}
            assert len(set(hashes.values())) == 1, (kind, ranks, hashes)  # one number of ranks: the same bits
            for name, result in results[kind].items():
                expected = pytest.approx(alone[name]["weights"], rel=1e-4, abs=1e-4)
                assert result["weights"] == expected, (kind, ranks, name)
    for results in (of_ranks[2]["Plain"], of_ranks[3]["Plain"]):  # what a stage does not keep
        assert results["stage 1"]["optimizer"] < results["stage 0"]["optimizer"]
        assert results["stage 3"]["params"] < results["stage 2"]["params"]


def test_an_exception_on_one_rank_ends_all(tmp_path):
    program = tmp_path / "fails.py"
    program.write_text(
        "import torch, zeepo\n"
        "model = torch.nn.Linear(4, 4)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "zeepo.init(model, optimizer, stage=2)\n"
        "for step in range(5):\n"
        "    if step == 2 and zeepo.rank() == 1: raise ValueError('of rank 1')\n"
        "    model(torch.ones(2, 4)).sum().backward(); optimizer.step()\n"
        "zeepo.close()\n"
    )
    done = under_mpirun(2, program, fails=True)
    assert "ValueError: of rank 1" in done.stderr


def test_loaders_are_shared_out_and_the_script_starts_itself(tmp_path):
    program = tmp_path / "starts.py"
    program.write_text(
        "import json, torch, zeepo\n"
        "from torch.utils.data import DataLoader, IterableDataset, TensorDataset\n"
        "class Counting(IterableDataset):\n"
        "    def __iter__(self): return iter(range(10))\n"
        "model = torch.nn.Linear(1, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "loader = DataLoader(TensorDataset(torch.arange(14.0)[:, None]), batch_size=2)\n"
        "counting = DataLoader(Counting(), batch_size=2)\n"
        "shuffled = DataLoader(TensorDataset(torch.arange(16)), batch_size=2, shuffle=True)\n"
        "zeepo.init(zero_offload=True, num_gpus=2)\n"
        "seen = [x.flatten().tolist() for x, in loader]\n"
        "drawn = [[i for x, in shuffled for i in x.tolist()] for epoch in range(2)]\n"
        "print(json.dumps([zeepo.rank(), len(loader), seen, [x.tolist() for x in counting], drawn]), flush=True)\n"
        "zeepo.close()\n"
    )
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, env=alone(), timeout=600)
    assert done.returncode == 0, done.stderr
    first, second = sorted(json.loads(line) for line in done.stdout.splitlines())
    assert first[:4] == [0, 3, [[0, 1], [4, 5], [8, 9]], [[0, 1], [4, 5]]]
    assert second[:4] == [1, 3, [[2, 3], [6, 7], [10, 11]], [[2, 3], [6, 7]]]
    for epoch in range(2):
        assert sorted(first[4][epoch] + second[4][epoch]) == list(range(16))
    assert first[4][0] != first[4][1] and first[4][0] != sorted(first[4][0])


def test_the_order_of_batches_does_not_depend_on_what_a_rank_draws(tmp_path):
    program = tmp_path / "draws.py"
    program.write_text(
        "import json, sys, torch, zeepo\n"
        "from torch.utils.data import DataLoader, TensorDataset\n"
        "torch.manual_seed(7)\n"
        "model = torch.nn.Linear(1, 1)\n"
        "own = torch.Generator().manual_seed(3)\n"
        "data = TensorDataset(torch.arange(24))\n"
        "loaders = [DataLoader(data, 2, shuffle=True), DataLoader(data, 2)]\n"
        "loaders.append(DataLoader(data, 2, shuffle=True, generator=own))\n"
        "zeepo.init(model, torch.optim.SGD(model.parameters(), lr=0.1))\n"
        "seen = []\n"
        "for epoch in range(3):\n"
        "    for loader in loaders:\n"
        "        seen.append([])\n"
        "        for x, in loader:\n"
        "            seen[-1].append(x.tolist())\n"
        "            if sys.argv[1:] and zeepo.rank(): torch.rand(5)\n"
        "print(json.dumps([zeepo.rank(), seen]), flush=True)\n"
        "zeepo.close()\n"
    )
    whole = json.loads(under_mpirun(1, program).stdout)[1]
    for arguments in ([], ["draws"]):
        of_ranks = sorted(json.loads(line) for line in under_mpirun(2, program, *arguments).stdout.splitlines())
        together = [[*zip(*parts, strict=True)] for parts in zip(of_ranks[0][1], of_ranks[1][1], strict=True)]
        assert [[batch for pair in pairs for batch in pair] for pairs in together] == whole


TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]


def test_ranks_come_from_torchrun(tmp_path):
    program = tmp_path / "under_torchrun.py"
    program.write_text(
        "import os, sys, torch, zeepo\n"
        "model = torch.nn.Linear(4, 4)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "zeepo.init(model, optimizer, stage=2)\n"
        "model(torch.ones(2, 4)).sum().backward(); optimizer.step()\n"
        "left = [name for name in os.environ if name == 'LOCAL_RANK' or name.startswith('TORCHELASTIC')]\n"
        "print(zeepo.rank(), zeepo.world_size(), sys.argv[1:], left, flush=True)\n"
        "zeepo.close()\n"
        "sys.exit(int(sys.argv[1]))\n"
    )

    def run(code):
        command = [*TORCHRUN, str(program), str(code)]
        return subprocess.run(command, capture_output=True, text=True, env=alone(), timeout=600)

    done = run(0)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["0 2 ['0'] []", "1 2 ['0'] []"]
    done = run(3)
    assert done.returncode != 0
    assert len(done.stdout.splitlines()) == 2 and "exitcode" in done.stderr


def test_torchrun_on_several_machines_is_told_to_use_mpirun(monkeypatch):
    given = dict(TORCHELASTIC_RUN_ID="1", WORLD_SIZE="4", LOCAL_WORLD_SIZE="2", LOCAL_RANK="0")
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(zeepo.Error, match="4 processes, 2 of them on this machine; use mpirun"):
        zeepo.init(torch.nn.Linear(2, 2))
    with pytest.raises(zeepo.Error, match="num_gpus=2, and 4 ranks were started"):
        zeepo.init(torch.nn.Linear(2, 2), num_gpus=2)
