"""The bridge, the links and the addresses of a cluster."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable
from pathlib import Path

from beam_slurm.cluster.process import run
from beam_slurm.cluster.spec import CONTROLLER, ClusterSpec

Network = ipaddress.IPv4Network

# Private ranges first; 198.18.0.0/15 is set aside for tests of networks and is seldom routed.
_RANGES = ("10.77.0.0/16", "198.18.0.0/15", "192.168.0.0/16")


def candidates() -> list[tuple[str, Network]]:
    """Every (bridge name, subnet) that a cluster could have; one belongs to one subnet."""
    subnets = [s for r in _RANGES for s in ipaddress.IPv4Network(r).subnets(new_prefix=24)]
    # At most 15 characters with the host's number behind: bslurm1023n64.
    return [(f"bslurm{i}", subnet) for i, subnet in enumerate(subnets)]


def networks_in_use() -> list[Network]:
    """The networks that the machine has addresses in or routes to, its default route aside."""
    routes = json.loads(run(["ip", "-4", "-json", "route", "show", "table", "all"]).stdout or "[]")
    found = []
    for route in routes:
        try:
            found.append(ipaddress.IPv4Network(route["dst"], strict=False))
        except ValueError:  # "default"
            continue
    return [network for network in found if network.prefixlen]


def choose(
    used: Iterable[Network], taken: Iterable[str], options: Iterable[tuple[str, Network]]
) -> tuple[str, Network] | None:
    """Return the first option whose name is not taken and whose subnet overlaps none in use."""
    used, taken = list(used), set(taken)
    for bridge, subnet in options:
        if bridge not in taken and not any(subnet.overlaps(other) for other in used):
            return bridge, subnet
    return None


def addresses(subnet: str, spec: ClusterSpec) -> dict[str, str]:
    """Address of every host by name: the controller is .2, node1 is .11."""
    network = ipaddress.IPv4Network(subnet)
    numbers = {CONTROLLER: 2, **{node: 10 + i for i, node in enumerate(spec.nodes, start=1)}}
    return {name: str(network[number]) for name, number in numbers.items()}


def gateway(subnet: str) -> str:
    """The bridge's own address: by it the hosts reach the real machine."""
    return str(ipaddress.IPv4Network(subnet)[1])


def link_name(bridge: str, host: str) -> str:
    """The real machine's end of a host's cable: bslurm0n3 for node3, bslurm0ctl."""
    return bridge + host.replace("node", "n")


def make_bridge(bridge: str, subnet: str) -> None:
    """Make the bridge and give it its address."""
    prefix = ipaddress.IPv4Network(subnet).prefixlen
    run(["ip", "link", "add", bridge, "type", "bridge", "mcast_snooping", "0"])
    run(["ip", "addr", "add", f"{gateway(subnet)}/{prefix}", "dev", bridge])
    run(["ip", "link", "set", bridge, "up"])


def plug_in(bridge: str, host: str, address: str, pid: int) -> None:
    """Lay the cable between the bridge and ``eth0`` in the network namespace of ``pid``."""
    link = link_name(bridge, host)
    unplug(bridge, host)
    # A card keeps its hardware address when a host comes back; else its neighbours would
    # send to the old one until their tables expire.
    hardware = "02:00:" + ":".join(f"{int(part):02x}" for part in address.split("."))
    peer = ["peer", "name", "eth0", "address", hardware, "netns", str(pid)]
    run(["ip", "link", "add", link, "type", "veth", *peer])
    run(["ip", "link", "set", link, "master", bridge, "up"])


def unplug(bridge: str, host: str) -> None:
    """Pull the cable: the peers of the host hear no goodbye, as on power loss."""
    # A dead namespace takes its link along only after a while; by name it is gone at once.
    if Path("/sys/class/net", link_name(bridge, host)).exists():
        run(["ip", "link", "del", link_name(bridge, host)], check=False)


def links(bridge: str) -> list[str]:
    """The links of the cluster that exist now; the bridge is last."""
    found = [p.name for p in Path("/sys/class/net").iterdir() if _belongs(p.name, bridge)]
    return sorted(found, key=lambda name: name == bridge)


def remove_links(bridge: str) -> None:
    """Remove the bridge and every cable."""
    for link in links(bridge):
        run(["ip", "link", "del", link], check=False)


def _belongs(link: str, bridge: str) -> bool:
    # bslurm1 must not claim the links of bslurm10.
    rest = link.removeprefix(bridge)
    return link.startswith(bridge) and (
        rest in ("", CONTROLLER) or (rest[0] == "n" and rest[1:].isdigit())
    )
