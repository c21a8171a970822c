"""What a profile asks of every node, and how a run says that it goes on."""

from __future__ import annotations

import pytest
from test_job import request

from beam_slurm import job, needs

pytestmark = pytest.mark.usefixtures("no_site")

RUN = "/shared/runs/golden-0123ab"
BARE = "site.container=bare"


def asked(profile: str, *words: str) -> list[str]:
    made = request(profile, *words)
    return [str(word) for word in needs.words(made.profile, made.launch, RUN, made.local)]


def test_a_recipe_in_a_container_asks_for_all_that_it_uses() -> None:
    assert asked("b300-colocated") == [
        "--gpus=8",
        "--gpu=b300",
        "--gpu-memory=288000000000",
        "--exclusive",
        "--tmp=/tmp",
        "--runtime=pyxis",
        "--image=/shared/images/nemo-rl.sqsh",
        "--path=/shared/nemo-rl",
        "--path=/shared/models",
        "--same=/shared/models/Beam",
        '--shared="$RUN"',
        "--shared=/shared/outputs/golden-0123ab",
    ]


@pytest.mark.parametrize(
    ("changed", "more", "less"),
    [
        (["site.paths.tmp=/scratch"], ["--tmp=/scratch"], ["--tmp=/tmp"]),
        (["hardware.gpus_per_node=4"], ["--gpus=4"], ["--gpus=8"]),
        (["hardware.exclusive=false"], [], ["--exclusive"]),
        (["ray.object_store_gb=100.5"], ["--object-store=100500000000"], []),
        (["recipe.storage.host_memory_gb=2000"], ["--host-memory=2000000000000"], []),
        # Scratch: where the site has it, and the recipe wants some of it.
        (["site.paths.scratch=/nvme"], [], []),
        (["recipe.storage.nvme_gb=700"], [], []),
        (
            ["site.paths.scratch=/nvme", "recipe.storage.nvme_gb=700"],
            ["--scratch=/nvme/golden-0123ab", "--scratch-need=700000000000"],
            [],
        ),
        (["site.network.interface=ib0"], ["--interface=ib0"], []),
        (["site.network.prefix=10.1.0.0/16"], ["--prefix=10.1.0.0/16"], []),
        # Without a container nothing is mounted.
        (
            [BARE],
            ["--path=/shared/venv"],
            [
                *("--runtime=pyxis", "--image=/shared/images/nemo-rl.sqsh"),
                *("--path=/shared/nemo-rl", "--path=/shared/models"),
            ],
        ),
    ],
)
def test_a_change_changes_what_is_asked(
    changed: list[str], more: list[str], less: list[str]
) -> None:
    plain, now = asked("b300-colocated"), asked("b300-colocated", *changed)
    assert set(now) == (set(plain) | set(more)) - set(less)
    assert set(less) <= set(plain)
    assert len(now) == len(set(now))


def test_the_demo_runs_on_whatever_gpus_there_are() -> None:
    assert "--gpus=8" in asked("demo")
    assert not [word for word in asked("demo") if word.startswith(("--gpu=", "--gpu-memory"))]


def test_without_slurm_nobody_asks_for_gpus() -> None:
    made = request("demo", "hardware.nodes=1", local=True)
    words = [str(word) for word in needs.words(made.profile, made.launch, RUN, local=True)]
    assert not [word for word in words if word.startswith("--gpu")]
    assert "--exclusive" not in words
    assert '--shared="$RUN"' in words


@pytest.mark.parametrize(
    ("site", "words"),
    [
        ("{}", ""),
        ("{ecc: warn}", " --warn=ecc"),
        ("{xid: off, ecc: off, memlock: fail}", " --fail=memlock --off=ecc,xid"),
    ],
)
def test_a_site_s_own_opinion_of_checks(site: str, words: str) -> None:
    made = request("demo", f"site.preflight={site}")
    assert str(needs.severities(made.profile)) == words
    assert f"--token{words} -- " in str(made)


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ([], 900),
        (["job.time=4:00:00"], 900),
        (["job.time=2:30:00"], 900),
        (["job.time=1:00:00"], 360),
        (["job.time=10:00"], 60),
        (["job.time=1:00:00", "job.lead_s=1200"], 1200),
    ],
)
def test_the_warning_is_a_tenth_of_the_time_at_most_a_quarter_of_an_hour(
    words: list[str], seconds: int
) -> None:
    made = request("b300-colocated", *words)
    assert job.lead(made.profile) == seconds
    assert f"\n#SBATCH --signal=B:USR1@{seconds}\n" in str(made)
    assert f" --lead={seconds} " in str(made)


@pytest.mark.parametrize(
    ("words", "again", "requeue"),
    [
        ([], "requeue", True),
        (["site.again=chain"], "chain", False),
        (["job.max_restarts=0"], "none", False),
        (["job.max_restarts=0", "job.total_time=3-00:00:00"], "requeue", True),
        (["job.max_restarts=0", "job.total_time=3-00:00:00", "site.again=chain"], "chain", False),
    ],
)
def test_how_a_run_gets_another_job(words: list[str], again: str, requeue: bool) -> None:
    made = request("b300-colocated", *words)
    script = str(made)
    assert job.goes_on(made.profile) == (again != "none")
    assert f" --again={again} " in script
    assert ("\n#SBATCH --requeue\n" in script) == requeue
    assert ("\n#SBATCH --no-requeue\n" in script) != requeue
    # A job without its node is kept only where a spare can take over, and watched then.
    assert "\n#SBATCH --no-kill\n" not in script
    with_spare = str(request("b300-colocated", "job.spares=1", *words))
    assert ("\n#SBATCH --no-kill\n" in with_spare) == (again != "none")
    assert (" guard " in with_spare) == (again != "none")
    total = 3 * 24 * 3600 if "job.total_time=3-00:00:00" in words else 0
    assert f" --total-time={total} " in script


def test_spares_are_asked_for_and_do_not_train() -> None:
    script = str(request("b300-colocated", "job.spares=2"))
    assert "\n#SBATCH --nodes=10\n" in script
    assert "SLURM_JOB_NUM_NODES:-} != 10 " in script
    assert ' --nodes=8 --ntasks=8 --nodelist="$NODES"' in script
    assert "The 8 fittest of 10 are taken." in script
    assert '--allocated="$ALLOCATED" --nodes=8\n' in script
