"""One launch, measured: submit, wait for the driver's marks, wait for the job's end."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from beam_slurm import slurm
from beam_slurm.cluster import Cluster

HERE = Path(__file__).resolve().parent
LAUNCHERS = ("ours", "ours-no-dashboard", "floor", "symmetric-run")
PATIENCE = 300  # seconds from submission to the driver's last line
END_CAP = {"symmetric-run": 30.0}  # seconds; it takes 70, and nothing is learnt by waiting
END_PATIENCE = 120.0

LEFT_OVER = "/tmp/ray/session_* /tmp/ray/ray_current_cluster"  # noqa: S108 - inside the hosts

STEPS = "REQUEST_JOB_STEP_CREATE"  # one for each srun
OUR_OWN = "REQUEST_STATS_INFO"  # sdiag itself
# Slurm's daemons on the nodes send these: registrations, and what has ended there.
FROM_NODES = re.compile(r"MESSAGE_|REQUEST_(STEP_COMPLETE|COMPLETE_)")


@dataclass
class Launch:
    """What one launch took. Times are in seconds, counts are of RPCs by message type."""

    launcher: str
    hosts: int
    round: int
    job: str = ""
    bring_up: float | None = None  # batch start -> the driver's first line
    usable: float | None = None  # batch start -> every host has run a task
    end: float | None = None  # the driver's last line -> the job is over
    capped: bool = False  # `end` is as long as we waited
    calls: dict[str, int] = field(default_factory=dict)  # by commands: sbatch, srun, scontrol
    node_calls: dict[str, int] = field(default_factory=dict)  # by Slurm's daemons on the nodes
    problem: str = ""

    @property
    def steps(self) -> int:
        """Job steps, the batch script itself not counted."""
        return self.calls.get(STEPS, 0)


class Bench:
    """A cluster, and how launches on it are measured."""

    def __init__(self, cluster: Cluster, folder: Path, cpus: int, gpus: int) -> None:
        self.cluster, self.folder, self.cpus, self.gpus = cluster, folder, cpus, gpus
        # The same environment for all launchers, and nothing of a surrounding job in it.
        self.programs = Path(sys.executable).parent
        own = slurm.environment()
        path = f"{self.programs}:{own.get('PATH', '')}:/usr/sbin:/sbin"
        site = folder / "site.yaml"  # not the user's own: the demo needs none
        site.write_text("container: bare\n")
        self.environment = {
            **own,
            # A token that happens to lie in $HOME lets parts of the others' Ray disagree.
            "RAY_AUTH_MODE": "disabled",
            "PATH": path,
            "BEAM_SLURM_SITE": str(site),
            **cluster.environment(),
        }
        self.question = self._cost_of_a_question()

    def launch(self, launcher: str, hosts: int, number: int) -> Launch:
        """Run one job to its end, and leave the hosts as they were."""
        found = Launch(launcher, hosts, number)
        folder = self.folder / f"{number}-{launcher}-{hosts}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        before = self._calls()
        try:
            found.job, log = self._submit(launcher, hosts, folder)
            self._follow(found, folder / "marks", log, before)
        except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
            found.problem = f"{error} {getattr(error, 'stderr', '') or ''}".strip()
        finally:
            if found.job and not self._over(found.job):
                self._command("scancel", found.job)
                deadline = time.monotonic() + END_PATIENCE
                while not self._over(found.job) and time.monotonic() < deadline:
                    time.sleep(0.5)
            self._tidy()
        return found

    def _submit(self, launcher: str, hosts: int, folder: Path) -> tuple[str, Path]:
        """(the job's id, its log). Every launcher gets the same hosts, CPUs, GPUs and driver."""
        driver = ["python", str(HERE / "driver.py"), str(folder / "marks")]
        driver += [str(hosts), str(hosts * self.gpus)]
        if launcher.startswith("ours"):
            settings = {
                "framework.entry": json.dumps(driver),
                "hardware.nodes": hosts,
                "hardware.gpus_per_node": self.gpus,
                "ray.dashboard": str(launcher == "ours").lower(),
                "site.paths.runs": folder,
            }
            words = [word for item in settings.items() for word in ("--set", "{}={}".format(*item))]
            program = str(self.programs / "beam-slurm")
            answer = self._command(program, "submit", "--profile", "demo", "--json", *words)
            run = json.loads(answer)
            return run["job"], Path(run["folder"]) / f"job-{run['job']}.log"
        options = [f"--nodes={hosts}", "--ntasks-per-node=1", "--exclusive"]
        options += [f"--gpus-per-node={self.gpus}", f"--chdir={folder}", "--output=job.log"]
        script = HERE / "launchers" / f"{launcher}.sbatch"
        words = [str(script), str(script.parent), str(self.cpus), str(self.gpus), *driver]
        return self._command("sbatch", "--parsable", *options, *words).strip(), folder / "job.log"

    def _follow(self, found: Launch, marks: Path, log: Path, before: Counter[str]) -> None:
        questions = 0
        asked = began = time.monotonic()
        while "last" not in (times := _marks(marks)):
            time.sleep(0.05)
            if time.monotonic() - asked > 5:  # seldom: asking costs the job time on this machine
                asked, questions = time.monotonic(), questions + 1
                if self._over(found.job) and "last" not in _marks(marks):
                    raise RuntimeError(f"the job ended without the driver's last line: see {log}")
            if time.monotonic() - began > PATIENCE:
                raise RuntimeError(f"no last line of the driver in {PATIENCE} s: see {log}")
        cap = END_CAP.get(found.launcher, END_PATIENCE)
        while True:
            questions += 1
            over = self._over(found.job)
            found.end = time.time() - times["last"]
            if over or found.end > cap:
                break
            time.sleep(0.2)
        found.capped = not over
        start = _birth(log)
        found.bring_up = times["first"] - start
        if "tasks" in times:
            found.usable = times["tasks"] - start
        else:
            found.problem = f"the driver did not find what it wants: see {log}"
        calls = self._calls() - before
        calls.subtract({name: count * questions for name, count in self.question.items()})
        for name, count in sorted(calls.items()):
            if count > 0 and name != OUR_OWN:
                kind = found.node_calls if FROM_NODES.match(name) else found.calls
                kind[name] = count

    def _over(self, job: str) -> bool:
        """Whether the job has left its nodes."""
        return not self._command("squeue", "--noheader", f"--jobs={job}").strip()

    def _calls(self) -> Counter[str]:
        """How many RPCs of each type the controller has had."""
        text = self._command("sdiag").partition("by message type")[2].partition("by user")[0]
        found = re.findall(r"(\w+)\s+\( *\d+\) count:(\d+)", text)
        return Counter({name: int(count) for name, count in found})

    def _cost_of_a_question(self) -> Counter[str]:
        """What `_over` costs the controller, to be taken off the count."""
        job = self._command("sbatch", "--parsable", "--output=/dev/null", "--wrap=true").strip()
        while not self._over(job):
            time.sleep(0.2)
        before = self._calls()
        self._over(job)
        cost = self._calls() - before
        del cost[OUR_OWN]
        return cost

    def _tidy(self) -> None:
        """Remove what launchers leave on the hosts, so that the next one starts as the first."""
        for host in self.cluster.spec().nodes:
            self.cluster.exec(host, ["sh", "-c", f"rm -rf {LEFT_OVER}"], check=False)
        time.sleep(1)

    def _command(self, *words: str) -> str:
        return subprocess.run(
            words, env=self.environment, cwd=self.folder, check=True, capture_output=True, text=True
        ).stdout


def _marks(path: Path) -> dict[str, float]:
    """The driver's marks so far; only whole lines count."""
    try:
        lines = path.read_text().split("\n")[:-1]
    except FileNotFoundError:
        return {}
    return {name: float(seconds) for name, seconds in (line.split() for line in lines)}


def _birth(log: Path) -> float:
    """When the batch step began: slurmstepd makes the job's log before it starts the script."""
    said = subprocess.run(
        ["stat", "--format=%.9W", str(log)], check=True, capture_output=True, text=True
    ).stdout
    seconds = float(said)
    if seconds <= 0:
        raise RuntimeError(f"the file system of {log} keeps no birth times: choose another --dir")
    return seconds
