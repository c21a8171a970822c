"""The recipes at their published number of nodes, on a real Slurm and a real Ray.

The frameworks are stand-ins (tests/checkouts): they are started as the published ones are, look
around in their Ray from the inside, and write down what they were given.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from recipe_table import TABLE
from shapes import COMMAND, Shape, clean_environment

from beam_slurm import runs

pytestmark = pytest.mark.slurm

CHECKOUTS = Path(__file__).with_name("checkouts")
KEY = "0123-canary-4567"  # W&B's
PATIENCE = 500.0  # seconds for one run on a busy machine of two cores

# Each framework once, at most on eight hosts. What is larger says little that these leave open, and
# takes two cores a minute each.
QUICK = {
    "b300-colocated": (8, "b300"),
    "b200-lora-16": (8, "b200"),
    "miles-lora": (8, "b200"),
}
LARGE = {
    "b200-bf16": (8, "b200"),
    "miles-h200-async": (12, "h200"),
    "h200-async": (16, "h200"),
}


class Seen:
    """One finished run, and what its entry wrote."""

    def __init__(self, run: runs.Run, folder: Path) -> None:
        self.run = run
        self.entry: dict[str, Any] = json.loads((folder / "entry.json").read_text())
        self.nodes: dict[str, Any] = json.loads((folder / "cluster.json").read_text())

    def everywhere(self, variable: str) -> set[str | None]:
        """The variable's values in the entry and in a Ray worker on each node."""
        processes = [self.entry, *self.nodes.values()]
        return {process["environment"].get(variable) for process in processes}


def launch(shape: Shape, profile: str, folder: Path) -> tuple[Seen, dict[str, str]]:
    """Submit the recipe, wait for its end, and return what it saw and where things lay."""
    places = {name: str(folder / name) for name in ("models", "datasets", "outputs")}
    for place in places.values():
        Path(place).mkdir()
    for name in ("Beam", "Beam-1.0-501B-A23B"):  # each framework has its own name for it
        Path(places["models"], name).mkdir()
    places["scratch"] = "/tmp"
    checkouts = {name: str(CHECKOUTS / name.replace("_", "-")) for name in ("skyrl", "miles")}
    checkouts["nemo_rl"] = str(CHECKOUTS / "nemo-rl")
    site = {
        "container": "bare",
        "preflight": {"scratch": "off"},  # a host's own storage is the machine's memory here
        "outputs_gb": 100_000,  # what this machine has free holds no checkpoint of 501B
        "paths": {"runs": str(folder / "runs"), "venv": sys.prefix, **places, **checkouts},
        # The workers that Ray starts ahead would be many processes for few cores.
        "environment": {"RAY_prestart_worker_first_driver": "0"},
    }
    (folder / "site.yaml").write_text(yaml.safe_dump(site))
    began = time.monotonic()
    done = subprocess.run(
        [
            *(COMMAND, "submit", "--profile", profile, "--wait", "--json"),
            *("--set", "ray.deadline_s=400", "--set", "ray.object_store_gb=0.1"),
            *("--set", "job.time=0:15:00", "--set", "recipe.storage.nvme_gb=1"),
            *("--max-restarts", "0"),
        ],
        cwd=folder,
        env={**clean_environment(folder, shape.cluster), "WANDB_API_KEY": KEY},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert (folder / "runs").is_dir(), done.stderr
    (run,) = runs.all_runs(folder / "runs")
    log = run.log.read_text() if run.log else ""
    print(f"{profile}: {time.monotonic() - began:.0f} s\n{log}")
    assert done.returncode == 0, done.stderr + log
    framework = TABLE[profile].framework
    output = Path(places["outputs"]) / run.id
    seen = Seen(run, output / "exports" if framework == "SkyRL" else output)
    checkout = checkouts[{"NeMo RL": "nemo_rl", "SkyRL": "skyrl", "Miles": "miles"}[framework]]
    return seen, {**places, "checkout": checkout, "run": run.id}


@pytest.mark.parametrize(
    ("shape", "profile"),
    [
        *(pytest.param(size, name, id=name) for name, size in QUICK.items()),
        *(
            pytest.param(size, name, id=name, marks=pytest.mark.exhaustive)
            for name, size in LARGE.items()
        ),
    ],
    indirect=["shape"],
)
def test_a_recipe_starts_at_its_published_size_with_exactly_the_published_command(
    shape: Shape, profile: str, tmp_path: Path
) -> None:
    recipe = TABLE[profile]
    assert recipe.gpu == shape.gpu
    seen, places = launch(shape, profile, tmp_path)

    # The command, in the checkout.
    assert seen.entry["argv"] == [word.format(**places) for word in recipe.entry]
    assert seen.entry["folder"] == places["checkout"]

    # Every node and every GPU, and nothing else.
    assert len(seen.nodes) == recipe.nodes
    assert {*seen.nodes} <= {*shape.cluster.spec().nodes}
    resources = [node["resources"] for node in seen.nodes.values()]
    assert [each["GPU"] for each in resources] == [8] * recipe.nodes
    assert sum(each["GPU"] for each in resources) == recipe.gpus
    for name, value in recipe.resources.items():
        assert [each[name] for each in resources] == [value] * recipe.nodes

    # The environment, the same in the entry and in the workers of every node.
    for name, value in recipe.environment.items():
        assert seen.everywhere(name) == {value.format(**places)}, name
    (address,) = seen.everywhere("RAY_ADDRESS")
    (master,) = seen.everywhere("MASTER_ADDR")
    (dashboard,) = seen.everywhere("RAY_API_SERVER_ADDRESS")
    assert address
    assert address.startswith(f"{master}:")
    assert str(dashboard).startswith(f"http://{master}:")
    assert seen.everywhere("RAY_AUTH_MODE") == {"token"}
    assert seen.everywhere("RAY_DEDUP_LOGS") == {"0"}
    assert seen.everywhere("RAY_COLOR_PREFIX") == {"0"}

    # The key is there for those who log to W&B; a launcher that would repeat it does not see it.
    workers = {node["environment"].get("WANDB_API_KEY") for node in seen.nodes.values()}
    assert workers == {KEY}
    entry = seen.entry["environment"].get("WANDB_API_KEY")
    assert entry == (None if recipe.framework == "Miles" else KEY)
    assert seen.run.log
    assert KEY not in seen.run.log.read_text()

    assert (seen.run.outcome["state"], seen.run.outcome["exit_code"]) == ("succeeded", 0)
    pools(profile, seen.entry["argv"])
    for node in seen.nodes:  # neither the scratch folder nor Ray's own is left
        left = shape.cluster.exec(node, ["ls", places["scratch"]]).stdout.split()
        assert [name for name in left if name.startswith(("beam-", places["run"]))] == []


def pools(profile: str, argv: list[str]) -> None:
    """Where training and generation have nodes of their own, the framework is told whose."""
    words = [part for word in argv for part in word.removeprefix("--extra-args=").split()]
    told = dict(word.split("=", 1) for word in words if "=" in word)
    if profile == "h200-async":
        generate = int(told["policy.generation.colocated.resources.num_nodes"])
        assert (int(told["cluster.num_nodes"]) - generate, generate) == (12, 4)
    if profile == "miles-h200-async":
        train = int(told["--actor-num-nodes"]) * int(told["--actor-num-gpus-per-node"])
        assert (train, int(told["--rollout-num-gpus"])) == (64, 32)
