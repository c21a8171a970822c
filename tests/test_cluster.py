"""The embedded Slurm: first what needs no root, then a real cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from click.testing import CliRunner

from beam_slurm.cli.cluster import cluster as cli
from beam_slurm.cluster import Cluster, ClusterSpec, cgroups, config, network, requirements
from beam_slurm.cluster.cluster import HostStatus
from beam_slurm.cluster.process import ProcessId, marked
from beam_slurm.cluster.spec import check_name
from beam_slurm.cluster.state import ClusterState, locked
from beam_slurm.errors import BeamSlurmError

ROOT = Path("/state/demo")


def wait_until(
    what: Callable[[], bool], *, patience_s: float = 20.0, pause_s: float = 0.02
) -> None:
    deadline = time.monotonic() + patience_s
    while not what():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(pause_s)


# --- without root ---------------------------------------------------------------------------


def test_slurm_conf_names_addresses_and_gpus() -> None:
    spec = ClusterSpec(hosts=2, gpus=8, gpu_type="b300", cpus=32, extra_conf=("Licenses=a:1",))
    text = config.slurm_conf("demo", spec, ROOT, network.addresses("10.77.3.0/24", spec))
    lines = text.splitlines()
    assert "SlurmctldHost=ctl(10.77.3.2)" in lines
    assert "AuthInfo=socket=/state/demo/munge/socket" in lines
    assert (
        "NodeName=node2 NodeAddr=10.77.3.12 NodeHostname=node2 CPUs=32 RealMemory=2000000"
        " Gres=gpu:b300:8 State=UNKNOWN"
    ) in lines
    assert any(line.startswith("PartitionName=gpu ") for line in lines)
    assert lines[-1] == "Licenses=a:1"


def test_gres_conf_gives_each_gpu_a_file() -> None:
    assert "Type=h200 File=/state/demo/dev/nvidia[0-7]\n" in config.gres_conf(ClusterSpec(), ROOT)
    assert config.gres_conf(ClusterSpec(gpus=1), ROOT).endswith("/dev/nvidia0\n")
    assert config.gres_conf(ClusterSpec(gpus=0), ROOT) == ""


def test_without_gpus_the_nodes_have_none() -> None:
    spec = ClusterSpec(gpus=0)
    text = config.slurm_conf("demo", spec, ROOT, network.addresses("10.77.0.0/24", spec))
    assert "Gres=" not in text


def test_cgroup_conf_follows_the_machine() -> None:
    assert config.cgroup_conf(1) == "CgroupPlugin=cgroup/v1\n"
    assert config.cgroup_conf(2) == "CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\n"
    assert cgroups.version(["/sys/fs/cgroup"]) == 2
    assert cgroups.version(["/sys/fs/cgroup/freezer", "/sys/fs/cgroup/unified"]) == 1


def test_a_host_that_is_called_like_the_machine_keeps_its_address() -> None:
    text = config.hosts_file({"node1": "10.77.0.11"}, {"node1": "10.77.0.1", "box": "10.77.0.1"})
    assert "10.77.0.11 node1\n" in text
    assert "10.77.0.1 node1" not in text
    assert "10.77.0.1 box\n" in text


@pytest.mark.parametrize(
    "size", [{"hosts": 0}, {"hosts": 65}, {"gpus": -1}, {"cpus": 0}, {"gpu_type": "h 200"}]
)
def test_impossible_sizes_are_refused(size: dict[str, int]) -> None:
    with pytest.raises(BeamSlurmError) as caught:
        ClusterSpec(**size)  # type: ignore[arg-type]
    assert caught.value.remedy
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("name", ["", "Demo", "../x", "a" * 33, "-x"])
def test_impossible_names_are_refused(name: str) -> None:
    with pytest.raises(BeamSlurmError, match="name of a cluster"):
        check_name(name)


def test_a_network_is_chosen_that_nobody_has() -> None:
    options = network.candidates()
    used = [IPv4Network("10.77.0.0/24"), IPv4Network("10.77.2.0/23")]
    assert network.choose(used, ["bslurm1"], options) == ("bslurm4", IPv4Network("10.77.4.0/24"))
    # A VPN over all of 10/8 is left alone.
    _, subnet = network.choose([IPv4Network("10.0.0.0/8")], [], options) or ("", None)
    assert str(subnet) == "198.18.0.0/24"
    assert (
        network.choose([IPv4Network("0.0.0.0/1"), IPv4Network("128.0.0.0/1")], [], options) is None
    )


def test_links_have_names_that_linux_takes_and_no_two_clusters_share() -> None:
    bridge = network.candidates()[-1][0]
    assert max(len(network.link_name(bridge, host)) for host in ("ctl", "node64")) <= 15
    assert network.link_name("bslurm1", "node12") == "bslurm1n12"
    assert network._belongs("bslurm1n12", "bslurm1")
    assert network._belongs("bslurm1ctl", "bslurm1")
    assert not network._belongs("bslurm10n2", "bslurm1")
    assert not network._belongs("bslurm10", "bslurm1")


def test_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert ClusterState.load(tmp_path) is None
    spec = ClusterSpec(hosts=2, extra_conf=("Licenses=a:1",))
    state = ClusterState(spec, "bslurm0", "10.77.0.0/24", {"/sys/fs/cgroup": "/x"}, "boot")
    state.save(tmp_path)
    assert ClusterState.load(tmp_path) == state


def test_one_command_at_a_time(tmp_path: Path) -> None:
    lock = tmp_path / "a" / "b" / "demo.lock"
    with (
        locked(lock),
        pytest.raises(BeamSlurmError, match="another beam-slurm command"),
        locked(lock, patience_s=0.1),
    ):
        pass
    assert not (tmp_path / "a").exists()  # neither the lock nor its folders stay behind


def test_a_process_is_known_by_its_start_time(tmp_path: Path) -> None:
    own = ProcessId.of(os.getpid())
    assert own
    assert own.alive()
    own.save(tmp_path / "pid")
    assert ProcessId.load(tmp_path / "pid") == own
    ProcessId(own.pid, own.started - 1).save(tmp_path / "pid")  # an earlier one of that number
    assert ProcessId.load(tmp_path / "pid") is None
    (tmp_path / "pid").write_text("")
    assert ProcessId.load(tmp_path / "pid") is None


def test_missing_packages_are_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(requirements, "base_environment", lambda: {"PATH": str(tmp_path)})
    with pytest.raises(BeamSlurmError, match=r"slurmctld, slurmd, .*munged, ip") as caught:
        requirements.check()
    assert caught.value.remedy == "apt-get install slurm-wlm munge iproute2"
    assert caught.value.exit_code == 2


def test_root_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "missing_commands", list)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for action in (Cluster("demo").up, Cluster("demo").down):
        with pytest.raises(BeamSlurmError, match="needs root") as caught:
            action()
        assert caught.value.exit_code == 2


def test_what_does_not_exist_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BEAM_SLURM_CLUSTERS", str(tmp_path / "clusters"))
    with pytest.raises(BeamSlurmError, match="no cluster demo") as caught:
        Cluster("demo").status()
    assert "cluster up" in str(caught.value.remedy)


def test_the_front_door_is_light_and_shows_examples() -> None:
    code = (
        "import sys; from beam_slurm.cli.cluster import cluster\n"
        "heavy = {'rich', 'pydantic', 'jinja2', 'yaml', 'beam_slurm.cluster'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    text = CliRunner().invoke(cli, ["--help"]).output
    assert "beam-slurm cluster up --hosts 4 --gpus 8 --gpu-type h200" in text


# --- with a real cluster --------------------------------------------------------------------


def hosts_of(cluster: Cluster) -> dict[str, HostStatus]:
    return {host.name: host for host in cluster.status()}


@pytest.fixture
def other(slurm_machine: None) -> Iterator[Cluster]:
    """The name of a second cluster; whatever is there afterwards is taken down."""
    cluster = Cluster(f"other-{os.getpid()}")
    yield cluster
    cluster.down()


class Traces:
    """All that a cluster has on the machine; taken while it is there, looked for later."""

    def __init__(self, cluster: Cluster) -> None:
        self.root = cluster.root
        self.state = ClusterState.load(cluster.root)
        folders = [Path(path) for path in self.state.cgroups.values()] if self.state else []
        pids = cgroups.processes(folders) | marked(cluster.root)
        self.processes = {found for pid in pids if (found := ProcessId.of(pid))}
        # Beside this machine's own spaces, those that the cluster has.
        self.spaces = {space for pid in pids for space in spaces_of(pid)} - spaces_of(os.getpid())

    def left(self) -> list[str]:
        """What is still there, in words."""
        found = [f"file {path}" for path in self.root.parent.glob(f"{self.root.name}*")]
        if self.state:
            found += [f"link {name}" for name in network.links(self.state.bridge)]
            found += [
                f"cgroup {path}" for path in self.state.cgroups.values() if Path(path).exists()
            ]
        found += [f"process {process.pid}" for process in self.processes if process.alive()]
        found += [f"process {pid}, marked" for pid in marked(self.root)]
        mounts = Path("/proc/self/mounts").read_text()
        found += [f"mount {line}" for line in mounts.splitlines() if str(self.root) in line]
        numbers = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        found += [f"process {pid} in its spaces" for pid in numbers if spaces_of(pid) & self.spaces]
        return found


def spaces_of(pid: int) -> set[str]:
    try:
        kinds = ("net", "pid", "mnt", "uts")
        return {str(Path(f"/proc/{pid}/ns/{kind}").readlink()) for kind in kinds}
    except OSError:
        return set()


@pytest.mark.slurm
def test_up_twice_is_the_same_cluster(slurm: Cluster) -> None:
    before = slurm.status()
    slurm.up(hosts=4, gpus=8, gpu_type="h200")
    assert [(h.name, h.pid) for h in slurm.status()] == [(h.name, h.pid) for h in before]
    assert [h.slurm for h in before] == ["up", "idle", "idle", "idle", "idle"]


@pytest.mark.slurm
def test_up_with_another_size_says_down_first(slurm: Cluster) -> None:
    with pytest.raises(BeamSlurmError, match="another size") as caught:
        slurm.up(hosts=2)
    assert "cluster down" in str(caught.value.remedy)
    assert caught.value.exit_code == 2


@pytest.mark.slurm
def test_hosts_are_apart(slurm: Cluster, tmp_path: Path) -> None:
    seen = hosts_of(slurm)
    for name in ("node1", "node2"):
        assert slurm.exec(name, ["hostname"]).stdout.strip() == name
        addresses = json.loads(slurm.exec(name, ["ip", "-json", "-4", "addr"]).stdout)
        assert {a["local"] for link in addresses for a in link["addr_info"]} == {
            "127.0.0.1",
            seen[name].address,
        }
        assert sorted(slurm.exec(name, ["ls", "/sys/class/net"]).stdout.split()) == ["eth0", "lo"]
    slurm.exec("node1", ["touch", "/tmp/of-node1", "/dev/shm/of-node1"])
    seen_there = slurm.exec("node2", ["ls", "-A", "/tmp", "/dev/shm"]).stdout
    assert "of-node1" not in seen_there
    assert not Path("/dev/shm/of-node1").exists()
    processes = slurm.exec("node2", ["ps", "-e", "-o", "pid=,comm="]).stdout
    assert "slurmd" in processes
    assert "slurmctld" not in processes
    assert processes.split()[0] == "1"
    # The files of the machine are everyone's, below /tmp those that `up` was told to share.
    (tmp_path / "common").touch()
    assert slurm.exec("node1", ["ls", str(tmp_path)]).stdout == "common\n"
    shared = slurm.root / "shared"
    slurm.exec("node1", ["touch", str(shared)])
    slurm.exec("node2", ["rm", str(shared)])


@pytest.mark.slurm
def test_nothing_listens_on_the_machine_itself(slurm: Cluster) -> None:
    def listening() -> set[int]:
        lines = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
        sockets = [line.split() for line in lines.splitlines() if "local_address" not in line]
        return {int(s[1].rpartition(":")[2], 16) for s in sockets if s[3] == "0A"}

    assert slurm.status()[0].slurm == "up"
    assert listening().isdisjoint({6817, 6818})


@pytest.mark.slurm
def test_steps_run_on_all_hosts_from_outside_and_from_inside(slurm: Cluster) -> None:
    everyone = ["node1", "node2", "node3", "node4"]
    assert sorted(slurm.run(["srun", "-N4", "hostname"]).stdout.split()) == everyone
    step = ["srun", "-N1", "-n1", "-w", "node2", "--overlap", "srun", "--overlap", "-N4", "-n4"]
    assert sorted(slurm.run(["salloc", "-N4", "-Q", *step, "hostname"]).stdout.split()) == everyone


@pytest.mark.slurm
def test_gpus_are_numbered_and_counted(slurm: Cluster) -> None:
    words = "echo $CUDA_VISIBLE_DEVICES $SLURM_GPUS_ON_NODE"
    done = slurm.run(["srun", "-N4", "--gres=gpu:h200:8", "bash", "-c", words])
    assert done.stdout.splitlines() == ["0,1,2,3,4,5,6,7 8"] * 4
    refused = slurm.run(["srun", "-N1", "--gres=gpu:b300:1", "hostname"], check=False)
    assert refused.returncode != 0


@pytest.mark.slurm
def test_a_process_of_a_host_can_be_killed_there(slurm: Cluster) -> None:
    with subprocess.Popen(
        slurm.exec_argv("node1", ["sleep", "1000"]), env={**os.environ, **slurm.environment()}
    ) as sleeper:
        sees: list[str] = []

        def found() -> bool:
            ps = slurm.exec("node1", ["ps", "-C", "sleep", "-o", "pid="], check=False)
            sees[:] = ps.stdout.split()
            return bool(sees)

        wait_until(found)
        slurm.exec("node1", ["kill", "-9", *sees])
        assert sleeper.wait(10) != 0


@pytest.mark.slurm
def test_a_host_dies_and_comes_back(slurm: Cluster) -> None:
    before = hosts_of(slurm)
    slurm.exec("node2", ["touch", "/tmp/lost"])
    slurm.stop_host("node2")
    try:
        seen = hosts_of(slurm)
        assert not seen["node2"].running
        assert seen["node2"].processes == 0
        assert not Path(f"/proc/{before['node2'].pid}/root/etc").exists()
        assert seen["node3"] == before["node3"]
        with pytest.raises(BeamSlurmError, match="start-host node2"):
            slurm.exec("node2", ["true"])
    finally:
        slurm.start_host("node2")
    assert hosts_of(slurm)["node2"].running
    done = slurm.run(["srun", "-w", "node2", "ls", "-A", "/tmp"])
    assert "lost" not in done.stdout
    with pytest.raises(BeamSlurmError, match="has no host node9"):
        slurm.stop_host("node9")


@pytest.mark.slurm
def test_up_starts_what_was_stopped(slurm: Cluster) -> None:
    slurm.stop_host("node4")
    slurm.stop_host("ctl")
    slurm.up(hosts=4, gpus=8, gpu_type="h200")
    assert all(host.running for host in slurm.status())
    assert slurm.run(["srun", "-w", "node4", "hostname"]).stdout == "node4\n"
    # A controller that loses power forgets what it has not saved: the ends of recent jobs too.
    slurm.run(["scancel", "--user=root"])
    wait_until(lambda: not slurm.run(["squeue", "--noheader"]).stdout)


@pytest.mark.slurm
def test_two_clusters_do_not_meet(slurm: Cluster, other: Cluster) -> None:
    other.up(hosts=1, gpus=2, gpu_type="b300")
    assert {h.address for h in slurm.status()}.isdisjoint(h.address for h in other.status())
    assert "h200" not in other.run(["sinfo", "-h", "-o", "%G"]).stdout
    # The same job number on a host of the same name: Slurm would give both the same cgroup.
    mine = slurm.run(
        ["sbatch", "--parsable", "-o/dev/null", "-w", "node1", "--wrap", "exec sleep 1000"]
    ).stdout.strip()
    theirs = ""
    while theirs != mine:
        theirs = other.run(
            ["sbatch", "--parsable", "-o/dev/null", "--wrap", "exec sleep 1000"]
        ).stdout.strip()
        if theirs != mine:
            other.run(["scancel", theirs])

    def state(of: Cluster) -> str:
        return of.run(["squeue", "-h", "-t", "all", "-j", mine, "-o", "%T"]).stdout.strip()

    wait_until(lambda: state(slurm) == "RUNNING" and state(other) == "RUNNING")
    other.run(["scancel", mine])
    wait_until(lambda: state(other) == "CANCELLED")
    assert slurm.exec("node1", ["ps", "-C", "sleep", "-o", "args="]).stdout == "sleep 1000\n"
    slurm.run(["scancel", mine])
    wait_until(lambda: state(slurm) == "CANCELLED")
    traces = Traces(other)
    other.down()
    assert traces.left() == []
    assert slurm.run(["srun", "-N4", "true"]).returncode == 0


@pytest.mark.slurm
def test_down_leaves_nothing(other: Cluster) -> None:
    other.up(hosts=2)
    # A job that would rather stay, a daemon of it, and a stopped process.
    script = "trap '' TERM; setsid sleep 1001 & sleep 1002 & kill -STOP $!; sleep 1003"
    other.run(["sbatch", "-N2", "-o", "/dev/null", "--wrap", script])
    wait_until(lambda: "1003" in other.exec("node1", ["ps", "-e", "-o", "args="]).stdout)
    other.run(["scontrol", "suspend", "1"], check=False)
    traces = Traces(other)
    assert len(traces.left()) > 10
    assert traces.state
    assert len(network.links(traces.state.bridge)) == 4
    assert other.down()
    assert traces.left() == []
    assert not other.down()
    assert subprocess.run(["ip", "netns"], capture_output=True, check=True).stdout == b""


KILL_WHEN = {
    "recorded": "cluster.json",
    "configured": "munge.key",
    "begun": "hosts/ctl/spec.json",
    "controller": "hosts/ctl/pid",
    "first node": "hosts/node1/pid",
    "last node": "hosts/node3/pid",
}


@pytest.mark.slurm
@pytest.mark.parametrize("moment", KILL_WHEN)
def test_half_a_cluster_is_taken_down(other: Cluster, moment: str) -> None:
    code = f"from beam_slurm.cluster import Cluster; Cluster({other.name!r}).up(hosts=3)"
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True) as making:
        wait_until((other.root / KILL_WHEN[moment]).exists, pause_s=0.0005)
        making.send_signal(signal.SIGKILL)
    assert other.root.exists()
    traces = Traces(other)
    assert other.down()
    assert traces.left() == []


@pytest.mark.slurm
def test_up_after_half_an_up(other: Cluster) -> None:
    code = f"from beam_slurm.cluster import Cluster; Cluster({other.name!r}).up(hosts=3)"
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True) as making:
        wait_until((other.root / KILL_WHEN["first node"]).exists, pause_s=0.0005)
        making.send_signal(signal.SIGKILL)
    half = Traces(other)
    other.up(hosts=1)
    assert other.run(["srun", "hostname"]).stdout == "node1\n"
    assert not [process for process in half.processes if process.alive()]


@pytest.mark.slurm
def test_a_cluster_that_does_not_come_up_says_why_and_goes(other: Cluster) -> None:
    with pytest.raises(BeamSlurmError, match="did not come up") as caught:
        other.up(hosts=1, extra_conf=["NoSuchSetting=1"])
    assert "NoSuchSetting" in str(caught.value)
    assert not other.root.exists()


@pytest.mark.slurm
def test_the_command_line(slurm: Cluster) -> None:
    name = ["--name", slurm.name]
    shown = CliRunner().invoke(cli, ["env", *name], catch_exceptions=False).output
    assert shown == f"export SLURM_CONF={slurm.root}/etc/slurm.conf\n"
    plain = CliRunner().invoke(cli, ["status", *name], catch_exceptions=False).output
    assert [line.split()[0] for line in plain.splitlines()[1:]] == [h.name for h in slurm.status()]
    data = json.loads(CliRunner().invoke(cli, ["status", "--json", *name]).output)
    assert [host["running"] for host in data["hosts"]] == [True] * 5
    again = CliRunner().invoke(cli, ["up", *name], catch_exceptions=False).output
    assert f"cluster {slurm.name} is up: 4 hosts of 8 h200" in again
    code = "from beam_slurm.cli.cluster import cluster; cluster()"
    done = subprocess.run(
        [sys.executable, "-c", code, "exec", *name, "node3", "--", "sh", "-c", "hostname; pwd"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["node3", str(Path.cwd())]
