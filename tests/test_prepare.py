"""Preparing: the scripts, and real jobs on the embedded Slurm.

What stands in: a program ``hf`` and two scripts of checkouts, for the network alone. They write
tiny real files where the real ones would write large ones, say so, and count their calls.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import assetfiles
import pytest
from test_job import SITE, shellcheck

from beam_slurm import prepare, profiles
from beam_slurm.cluster import Cluster
from beam_slurm.errors import BeamSlurmError

pytestmark = pytest.mark.usefixtures("no_site")

GOLDEN = Path(__file__).parent / "golden"
COMMAND = str(Path(sys.executable).with_name("beam-slurm"))

MORE = {
    "site.paths.datasets": "/shared/datasets",
    "site.paths.skyrl": "/shared/SkyRL",
    "site.paths.miles": "/shared/miles",
    "site.images.skyrl": "/shared/images/skyrl.sqsh",
    "site.images.miles": "/shared/images/miles.sqsh",
}


def request(profile: str, *words: str, here: bool = False) -> prepare.PrepareRequest:
    given = [f"{key}={value}" for key, value in {**SITE, **MORE}.items()] + list(words)
    resolved = profiles.resolve(profile, settings=profiles.parse_settings(given))
    return prepare.make_request(resolved, here=here, run_id="prepare-golden-0123ab")


def contained(runtime: str, image: str) -> prepare.PrepareRequest:
    images = (f"site.images.nemo-rl-colocated={image}", f"site.container={runtime}")
    others = ("site.images.skyrl=null", "site.images.miles=null")
    return request("b300-colocated", *images, *others)


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("prepare-nemo-rl", lambda: request("b300-colocated")),
        ("prepare-skyrl", lambda: request("b200-lora", "site.container=bare")),
        *(
            (f"prepare-{runtime}", lambda runtime=runtime, image=image: contained(runtime, image))
            for runtime, image in {
                "docker": "nvcr.io/me/nemo-rl:beam",
                "podman": "me/nemo-rl:beam",
                "apptainer": "/shared/images/nemo-rl.sif",
            }.items()
        ),
        ("prepare-miles", lambda: request("miles-h200-async", "site.directives={mail-type: FAIL}")),
        ("prepare-here", lambda: request("h200-async", "site.container=bare", here=True)),
    ],
)
def test_golden_scripts(name: str, made: Callable[[], prepare.PrepareRequest]) -> None:
    """Every change of a script is a reviewable diff: UPDATE_GOLDEN=1 writes them anew."""
    text = str(made())
    path = GOLDEN / f"{name}.sbatch"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()
    assert shellcheck(text) == ""


def test_one_node_has_no_neighbours() -> None:
    script = str(request("miles-lora", "site.directives={segment: 4, switches: 1, nice: true}"))
    assert "\n#SBATCH --nice\n" in script
    assert "segment" not in script
    assert "switches" not in script


def test_the_demo_needs_nothing() -> None:
    made = request("demo")
    assert made.complete
    assert not made.verdicts
    assert not made.preparation.steps


def test_without_a_site_placeholders_and_a_refusal(tmp_path: Path) -> None:
    made = prepare.make_request(profiles.resolve("b200-lora"))
    keys = ["skyrl", "models", "datasets"]
    assert [key for key, _ in made.missing] == [
        *(f"site.paths.{key}" for key in keys),
        "site.images.skyrl",
    ]
    assert not made.complete
    assert shellcheck(str(made)) == ""
    with pytest.raises(BeamSlurmError, match="needs to know more about this site"):
        prepare.start(made)


def test_secrets_go_by_name_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_0123456789012345678901234567890123")
    text = str(request("b300-colocated"))
    assert "hf_0123" not in text
    assert "HF_TOKEN" in text
    with pytest.raises(BeamSlurmError, match="is a secret"):
        request("b300-colocated", "site.environment={HF_TOKEN: hf_secret_value}")


def test_the_site_s_own_hugging_face_home_is_verified() -> None:
    """The variable is the container's path, the verification the host's."""
    words = ("site.environment={HF_HOME: /hf/cache}", "site.mounts=[/scratch/me:/hf]")
    made = request("b300-colocated", *words)
    assert "export HF_HOME=/hf/cache\n" in str(made)
    assert made.preparation.datasets == "/scratch/me/cache"
    assert request("b300-colocated", words[0]).preparation.datasets == "/hf/cache"
    bare = request("b300-colocated", *words, "site.container=bare")
    assert bare.preparation.datasets == "/hf/cache"


def test_what_is_whole_is_left_out(tmp_path: Path) -> None:
    words = (f"site.paths.models={tmp_path}", f"site.paths.datasets={tmp_path}/data")
    assetfiles.model(tmp_path / "Beam")
    made = request("b200-lora", *words)
    assert [step.what for step in made.preparation.steps] == ["download and clean the problems"]
    for name in ("dapo-math-17k", "aime-2024", "aime-2025"):
        assetfiles.parquet(tmp_path / "data" / f"{name}-cleaned.parquet")
    assert request("b200-lora", *words).complete
    (tmp_path / "Beam" / "tokenizer.json").unlink()
    made = request("b200-lora", *words)
    assert [step.what for step in made.preparation.steps] == ["download the model, about 1 TB"]
    # One call of Miles makes both: it runs if either is missing.
    assert len(request("miles-lora", *words).preparation.steps) == 1


# --- with stand-ins for the network ----------------------------------------------------------

HF = """#!{python}
# Stands in for the network alone: "downloads" tiny real files.
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
import assetfiles, os
words = sys.argv[1:]
with open({calls!r}, "a") as calls:
    calls.write(" ".join(words) + "\\n")
print("stand-in hf", *words)
if "dataset" in words:
    assetfiles.snapshot(Path(os.environ["HF_HOME"]), words[-1])
else:
    folder = assetfiles.model(Path(words[words.index("--local-dir") + 1]))
    if Path({broken!r}).exists():
        (folder / list(assetfiles.SHARDS)[1]).unlink()
"""

SKYRL = """#!/bin/bash
# Stands in for the network alone.
set -euo pipefail
echo "$0" >>'{calls}'
for name in dapo-math-17k aime-2024 aime-2025; do
  printf 'PAR1%0100dPAR1' 0 >"$DATA_DIR/$name-cleaned.parquet"
done
"""

MILES = """# Stands in for the network alone.
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
import assetfiles
with open({calls!r}, "a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
told = dict(word[2:].split("=", 1) for word in sys.argv[2:])
assetfiles.model(Path(told["model-dir"]) / "Beam-1.0-501B-A23B")
for name in ("dapo-math-17k", "aime-2025"):
    folder = Path(told["data-dir"]) / name
    folder.mkdir(parents=True)
    (folder / (name + ".jsonl")).write_text("{{}}\\n")
"""


class Site:
    """A site without containers whose network is a stand-in; calls the command line."""

    def __init__(self, root: Path, environment: dict[str, str]) -> None:
        self.root = root
        self.environment = {k: v for k, v in environment.items() if not k.startswith("BEAM_SLURM")}
        self.environment["XDG_CONFIG_HOME"] = str(root)
        self.calls_file = root / "calls"
        self.broken = root / "broken"
        values = {
            "python": sys.executable,
            "tests": str(Path(__file__).parent),
            "calls": str(self.calls_file),
            "broken": str(self.broken),
        }
        places = {
            "venv/bin/hf": HF,
            "SkyRL/examples/train/algorithms/dapo/prepare_dapo_data.sh": SKYRL,
            "miles/scripts/run_beam.py": MILES,
        }
        for name, text in places.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.format(**values))
            path.chmod(0o755)
        (root / "venv/bin/python").symlink_to(sys.executable)
        paths = ("runs", "models", "datasets", "venv", "SkyRL", "miles")
        text = "".join(f"  {name.lower()}: {root / name}\n" for name in paths)
        (root / "site.yaml").write_text(f"container: bare\npaths:\n{text}")

    def prepare(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [COMMAND, "prepare", *words],
            cwd=self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    @property
    def calls(self) -> list[str]:
        """What the stand-ins were called with."""
        return self.calls_file.read_text().splitlines() if self.calls_file.exists() else []

    @property
    def folders(self) -> list[str]:
        """What is left among the runs."""
        return sorted(p.name for p in (self.root / "runs").glob("*"))


@pytest.fixture
def here(tmp_path: Path) -> Site:
    return Site(tmp_path, dict(os.environ))


@pytest.fixture
def site(slurm: Cluster, slurm_env: dict[str, str], tmp_path: Path) -> Site:
    return Site(tmp_path, slurm_env)


def test_here_then_nothing_is_left_to_do(here: Site) -> None:
    profile = ("--profile", "b300-colocated")
    before = here.prepare(*profile, "--check")
    assert before.returncode == 2
    assert f"model     FAIL  {here.root}/models/Beam" in before.stdout
    assert here.calls == []
    done = here.prepare(*profile, "--here")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"beam-slurm: {here.root}/models/Beam is whole" in done.stdout
    assert here.calls == [
        f"download reflection/Beam-1.0-501B-A23B --local-dir {here.root}/models/Beam",
        "download --repo-type dataset BytedTsinghua-SIA/DAPO-Math-17k",
        "download --repo-type dataset opencompass/AIME2025",
    ]
    assert here.folders == []
    again = here.prepare(*profile, "--here")
    assert again.returncode == 0
    assert "model     pass" in again.stdout
    assert len(here.calls) == 3
    checked = here.prepare(*profile, "--check", "--json")
    assert checked.returncode == 0
    assert json.loads(checked.stdout)["complete"] is True


def test_a_check_needs_no_image_and_no_checkout(here: Site) -> None:
    (here.root / "site.yaml").write_text(
        f"paths: {{models: {here.root}/models, datasets: {here.root}/datasets}}\n"
    )
    words = ("--profile", "b200-lora")
    assert "datasets  FAIL" in here.prepare(*words, "--check").stdout
    refused = here.prepare(*words)
    assert refused.returncode == 2
    assert "site.images.skyrl" in refused.stderr
    assetfiles.model(here.root / "models" / "Beam")
    for name in ("dapo-math-17k", "aime-2024", "aime-2025"):
        assetfiles.parquet(here.root / "datasets" / f"{name}-cleaned.parquet")
    assert here.prepare(*words, "--check").returncode == 0
    assert here.prepare(*words).returncode == 0
    nothing = here.prepare("--profile", "b200-lora", "--check", "--set", "site.paths.models=null")
    assert nothing.returncode == 2
    assert "site.paths.models: ..." in nothing.stderr
    assert "site.images" not in nothing.stderr


def test_here_a_failing_step_ends_it(here: Site) -> None:
    (here.root / "venv/bin/hf").write_text("#!/bin/sh\necho no network >&2\nexit 5\n")
    done = here.prepare("--profile", "b200-lora", "--here")
    assert done.returncode == 1
    assert "beam-slurm: download the model, about 1 TB: hf download" in done.stdout
    assert "has failed with exit code 5" in done.stderr
    assert here.calls == []  # the next step was not begun
    (name,) = here.folders
    assert (here.root / "runs" / name / "script.sbatch").is_file()


def test_the_demo_and_check_with_others(here: Site) -> None:
    done = here.prepare("--profile", "demo")
    assert (done.returncode, done.stdout) == (0, "demo: demo GRPO needs no model and no data\n")
    assert json.loads(here.prepare("--profile", "demo", "--json").stdout) == {"complete": True}
    refused = here.prepare("--profile", "b200-lora", "--check", "--here")
    assert refused.returncode == 2
    assert "--check goes alone" in refused.stderr


@pytest.mark.slurm
@pytest.mark.parametrize(
    ("profile", "calls"), [("h200-async", 3), ("b200-lora-16", 2), ("miles-lora", 1)]
)
def test_a_job_prepares_and_the_next_call_submits_nothing(
    profile: str, calls: int, site: Site
) -> None:
    done = site.prepare("--profile", profile, "--wait")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "is whole\n" in done.stdout
    assert len(site.calls) == calls
    (folder,) = site.folders
    again = site.prepare("--profile", profile, "--json")
    assert again.returncode == 0
    answer = json.loads(again.stdout)
    assert answer["complete"] is True
    assert "job" not in answer
    assert (len(site.calls), site.folders) == (calls, [folder])


@pytest.mark.slurm
def test_a_lost_shard_fails_the_job_by_name(site: Site, slurm: Cluster) -> None:
    site.broken.touch()
    done = site.prepare("--profile", "b200-lora", "--wait", "--json")
    shard = list(assetfiles.SHARDS)[1]
    sentence = f"1 of 3 shards are not in {site.root}/models/Beam: {shard}"
    assert done.returncode == 1
    assert f"beam-slurm: {sentence}\n" in done.stderr
    answer = json.loads(done.stdout)
    shown = slurm.run(["scontrol", "show", "job", "--oneliner", answer["job"]]).stdout
    assert "JobState=FAILED" in shown
    assert "ExitCode=1:0" in shown
    checked = site.prepare("--profile", "b200-lora", "--check")
    assert checked.returncode == 2
    assert sentence in checked.stdout
    # The network is well again: the same call downloads only what is missing.
    site.broken.unlink()
    assert site.prepare("--profile", "b200-lora", "--wait").returncode == 0
    assert len(site.calls) == 3
    assert site.prepare("--profile", "b200-lora", "--check").returncode == 0


@pytest.mark.slurm
def test_what_slurm_refuses_leaves_nothing(site: Site) -> None:
    done = site.prepare("--profile", "b200-lora", "--set", "site.partition=none")
    assert done.returncode == 2
    assert "partition 'none' is unknown" in done.stderr
    done = site.prepare("--profile", "b200-lora", "--set", "site.directives={begin: nonsense}")
    assert done.returncode == 2
    assert site.folders == []
