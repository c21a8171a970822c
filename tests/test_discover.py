"""What Slurm's answers mean, old and new, and the site file that is made of them. No Slurm here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from beam_slurm import discover, inventory, sitefile, yamlfile
from beam_slurm.discover import Cluster, Mount
from beam_slurm.errors import BeamSlurmError
from beam_slurm.inventory import Gpu, Node, Partition
from beam_slurm.schema import Site


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("gpu:h200:8", [Gpu("h200", 8)]),
        ("gpu:nvidia_b300:8(S:0-1)", [Gpu("nvidia_b300", 8)]),
        ("gpu:8", [Gpu("", 8)]),
        ("gpu:8(S:0-1)", [Gpu("", 8)]),
        ("gpu", [Gpu("", 1)]),
        ("(null)", []),
        ("", []),
        ("gpu:h200", [Gpu("h200", 1)]),
        ("gpu:a100:4(S:0,1),gpu:v100:2,nvme:1K", [Gpu("a100", 4), Gpu("v100", 2)]),
        ("lustre:1,gpu:h200:no_consume:8(IDX:0-7),shard:h200:80(S:0-1)", [Gpu("h200", 8)]),
        ("gpu:nvidia_h200:4(S:0),gpu:nvidia_h200:4(S:1)", [Gpu("nvidia_h200", 8)]),
        ("gpu:nvidia_h100_80gb_hbm3_1g.10gb:7(S:0)", [Gpu("nvidia_h100_80gb_hbm3_1g.10gb", 7)]),
        ("craynetwork:4", []),
        ("gpumem:80G", []),
    ],
)
def test_gres_in_all_spellings(text: str, found: list[Gpu]) -> None:
    assert list(inventory.gpus(text)) == found


@pytest.mark.parametrize(
    ("text", "number", "release"),
    [
        ("slurm-wlm 22.05.8", "22.05.8", (22, 5)),
        ("slurm 20.11.9-1", "20.11.9-1", (20, 11)),
        ("slurm 24.11.0-0rc2", "24.11.0-0rc2", (24, 11)),
        ("slurm 25.05.3", "25.05.3", (25, 5)),
        ("something else", "", (0, 0)),
    ],
)
def test_versions(text: str, number: str, release: tuple[int, int]) -> None:
    assert inventory.version(text) == number
    assert inventory.release(number) == release


OLD = """\
PartitionName=debug AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES \
QoS=N/A DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO MaxNodes=2 \
MaxTime=02:00:00 MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED Nodes=cn[001-002] PriorityTier=1 \
RootOnly=NO ReqResv=NO OverSubscribe=NO PreemptMode=OFF State=UP TotalCPUs=64 TotalNodes=2 \
SelectTypeParameters=NONE DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED
PartitionName=gpu AllowGroups=ALL AllowAccounts=rl,infra AllowQos=normal,high AllocNodes=ALL \
Default=NO QoS=gpu DefaultTime=01:00:00 Hidden=NO MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=0 \
Nodes=gn[01-64] State=DRAIN TotalCPUs=8192 TotalNodes=64
"""
NEW = """\
PartitionName=b300 AllowGroups=ALL DenyAccounts=guests DenyQos=low AllocNodes=ALL Default=YES \
QoS=N/A DefaultTime=00:30:00 DisableRootJobs=NO ExclusiveUser=NO ExclusiveTopo=NO GraceTime=0 \
Hidden=NO MaxNodes=16 MaxTime=3-00:00:00 MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED \
MaxCPUsPerSocket=UNLIMITED Nodes=b300-[001-016] PriorityJobFactor=1 PriorityTier=10 RootOnly=NO \
ReqResv=NO OverSubscribe=NO OverTimeLimit=NONE PreemptMode=OFF State=UP TotalCPUs=4608 \
TotalNodes=16 SelectTypeParameters=NONE JobDefaults=(null) DefMemPerNode=UNLIMITED \
TRES=cpu=4608,mem=48T,node=16,billing=4608,gres/gpu=128,gres/gpu:b300=128
"""


def test_partitions_of_old_and_new_releases() -> None:
    debug, gpu = inventory.partitions(OLD)
    assert debug == Partition("debug", "UP", True, 2, 2, 120)
    assert (gpu.state, gpu.max_nodes, gpu.max_minutes) == ("DRAIN", None, None)
    assert (gpu.accounts, gpu.qos) == (("rl", "infra"), ("normal", "high"))
    (b300,) = inventory.partitions("Welcome to the cluster!\n" + NEW)
    assert (b300.nodes, b300.max_nodes, b300.max_minutes) == (16, 16, 3 * 24 * 60)
    assert (b300.accounts, b300.refused_accounts, b300.refused_qos) == ((), ("guests",), ("low",))


@pytest.mark.parametrize(
    ("state", "usable"),
    [
        ("idle", True),
        ("mixed", True),
        ("allocated", True),
        ("completing", True),
        ("planned", True),
        ("mixed-", True),
        ("idle~", True),  # asleep: Slurm wakes it
        ("reserved", True),
        ("maint", True),
        ("idle*", False),  # does not answer
        ("down", False),
        ("down*", False),
        ("drained", False),
        ("draining", False),
        ("draining@", False),
        ("fail", False),
        ("inval", False),
        ("unknown*", False),
        ("future", False),
    ],
)
def test_which_nodes_can_be_used(state: str, usable: bool) -> None:
    (node,) = inventory.nodes(f"gn01|gpu|gpu:h200:8(S:0-1)|192|2063000|ib,h200|{state}\n")
    assert node.usable is usable
    assert node.features == ("ib", "h200")
    assert (node.count("h200"), node.count(""), node.count("b300")) == (8, 8, 0)


def test_odd_lines_of_sinfo() -> None:
    text = "*** maintenance on Monday ***\ncn1|debug|(null)|64+|257000+|(null)|IDLE\n"
    assert inventory.nodes(text) == (Node("cn1", "debug", (), 64, 257000, (), "idle"),)


@pytest.mark.parametrize(
    ("text", "accounts", "qos"),
    [
        ("", (), ()),
        ("rl|normal\n", ("rl",), ("normal",)),
        ("rl|high,normal\nrl|normal\nwelt|\n", ("rl", "welt"), ("high", "normal")),
        ("|normal\n", (), ()),
    ],
)
def test_associations(text: str, accounts: tuple[str, ...], qos: tuple[str, ...]) -> None:
    assert inventory.associations(text) == (accounts, qos)


def test_runtimes_are_those_on_path_and_pyxis_by_srun_s_own_words(tmp_path: Path) -> None:
    for name in ("docker", "enroot", "podman.txt"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    # Slurm's own --container is OCI's, not pyxis'.
    plain = "      --container             Path to OCI container bundle\n"
    assert discover.runtimes(plain, str(tmp_path)) == ("docker", "enroot")
    with_pyxis = plain + "      --container-image=[USER@][REGISTRY#]IMAGE[:TAG]|PATH\n"
    assert discover.runtimes(with_pyxis, str(tmp_path)) == ("pyxis", "docker", "enroot")


MOUNTS = """\
/dev/vda / ext4 rw,relatime 0 0
tmpfs /dev/shm tmpfs rw 0 0
nas:/home /home nfs4 rw,vers=4.2 0 0
10.0.0.1@o2ib:/lus /lus/my\\040work lustre rw,flock 0 0
weka01/fs /weka wekafs rw 0 0
/dev/fuse /s3 fuse.juicefs rw 0 0
overlay /home/me/box overlay rw 0 0
"""


def test_mounts_and_which_of_them_nodes_share() -> None:
    known = discover.mounts(MOUNTS)
    shared = {mount.path for mount in known if mount.shared}
    assert shared == {"/home", "/lus/my work", "/weka", "/s3"}
    assert discover.mount_of(Path("/home/me/x"), known) == Mount("/home", "nfs4")
    assert discover.mount_of(Path("/home/me/box/x"), known) == Mount("/home/me/box", "overlay")
    assert discover.mount_of(Path("/homes/x"), known) == Mount("/", "ext4")
    assert discover.mount_of(Path("/x"), ()) is None


def test_runs_lie_here_if_here_is_shared_else_in_the_user_s_place_on_shared_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "me")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    here, lustre = tmp_path / "here", tmp_path / "lustre"
    here.mkdir()
    (lustre / "users" / "me").mkdir(parents=True)
    local = Mount("/", "ext4")
    assert discover.runs_folder(here, [local]) == here / "runs"
    both = [local, Mount(str(here), "nfs4"), Mount(str(lustre), "lustre")]
    assert discover.runs_folder(here, both) == here / "runs"
    found = discover.runs_folder(here, [local, Mount(str(lustre), "lustre")])
    assert found == lustre / "users" / "me" / "beam-slurm" / "runs"


@pytest.mark.parametrize(
    ("types", "names"),
    [
        ({"h200": 4}, {}),
        ({"nvidia_b300": 8}, {"b300": "nvidia_b300"}),
        ({"NVIDIA-H200": 8}, {"h200": "NVIDIA-H200"}),
        ({"h200_sxm": 8, "nvidia_h200_nvl": 1}, {"h200": "h200_sxm"}),
        ({"gb200": 8, "h20": 2, "a100": 1}, {}),
        ({"h200": 4, "h200_nvl": 90}, {}),
        ({"": 4}, {"h200": "", "b200": "", "b300": ""}),
    ],
)
def test_our_names_of_gpus(types: dict[str, int], names: dict[str, str]) -> None:
    assert sitefile.gpu_names(types) == names


def cluster(partitions: str, nodes: str, accounts: str = "", runtimes: str = "") -> Cluster:
    own, qos = inventory.associations(accounts)
    return Cluster(
        "23.11.4",
        inventory.partitions(partitions),
        inventory.nodes(nodes),
        own,
        qos,
        tuple(runtimes.split()),
        (("ib0", "10.1.0.7"),),
        discover.mounts(MOUNTS),
    )


def loaded(text: str, folder: Path) -> Site:
    """The written text as everybody else reads it."""
    path = folder / "site.yaml"
    path.unlink(missing_ok=True)
    sitefile.write(path, text)
    return Site.model_validate(yamlfile.load(path).data)


B300 = "".join(f"b300-{i:03}|b300|gpu:nvidia_b300:8(S:0-1)|288|3000000|ib|idle\n" for i in (1, 2))


def test_a_site_file_of_a_cluster_with_everything(tmp_path: Path) -> None:
    found = cluster(NEW, B300, "rl|normal\n", "pyxis docker enroot")
    file = sitefile.build(found, Path("/lus/me/runs"))
    site = loaded(file.text, tmp_path)
    assert (site.partition, site.account, site.container) == ("b300", "rl", "pyxis")
    assert site.gpu_names == {"b300": "nvidia_b300"}
    assert site.gpu_request == "gpus-per-node"
    assert site.paths.runs == "/lus/me/runs"
    assert site.paths.models is None
    for told in ("# qos: normal", "# constraint: ib", "ib0 10.1.0.7", "8 × nvidia_b300", "3 days"):
        assert told in file.text
    assert "paths.models" in dict(file.asked)


def test_every_example_in_the_site_file_is_a_valid_key(tmp_path: Path) -> None:
    file = sitefile.build(cluster(NEW, B300, "rl|normal\na|x\n", "pyxis"), Path("/lus/me/runs"))
    found = (re.match(r"( *)# ([a-z_]+: +[^# ].*)", line) for line in file.text.splitlines())
    examples = [match[1] + match[2] for match in found if match]
    assert len(examples) > 10
    keys = [line for line in examples if not line.startswith("  ")]
    paths = [line for line in examples if line.startswith("  ")]
    text = "\n".join([*keys, "paths:", *paths])
    site = loaded(text + "\n", tmp_path)
    assert (site.account, site.qos, site.paths.models) == ("rl", "normal", "/shared/models")


def test_a_site_file_of_a_cluster_with_nothing(tmp_path: Path) -> None:
    found = cluster("PartitionName=all State=UP TotalNodes=1\n", "n|all|(null)|4|1|(null)|idle\n")
    site = loaded(sitefile.build(found, Path("/x")).text, tmp_path)
    assert (site.gpu_request, site.container, site.account) == ("none", "bare", None)


def test_the_partition_with_gpus_that_is_up_is_chosen(tmp_path: Path) -> None:
    nodes = "cn001|debug|(null)|64|1|(null)|idle\n" + B300.replace("|b300|", "|gpu|")
    found = cluster(OLD, nodes, "infra|x\nwelt|x\n")
    site = loaded(sitefile.build(found, Path("/x")).text, tmp_path)
    assert (site.partition, site.account) == ("gpu", "infra")  # of two accounts it takes one
    assert sitefile.choose(found, "debug").name == "debug"
    with pytest.raises(BeamSlurmError, match="nix") as caught:
        sitefile.choose(found, "nix")
    assert "debug, gpu" in (caught.value.remedy or "")


@pytest.mark.parametrize("name", ["on", "0123", "1e5", "null", "a:b", "x#y", "~", "1:30", "é"])
def test_words_that_yaml_would_change_are_quoted(name: str, tmp_path: Path) -> None:
    found = cluster(f"PartitionName={name} State=UP TotalNodes=1\n", "")
    assert loaded(sitefile.build(found, Path("/x y/'q'")).text, tmp_path).partition == name


def test_what_is_there_stays_unless_forced(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text("mine")
    with pytest.raises(BeamSlurmError, match="there already"):
        sitefile.write(path, "new")
    assert path.read_text() == "mine"
    sitefile.write(path, "new", force=True)
    assert path.read_text() == "new"
    with pytest.raises(BeamSlurmError, match="cannot write"):
        sitefile.write(tmp_path / "no" / "site.yaml", "new")
    assert list(tmp_path.iterdir()) == [path]  # no half-written file either


def test_of_several_partitions_the_most_generous_counts() -> None:
    def made(name: str, nodes: int, minutes: int | None) -> Partition:
        return Partition(name, "UP", name == "a", nodes, None, minutes)

    known = [made("a", 4, 60), made("b", 16, 60), made("c", 16, None)]
    assert inventory.choose(known, "a,b").name == "b"
    assert inventory.choose(known, "a,b,c").name == "c"
    assert inventory.choose(known, None).name == "a"
    with pytest.raises(BeamSlurmError, match="partition 'x' is unknown"):
        inventory.choose(known, "a,x")
    with pytest.raises(BeamSlurmError, match="no default partition"):
        inventory.choose(known[1:], None)
