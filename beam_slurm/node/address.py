"""This node's address for Ray, and the CPUs that Slurm has given the job."""

import fcntl
import ipaddress
import os
import socket
import struct
from typing import List, Optional, Tuple

SIOCGIFADDR = 0x8915


class NoAddress(Exception):
    """This node has no address that the others could reach; the text says why."""


def cpus(text: str) -> List[int]:
    """Slurm's CPUs per node, expanded: ``72(x3),36`` is [72, 72, 72, 36]."""
    counts = []  # type: List[int]
    for part in text.split(","):
        count, _, times = part.partition("(x")
        counts += [int(count)] * int(times.rstrip(")") or 1)
    return counts


def own(interface: str = "", prefix: str = "", toward: str = "") -> str:
    """This node's IPv4 address for Ray.

    By the site's interface or network if it names one; else the source address of the route
    ``toward`` another node; else what the node's own name resolves to.

    Raises:
        NoAddress: naming the interface or network that is not here.
    """
    if interface:
        found = _of_interface(interface)
        if not found:
            raise NoAddress("network interface %r is not here or has no IPv4 address" % interface)
        return found
    if prefix:
        network = ipaddress.ip_network(prefix, strict=False)
        for _, candidate in interfaces():
            if ipaddress.ip_address(candidate) in network:
                return candidate
        raise NoAddress("no address of this node lies in %s" % prefix)
    candidates = [_route(toward)] if toward else _resolved()
    candidates += [ip for name, ip in interfaces() if not virtual(name)]
    for candidate in candidates:
        if candidate and usable(candidate):
            return candidate
    raise NoAddress("no usable IPv4 address: set site.network.interface or site.network.prefix")


def usable(ip: str) -> bool:
    """Neither loopback nor link-local: other nodes can reach it."""
    address = ipaddress.ip_address(ip)
    return not (address.is_loopback or address.is_link_local or address.is_unspecified)


def _name() -> str:
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def virtual(name: str) -> bool:
    """Whether an interface is a bridge of containers or loopback: no way to another node."""
    return name.startswith(("docker", "br-", "veth", "virbr", "lo", "cni", "podman"))


def _resolved() -> List[str]:
    name = _name()
    own_addresses = {ip for _, ip in interfaces()}
    found = []
    for host in (name, socket.gethostname()):
        try:
            infos = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)
        except OSError:
            continue
        # A name that resolves to another machine's address is an alias, not ours to bind.
        found += [str(info[4][0]) for info in infos if info[4][0] in own_addresses]
    return found


def _route(toward: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((toward, 9))  # chooses the route, sends nothing
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def interfaces() -> List[Tuple[str, str]]:
    """(name, IPv4) of every interface that has one."""
    pairs = ((name, _of_interface(name)) for _, name in socket.if_nameindex())
    return [(name, ip) for name, ip in pairs if ip]


def _of_interface(name: str) -> Optional[str]:
    request = struct.pack("256s", name.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = bytes(fcntl.ioctl(probe.fileno(), SIOCGIFADDR, request))
            return socket.inet_ntoa(answer[20:24])
        except OSError:
            return None
