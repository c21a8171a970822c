"""One run on the embedded Slurm, for the tests that launch: what a user types, what hosts show."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from beam_slurm import runs, slurm
from beam_slurm.cluster import Cluster

DRIVER = Path(__file__).with_name("driver.py")
COMMAND = str(Path(sys.executable).with_name("beam-slurm"))
PATIENCE = 180.0  # seconds until a test gives up waiting for something that must come


class Launch:
    """One run on the cluster, and what its hosts look like."""

    def __init__(self, cluster: Cluster, folder: Path, environment: dict[str, str]) -> None:
        self.cluster = cluster
        self.folder = folder
        self.environment = environment

    def call(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """The command line, as a user types it in the test's folder."""
        return subprocess.run(
            [COMMAND, *words],
            cwd=self.folder,
            env={**self.environment, **more},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )

    def submit(self, *words: str, **more: str) -> runs.Run:
        """Submit the test's driver on the demo profile, for one attempt."""
        entry = f"framework.entry=[python, {DRIVER}]"
        once = ("--profile", "demo", "--max-restarts", "0", "--set", entry)
        done = self.call("submit", "--json", *once, *words, **more)
        assert done.returncode == 0, done.stderr
        return runs.Run(Path(json.loads(done.stdout)["folder"]))

    def until(self, what: str, condition: Callable[[], bool], patience: float = PATIENCE) -> None:
        """Return as soon as ``condition`` holds."""
        deadline = time.monotonic() + patience
        while not condition():
            assert time.monotonic() < deadline, f"waited {patience} s in vain: {what}"
            time.sleep(0.05)

    def hurry(self, job: str) -> None:
        """Let a requeued job begin without the two minutes that Slurm gives its nodes.

        Two seconds it must wait: nodes refuse a job that is to begin in the second of its end.
        """
        told = self.cluster.run(["scontrol", "show", "job", "--oneliner", job], check=False)
        known = dict(re.findall(r"(\w+)=(\S*)", told.stdout))
        begins = slurm.epoch(known.get("EligibleTime", "")) or 0
        if known.get("Reason") == "BeginTime" and begins > time.time() + 5:
            words = ["scontrol", "update", f"jobid={job}", "starttime=now+2"]
            self.cluster.run(words, check=False)

    def log(self, run: runs.Run) -> str:
        return run.log.read_text() if run.log else ""

    def slurm(self, run: runs.Run) -> dict[str, str]:
        """What Slurm says of the run's job."""
        job = self.cluster.run(["scontrol", "show", "job", "--oneliner", run.manifest["job"]])
        return dict(re.findall(r"(\w+)=(\S*)", job.stdout))

    def over(self, run: runs.Run) -> dict[str, str]:
        """Wait for the job's end; Slurm's last word on it."""
        running = ("PENDING", "RUNNING", "COMPLETING")
        self.until("the job's end", lambda: self.slurm(run)["JobState"] not in running)
        return self.slurm(run)

    def started(self, run: runs.Run) -> None:
        """Wait until the entry has looked around on a complete Ray."""
        self.until(
            "the entry's start",
            lambda: (
                "entry looked around" in self.log(run)
                or self.slurm(run)["JobState"] not in ("PENDING", "RUNNING")
            ),
        )
        assert "entry looked around" in self.log(run), self.log(run)

    def left(self, run: runs.Run) -> dict[str, list[str]]:
        """Processes and temp folders of the run that are still on its hosts."""
        job = run.manifest["job"]
        script = (
            f"grep -lz '^SLURM_JOB_ID={job}$' /proc/[0-9]*/environ 2>/dev/null"
            " | while read -r f; do tr '\\0' ' ' <${f%environ}cmdline; echo; done;"
            f" ls -d /tmp/beam-{job}-* 2>/dev/null; true"
        )
        found = {}
        for host in self.cluster.spec().nodes:
            lines = self.cluster.exec(host, ["bash", "-c", script]).stdout.splitlines()
            found[host] = [line for line in lines if line.strip()]
        return {host: lines for host, lines in found.items() if lines}

    def nothing_left(self, run: runs.Run) -> None:
        self.until(f"nothing left of {run.id}: {self.left(run)}", lambda: not self.left(run))
