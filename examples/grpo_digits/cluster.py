"""The Ray cluster: join it, and reserve a place in it for each actor."""

import atexit
import os
import shutil
import socket
import tempfile
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

CONNECT_SECONDS = 10
PLACEMENT_SECONDS = 60


class ClusterError(Exception):
    """There is no cluster, or not the one that this run needs."""


@dataclass(frozen=True)
class Places:
    """Options for ``Actor.options(...)``: where each actor runs and what it holds there."""

    learner: dict[str, Any]
    rollout_workers: list[dict[str, Any]]


def join(local: bool) -> None:
    """Connect to the cluster at ``RAY_ADDRESS``, or to this host's; start one only if ``local``."""
    quiet: dict[str, Any] = {"logging_level": "warning"}
    if local:
        # A short path of its own: Ray's sockets live there, and other people's clusters elsewhere.
        folder = tempfile.mkdtemp(prefix="ray-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        ray.init(address="local", include_dashboard=False, _temp_dir=folder, **quiet)
        return
    address = os.environ.get("RAY_ADDRESS") or "auto"
    if address == "local":
        raise ClusterError("RAY_ADDRESS=local is no cluster: pass --local if that is meant")
    _check_listening(address)
    try:
        ray.init(address=address, **quiet)
    except ConnectionError as error:
        raise ClusterError(
            f"no Ray cluster at {address!r}: start one, set RAY_ADDRESS, or pass --local"
        ) from error


def _check_listening(address: str) -> None:
    """Fail at once where nothing listens: Ray itself would try again for many minutes."""
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        raise ClusterError(
            f"no Ray cluster at RAY_ADDRESS={address}: {error.strerror or error}"
        ) from error


def start(actor: type, place: dict[str, Any], *arguments: Any) -> Any:
    """A handle to a new actor, before the actor is up."""
    return ray.remote(actor).options(**place).remote(*arguments)


def accelerator() -> str:
    """What an actor occupies one of: a GPU if the cluster has any, else a CPU."""
    return "GPU" if ray.cluster_resources().get("GPU", 0) >= 1 else "CPU"


def default_rollout_workers(mode: str) -> int:
    """One on each host; in async mode the learner's host is left to the learner."""
    hosts = sum(
        1 for node in ray.nodes() if node["Alive"] and node["Resources"].get(accelerator(), 0) >= 1
    )
    return hosts if mode == "colocated" else max(1, hosts - 1)


def reserve(mode: str, rollout_workers: int) -> Places:
    """Reserve bundles of one accelerator each, spread over the hosts.

    Colocated: a bundle for each worker; the learner shares the first one. Async: one more, which is
    the learner's alone. The first bundle is on the driver's host where that host has room.
    """
    unit = {"CPU": 1.0, accelerator(): 1.0}
    count = rollout_workers + (mode == "async")
    for name in unit:
        have = int(ray.cluster_resources().get(name, 0))
        if have < count:
            raise ClusterError(
                f"{mode} mode with {rollout_workers} rollout worker(s) needs {count} {name}(s), "
                f"and the cluster has {have}"
            )
    here = ray.get_runtime_context().get_node_id()
    room_here = any(
        bool(node["NodeID"] == here) and all(node["Resources"].get(name, 0) >= 1 for name in unit)
        for node in ray.nodes()
    )
    first: dict[str, str] = {"ray.io/node-id": here} if room_here else {}
    group = placement_group(
        [unit] * count, strategy="SPREAD", bundle_label_selector=[first, *[{}] * (count - 1)]
    )
    if not group.wait(PLACEMENT_SECONDS):
        raise ClusterError(f"Ray did not place {count} bundle(s) {unit} in {PLACEMENT_SECONDS} s")

    def place(bundle: int, share: float) -> dict[str, Any]:
        return {
            "num_cpus": share,
            "num_gpus": share if "GPU" in unit else 0,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(group, bundle),
        }

    if mode == "async":
        return Places(place(0, 1), [place(1 + rank, 1) for rank in range(rollout_workers)])
    return Places(place(0, 0.5), [place(rank, 0.5) for rank in range(rollout_workers)])
