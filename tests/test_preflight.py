"""Which nodes run: the nodes' reports judged together, and the verb with nodes that are processes.

A node is one `node.pyz inspect`; where it must see other storage, in a mount namespace of its own.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from nodes import course

from beam_slurm.node import attempts, canary, events, inspect, inspection, preflight, verdicts
from beam_slurm.node.check import FAIL, OK, UNKNOWN, WARN, Check
from beam_slurm.node.gpuchecks import ABSENT
from beam_slurm.node.verdicts import Judged, Report
from beam_slurm.pack import node_program

DOCS = Path(__file__).parents[1] / "docs" / "preflight.md"
PATIENCE = 60


def report(number: int, checks: tuple[Check, ...] = (), **more: Any) -> Report:
    """What node ``number`` says if all is well."""
    facts = {"address": f"10.0.0.{number}", "gcs": 10000, "dashboard": 10001}
    fine = Report(list(checks), facts, {"/models/Beam": "folder-9-a"}, offset=0.01 * number)
    return fine._replace(**more)


def judge(
    odd: Mapping[int, Report] | None = None, severities: Mapping[str, str] | None = None
) -> Judged:
    """Four nodes n1 to n4, all well but the ``odd`` ones."""
    reports = {f"n{i}": (odd or {}).get(i, report(i)) for i in (1, 2, 3, 4)}
    return verdicts.judge(reports, list(reports), severities or {})


def bad(judged: Judged) -> dict[str, dict[str, str]]:
    """Node -> check -> verdict, of what is not ok."""
    found = {
        node: {check.name: check.verdict for check in checks if check.verdict != OK}
        for node, checks in judged.items()
    }
    return {node: checks for node, checks in found.items() if checks}


SCRATCH = Check("scratch", FAIL, "/nvme has 1.0 GB free", "2.0 GB", "clean it")
LOCKED = Check("memlock", FAIL, "8.4 MB", "unlimited", "ask the site")
REMAP = Check("ecc", WARN, "a row waits", "none", "reset")
NO_SMI = Check("ecc", UNKNOWN, ABSENT)
OTHER = {"/models/Beam": "folder-8-b"}
GONE = {"/models/Beam": None}


@pytest.mark.parametrize(
    ("odd", "severities", "found"),
    [
        ({}, {}, {}),
        ({2: report(2, (SCRATCH,))}, {}, {"n2": {"scratch": FAIL}}),
        ({2: report(2, (SCRATCH,))}, {"scratch": "warn"}, {"n2": {"scratch": WARN}}),
        ({2: report(2, (SCRATCH,))}, {"scratch": "off"}, {}),
        ({2: report(2, (LOCKED,))}, {}, {"n2": {"memlock": WARN}}),
        ({2: report(2, (LOCKED,))}, {"memlock": "fail"}, {"n2": {"memlock": FAIL}}),
        ({2: report(2, (REMAP,))}, {"ecc": "fail"}, {"n2": {"ecc": WARN}}),  # its own word
        ({3: report(3, offset=None)}, {}, {"n3": {"answer": FAIL}}),
        ({3: report(3, offset=None)}, {"answer": "off"}, {"n3": {"answer": FAIL}}),
        ({3: report(3, unseen=("/out",))}, {}, {"n3": {"outputs": FAIL}}),
        ({3: report(3, fingerprints=OTHER)}, {}, {"n3": {"model": FAIL}}),
        ({3: report(3, fingerprints={})}, {}, {}),
        ({3: report(3, facts={"address": "10.0.0.1"})}, {"address": "off"},
         {"n1": {"address": FAIL}, "n3": {"address": FAIL}}),
        ({4: report(4, offset=6.0)}, {}, {"n4": {"clock": WARN}}),
        ({4: report(4, offset=-6.0)}, {"clock": "fail"}, {"n4": {"clock": FAIL}}),
        ({4: report(4, offset=4.0)}, {}, {}),
        # Without a driver: nowhere is no fault, on one node it is.
        ({i: report(i, (NO_SMI,)) for i in (1, 2, 3, 4)}, {},
         {f"n{i}": {"ecc": UNKNOWN} for i in (1, 2, 3, 4)}),
        ({1: report(1, (NO_SMI,))}, {}, {"n1": {"gpus": FAIL, "ecc": UNKNOWN}}),
    ],
)  # fmt: skip
def test_what_the_nodes_reports_mean_together(
    odd: dict[int, Report], severities: dict[str, str], found: dict[str, dict[str, str]]
) -> None:
    assert bad(judge(odd, severities)) == found


def test_a_copy_that_is_not_there_keeps_the_node_s_own_word() -> None:
    own = Check("model", FAIL, "not there: /models/Beam", "the same", "mount it")
    judged = judge({2: report(2, (own,), fingerprints=GONE)})
    assert [check for check in judged["n2"] if check.verdict == FAIL] == [own]
    assert set(bad(judged)) == {"n2"}


def test_of_two_clocks_the_batch_host_s_is_right() -> None:
    reports = {"n1": report(1, offset=0.0), "n2": report(2, offset=8.0)}
    assert set(bad(verdicts.judge(reports, ["n1", "n2"], {}))) == {"n2"}


def test_a_silent_node_keeps_what_it_has_said() -> None:
    judged = judge({2: report(2, (SCRATCH,), offset=None, silence="no answer: Killed")})
    assert bad(judged) == {"n2": {"answer": FAIL, "scratch": FAIL}}
    assert judged["n2"][0].have == "no answer: Killed"


def test_the_fittest_are_chosen_whatever_is_wrong_with_whom() -> None:
    """Of every mixture of four nodes."""
    nodes = ["n1", "n2", "n3", "n4"]
    one = {OK: [], WARN: [REMAP], FAIL: [SCRATCH]}
    for mixture in itertools.product(one, repeat=4):
        judged = {node: list(one[verdict]) for node, verdict in zip(nodes, mixture, strict=True)}
        kind = dict(zip(nodes, mixture, strict=True))
        for batch, need in itertools.product(["n1", "n3"], [1, 2, 4]):
            chosen = verdicts.choose(judged, need, batch)
            fit = [node for node in nodes if kind[node] != FAIL]
            assert len(chosen) == len(set(chosen)) == min(need, len(fit))
            assert set(chosen) <= set(fit)
            rest = [node for node in chosen if node != batch]
            assert rest == sorted(rest)
            if batch in fit:
                assert chosen[0] == batch
            left = [node for node in fit if node not in chosen]
            better = [node for node in left if kind[node] == OK]
            assert not (better and any(kind[node] == WARN for node in rest))


def test_blame_is_for_nodes_and_not_for_settings() -> None:
    judged = judge({i: report(i, (SCRATCH,)) for i in (1, 2, 3, 4)})
    assert verdicts.culprits(judged) == {}
    judged = judge({i: report(i, (SCRATCH,)) for i in (1, 2)})
    assert verdicts.culprits(judged) == {}
    judged = judge({2: report(2, (SCRATCH,))})
    assert verdicts.culprits(judged) == {"n2": ["scratch"]}
    passing = judge({2: report(2, (SCRATCH._replace(lasting=False),))})
    assert verdicts.culprits(passing) == {}
    # With nobody to compare it with, nothing is told.
    one = verdicts.judge({"n1": report(1, (SCRATCH,))}, ["n1"], {})
    assert verdicts.culprits(one) == {}
    # Of many, few: a quarter of them.
    for bad_ones, blamed in ((2, 2), (3, 0)):
        reports = {f"n{i}": report(i, (SCRATCH,) if i <= bad_ones else ()) for i in range(1, 9)}
        assert len(verdicts.culprits(verdicts.judge(reports, list(reports), {}))) == blamed


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (["scratch", "outputs"], "storage"),
        (["image"], "container"),
        (["scratch", "image"], "node"),
        (["answer"], "node"),
        ([], "node"),
    ],
)
def test_the_class_of_a_run_without_enough_nodes(names: list[str], kind: str) -> None:
    assert verdicts.kind_of({"n1": [Check(name, FAIL, "") for name in names]}) == kind


def test_the_table_has_a_line_a_node_and_each_finding_once() -> None:
    judged = judge({2: report(2, (LOCKED, SCRATCH)), 3: report(3, (LOCKED,))})
    uses = {"n1": "head", "n2": "unfit", "n3": "runs", "n4": "spare", "n5": "blamed"}
    assert (
        verdicts.table(uses, judged)
        == """\
node  use     result
n1    head    ok
n2    unfit   fail: scratch; warn: memlock
n3    runs    warn: memlock
n4    spare   ok
n5    blamed  not asked: an earlier attempt blamed it
fail scratch on n2: /nvme has 1.0 GB free
  need: 2.0 GB
  do:   clean it
warn memlock on n2, n3: 8.4 MB
  need: unlimited
  do:   ask the site"""
    )


def test_the_page_says_what_the_code_does() -> None:
    text = DOCS.read_text()
    rows = text.split("<!-- checks -->")[1].split("<!-- end -->")[0].strip().splitlines()[2:]
    cells = [[cell.strip(" `") for cell in row.strip("|").split("|")] for row in rows]
    assert {cell[0]: cell[-1] for cell in cells} == verdicts.SEVERITY
    assert all(all(cell) for cell in cells)
    shown = yaml_names(text)
    assert shown <= set(verdicts.SEVERITY) - set(verdicts.ALWAYS)


def yaml_names(text: str) -> set[str]:
    (block,) = re.findall(r"```yaml\npreflight:\n(.*?)```", text, re.S)
    return {line.partition(":")[0].strip() for line in block.splitlines()}


def test_the_step_is_told_its_nodes() -> None:
    words = ["/usr/bin/srun", "--overlap", "python3", "node.pyz", "inspect"]
    told = ["--nodes=2", "--ntasks=2", "--nodelist=a,c"]
    assert inspection._on(["a", "c"], words) == [words[0], *told, *words[1:]]
    assert inspection._on(["a"], words[2:]) == words[2:]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--warn", "ecc,no-such", "--", "inspect"], "no such check: no-such"),
        (["--", "python3", "node.pyz"], "behind --"),
    ],
)
def test_words_that_make_no_sense(
    capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    where = course(Path("/r"))
    with pytest.raises(SystemExit) as caught:
        preflight.main([*where, *words])
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


# --- the verb -----------------------------------------------------------------------------

EVERY = """
trap 'kill $(jobs -p); exit 143' TERM
for node in $NODES; do (export SLURMD_NODENAME=$node; %s) & done
wait
"""
INSPECT = f'{sys.executable} "$PROGRAM" inspect "$@"'


class Job:
    """A run folder, and nodes that are processes of this machine."""

    def __init__(self, folder: Path) -> None:
        self.run = folder / "run"
        self.outputs = folder / "outputs"
        for path in (self.run, self.outputs):
            path.mkdir()
        self.program = self.run / "node.pyz"
        self.program.write_bytes(node_program())

    def start(
        self,
        *options: str,
        nodes: int = 2,
        node: str = INSPECT,
        need: int = 2,
        preflight: tuple[str, ...] = (),
    ) -> subprocess.Popen[str]:
        """Preflight of n1, n2, ...; ``node`` is what each that is not blamed does, with
        ``options`` in "$@"."""
        names = [f"n{i + 1}" for i in range(nodes)]
        run = str(self.run)
        unfit = [attempts.found_unfit(before) for before in attempts.folders(run)]
        blamed = attempts.blamed(run).union(*unfit)
        step = ["bash", "-c", EVERY % node, "inspect"]
        own = (f"--nodes={need}", f"--allocated={','.join(names)}", "--max-restarts=3")
        rules = course(self.run, *own)
        words = [sys.executable, self.program, "preflight", *rules, "--token", *preflight, "--"]
        shared = f"--shared={self.outputs}"
        environment = {
            **os.environ,
            "PROGRAM": str(self.program),
            "NODES": " ".join(name for name in names if name not in blamed),
            "OUTPUTS": str(self.outputs),
            "SLURM_JOB_ID": "77",
            "SLURMD_NODENAME": "n1",
            "SLURM_JOB_CPUS_PER_NODE": f"8(x{nodes - 1}),4" if nodes > 1 else "4",
        }
        return subprocess.Popen(
            [*words, *step, shared, *options],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self, process: subprocess.Popen[str], attempt: int = 0) -> Result:
        out, err = process.communicate(timeout=PATIENCE)
        return Result(process.returncode, out, err, self.run / f"attempt-{attempt}")

    def canaries(self) -> list[Path]:
        return [path for path in self.outputs.rglob("*") if canary.PREFIX in path.name]


class Result:
    """What a preflight left."""

    def __init__(self, code: int, out: str, err: str, attempt: Path) -> None:
        self.code, self.out, self.err, self.attempt = code, out, err, attempt
        self.content = _json(attempt / "preflight.json")
        self.outcome = _json(attempt / "outcome.json")
        lines = (attempt / "events.jsonl").read_text().splitlines()
        said = [event for event in map(events.parse, lines) if event]
        self.blamed = {e["node"]: e["why"] for e in said if e["beam-slurm"] == "blamed"}
        self.said = {event["beam-slurm"]: event for event in said}

    def check(self, node: str, name: str) -> dict[str, str]:
        (found,) = (c for c in self.content["nodes"][node]["checks"] if c["name"] == name)
        return found  # type: ignore[no-any-return]


def _json(path: Path) -> Any:
    return json.loads(path.read_text()) if path.exists() else None


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


# All nodes are this machine: only lo gives each an address, and it is the same one.
def test_two_nodes_that_are_one_machine_have_one_address(job: Job) -> None:
    done = job.finish(job.start())
    assert done.code == 69
    assert done.check("n1", "address")["verdict"] == FAIL
    assert done.blamed == {}  # a setting's fault
    assert "as 1 other nodes have" in done.outcome["cause"]
    assert job.canaries() == []


def test_one_node_is_fit_and_the_script_is_told(job: Job, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    words = [f"--same={tmp_path}/model", f"--path={tmp_path}", "--tmp=/tmp", "--host-memory=1"]
    done = job.finish(job.start(*words, f"--scratch={tmp_path}/s", nodes=1, need=1))
    assert done.code == 0, done.err
    attempt, nodes, cpus, ip, gcs, dashboard = done.out.split()
    assert (attempt, nodes, cpus) == (str(done.attempt), "n1", "4")
    facts = done.content["nodes"]["n1"]["facts"]
    assert [ip, int(gcs), int(dashboard)] == [facts[k] for k in ("address", "gcs", "dashboard")]
    started = done.said["batch-started"]
    assert (started["node"], started["head"], started["port"]) == ("n1", ip, int(gcs))
    assert done.said["preflight"]["fit"] == ["n1"]
    assert re.search(r"^n1 +head ", done.err, re.M)
    token = job.run / "private" / "attempt-0.token"
    assert re.fullmatch(r"[0-9a-f]{64}", token.read_text())
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert done.outcome is None
    looked_at = {check["name"] for check in done.content["nodes"]["n1"]["checks"]}
    wanted = {"model", "mounts", "tmp", "memory", "scratch", "outputs", "address", "clock"}
    assert looked_at == wanted | {"answer", "memlock", "nofile"}
    assert job.canaries() == []


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")


def n2(words: str) -> str:
    """n1 as it is, n2 after ``words`` in a mount namespace of its own."""
    there = f"unshare --mount bash -c '{words} && exec {INSPECT}' inspect \"$@\""
    return f"if [[ $SLURMD_NODENAME = n2 ]]; then {there}; else {INSPECT}; fi"


# Each node has an address of its own in a network namespace, and n1's disk is memory.
NETWORK = """
unshare --mount --net bash -c '
  ip link add eth9 type veth peer name eth8 && ip link set eth9 up
  ip address add 10.99.0.${SLURMD_NODENAME#n}/24 dev eth9
  [[ $SLURMD_NODENAME != n1 ]] || mount -t tmpfs -o size=1m none "$SCRATCH"
  exec %s
' inspect "$@"
"""


@needs_root
@pytest.mark.skipif(shutil.which("ip") is None, reason="iproute2 is not here")
def test_a_spare_takes_the_place_of_a_bad_node(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nvme").mkdir()
    monkeypatch.setenv("SCRATCH", f"{tmp_path}/nvme")
    words = [f"--scratch={tmp_path}/nvme/run", "--scratch-need=1", "--prefix=10.99.0.0/24"]
    done = job.finish(job.start(*words, nodes=4, node=NETWORK % INSPECT))
    assert done.code == 0, done.err
    uses = {node: about["use"] for node, about in done.content["nodes"].items()}
    assert uses == {"n1": "unfit", "n2": "head", "n3": "runs", "n4": "spare"}
    _, nodes, cpus, ip, *_ = done.out.split()
    assert (nodes, cpus, ip) == ("n2,n3", "4", "10.99.0.2")
    assert list(done.blamed) == ["n1"]
    again = job.finish(job.start(*words, nodes=4, node=NETWORK % INSPECT, need=3), attempt=1)
    assert again.content["nodes"]["n1"]["use"] == "blamed"
    assert job.canaries() == []


@needs_root
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ('mount -t tmpfs none "$OUTPUTS"', "is another folder than on the batch host"),
        ('mount --bind "$OUTPUTS" "$OUTPUTS" && mount -o remount,ro,bind "$OUTPUTS"',
         "cannot be written: Read-only file system"),
        ('mount -t overlay -o "lowerdir=$OUTPUTS,upperdir=$UPPER,workdir=$WORK" none "$OUTPUTS"',
         "the batch host does not see what this node writes"),
    ],
)  # fmt: skip
def test_an_output_folder_that_is_not_the_same(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, said: str
) -> None:
    for name in ("upper", "work"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name.upper(), str(tmp_path / name))
    done = job.finish(job.start(node=n2(words), need=2))
    check = done.check("n2", "outputs")
    assert (check["verdict"], said in check["have"]) == (FAIL, True), (check, done.err)
    assert done.check("n1", "outputs")["verdict"] == OK
    assert "outputs" in done.blamed["n2"]
    assert attempts.blamed(str(job.run)) == {"n2"}
    assert job.canaries() == []
    assert list((tmp_path / "upper").iterdir()) == []  # the node has removed it itself


def test_a_batch_host_that_cannot_write_says_so(job: Job) -> None:
    job.outputs.rmdir()
    job.outputs.write_text("a file")
    done = job.finish(job.start(nodes=1, need=1))
    assert "the batch host" in done.check("n1", "outputs")["have"]
    assert done.outcome["class"] == "storage"


def test_too_few_nodes_are_an_outcome_with_both_numbers(job: Job) -> None:
    need = ["--scratch=/nowhere/run", "--scratch-need=700000000000"]
    done = job.finish(job.start(*need, nodes=1, need=1))
    assert (done.code, done.out) == (69, "")
    outcome = done.outcome
    assert (outcome["state"], outcome["class"], outcome["node"]) == ("failed", "storage", "n1")
    assert outcome["cause"] == (
        "n1: scratch: /nowhere is not there (needs: 700.0 GB); 0 of 1 nodes are fit, 1 are needed"
    )
    assert "site.paths.scratch" in outcome["do"]
    assert outcome["blamed"] == []  # alone it may be the site's fault
    assert not list(job.run.glob("private/*"))
    outcome["blamed"] = ["n1"]
    (job.run / "attempt-0" / "outcome.json").write_text(json.dumps(outcome))
    again = job.finish(job.start(nodes=1, need=1), attempt=1)
    assert "blamed" in again.outcome["cause"]
    assert again.content["nodes"]["n1"]["use"] == "blamed"


def test_a_site_s_word_lets_it_run(job: Job) -> None:
    words = ["--warn=scratch", "--off=memlock,nofile"]
    done = job.finish(job.start("--scratch=/nowhere/run", nodes=1, need=1, preflight=(*words,)))
    assert done.code == 0
    assert re.search(r"^n1 +head +warn: scratch$", done.err, re.M)


@pytest.mark.parametrize(
    ("node", "deadline", "said"),
    [
        ("exit 127", 50, "no answer"),
        ("echo 'srun: error: n1: task 0: Exited with code 127'", 50, "Exited with code 127"),
        ("echo 'srun: error: Node failure on n1'", 50, "no answer: Node failure"),
        ("echo python3: command not found", 50, "python3: command not found"),
        ("exec sleep 600", 1, "no answer within 1 s"),
    ],
)
def test_a_node_that_does_not_answer(job: Job, node: str, deadline: int, said: str) -> None:
    limit = (f"--deadline={deadline}",)
    done = job.finish(job.start(node=node, nodes=1, need=1, preflight=limit))
    assert done.code == 69
    assert said in done.check("n1", "answer")["have"]
    assert done.outcome["class"] == "node"
    assert job.canaries() == []


def test_cancelled_in_the_middle_it_leaves_nothing(job: Job) -> None:
    process = job.start(node=f"touch {job.run}/up; exec sleep 600", nodes=1, need=1)
    deadline = time.monotonic() + PATIENCE
    while not (job.run / "up").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(job.canaries()) == 1
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    done = job.finish(process)
    assert (done.code, done.outcome["state"]) == (143, "cancelled")
    assert job.canaries() == []
    assert not list(job.run.glob("private/*"))
    assert done.content is None


def test_cancelled_after_its_step_it_is_no_node_s_fault(job: Job) -> None:
    """scancel ends the step and preflight at once: the step may be the first."""
    remark = "echo 'srun: error: n1: task 0: Terminated'"
    late = "(sleep 0.3; kill $PPID) >/dev/null 2>&1"
    done = job.finish(job.start(node=f"{remark}; {late} &", nodes=1, need=1))
    assert (done.code, done.outcome["class"], done.blamed) == (143, "cancelled", {})


def test_a_check_that_hangs_costs_its_own_answer_alone(tmp_path: Path) -> None:
    """A FIFO that nobody writes to is like a file server that is gone."""
    os.mkfifo(tmp_path / "config.json")
    program = (
        "import sys; from beam_slurm.node import inspect; inspect.PATIENCE = 0.5;"
        "inspect.main(sys.argv[1:])"
    )
    words = [f"--same={tmp_path}", f"--path={tmp_path}"]
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True, text=True, check=True, timeout=PATIENCE,
    )  # fmt: skip
    said = [event for event in map(events.parse, done.stdout.splitlines()) if event]
    checks = {event["name"]: event for event in said if event["beam-slurm"] == "checked"}
    assert said[-1]["beam-slurm"] == "inspected"
    assert checks["mounts"]["verdict"] == OK
    assert (checks["model"]["verdict"], "no answer" in checks["model"]["have"]) == (FAIL, True)


def test_every_line_is_short_enough_for_slurm_to_carry_it_whole(tmp_path: Path) -> None:
    paths = [f"--path={tmp_path}/{'x' * 200}{number}" for number in range(9)]
    done = subprocess.run(
        [sys.executable, "-m", "beam_slurm.node", "inspect", *paths],
        capture_output=True, check=True, timeout=PATIENCE,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) < 1024
    assert all(events.parse(line.decode()) for line in lines)


def test_two_versions_of_a_model_are_told_apart(tmp_path: Path) -> None:
    for name, revision in (("a", "1"), ("b", "1"), ("c", "2")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "model-00001-of-00001.safetensors").write_bytes(bytes(8))
        (folder / "config.json").write_text(f'{{"revision": {revision}}}')
    prints = {name: inspect.fingerprint(str(tmp_path / name)) for name in "abcd"}
    assert prints["a"] == prints["b"] != prints["c"]
    assert prints["d"] is None


@pytest.mark.parametrize("there", [True, False])
def test_what_is_made_must_be_where_the_login_node_looks(job: Job, there: bool) -> None:
    """One node alone agrees with itself about its own /tmp."""
    mark = job.outputs / "hf.part" / ".conversion.json"
    if there:
        mark.parent.mkdir()
        mark.touch()
    done = job.finish(job.start(f"--made={mark}", nodes=1, need=1))
    check = done.check("n1", "outputs")
    assert check["verdict"] == (OK if there else FAIL)
    if not there:
        assert f"{mark.parent} is not what the login node has there" in check["have"]
        assert "-o" in check["do"]
        assert done.outcome["class"] == "storage"
        assert list(job.outputs.iterdir()) == []
