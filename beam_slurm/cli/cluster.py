"""``beam-slurm cluster``: the embedded Slurm, a cluster of several hosts on this machine."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from beam_slurm.cluster import Cluster, HostStatus

DEFAULT_NAME = "demo"

name_option = click.option(
    "--name", default=DEFAULT_NAME, show_default=True, help="Which cluster; each has its own name."
)


def _cluster(name: str) -> Cluster:
    from beam_slurm.cluster import Cluster

    return Cluster(name)


@click.group()
def cluster() -> None:
    """A real Slurm of several hosts on this one machine.

    For trying things out and for tests. Each host has its own address, name, process list,
    /tmp and /dev/shm, and stand-ins for GPUs. Needs root and Debian's own Slurm:
    apt-get install slurm-wlm munge iproute2

    \b
    Examples:
      beam-slurm cluster up --hosts 4 --gpus 8 --gpu-type h200
      eval "$(beam-slurm cluster env)"
      srun -N4 --gres gpu:h200:8 hostname
      beam-slurm cluster stop-host node2
      beam-slurm cluster down
    """


@cluster.command()
@click.option("--hosts", default=4, show_default=True, help="Hosts: node1 to nodeN.")
@click.option("--gpus", default=8, show_default=True, help="GPUs of each host.")
@click.option("--gpu-type", default="h200", show_default=True, help="As in --gres gpu:TYPE:N.")
@click.option("--cpus", default=16, show_default=True, help="CPUs that each host claims to have.")
@click.option(
    "--memory-mb", default=2_000_000, show_default=True, help="MiB that each host claims to have."
)
@click.option("--conf", multiple=True, help="A further line of slurm.conf. Can be repeated.")
@name_option
def up(
    *,
    hosts: int,
    gpus: int,
    gpu_type: str,
    cpus: int,
    memory_mb: int,
    conf: tuple[str, ...],
    name: str,
) -> None:
    """Make the cluster and wait until every host is ready.

    Run again, it starts the hosts that were stopped and changes nothing else.

    \b
    Examples:
      beam-slurm cluster up --hosts 8 --gpus 8 --gpu-type b300
      beam-slurm cluster up --hosts 2 --name second
      beam-slurm cluster up --conf 'PartitionName=short Nodes=ALL MaxTime=10'
    """
    import sys
    from pathlib import Path

    found = _cluster(name)
    # A checkout below /tmp would not be there for the jobs: each host has a /tmp of its own.
    here = (Path.cwd(), Path(sys.prefix), Path(__file__).parents[2])
    found.up(hosts, gpus, gpu_type, cpus=cpus, memory_mb=memory_mb, extra_conf=conf, shared=here)
    click.echo(f"cluster {name} is up: {found.spec().describe()}")
    click.echo(f'use it: eval "$(beam-slurm cluster env{_flag(name)})"')


@cluster.command()
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@name_option
def status(as_json: bool, name: str) -> None:
    """Show the hosts: whether they run, and what Slurm says of them."""
    hosts = _cluster(name).status()
    if as_json:
        import json
        from dataclasses import asdict

        click.echo(json.dumps({"name": name, "hosts": [asdict(host) for host in hosts]}, indent=2))
    else:
        _show(hosts)


@cluster.command("stop-host")
@click.argument("host")
@name_option
def stop_host(host: str, name: str) -> None:
    """Take the power of HOST away, such as node2, or ctl for the controller.

    All its processes end at once and nobody is told: Slurm marks the node down after 30 s
    without an answer.
    """
    _cluster(name).stop_host(host)
    click.echo(f"{host} is off")


@cluster.command("start-host")
@click.argument("host")
@name_option
def start_host(host: str, name: str) -> None:
    """Start HOST again and wait until Slurm can use it."""
    _cluster(name).start_host(host)
    click.echo(f"{host} is ready")


@cluster.command()
@name_option
def down(name: str) -> None:
    """Remove the cluster: processes, links, cgroups and files, also when it is half made."""
    found = _cluster(name).down()
    click.echo(f"cluster {name} is down" if found else f"there is no cluster {name}")


@cluster.command()
@name_option
def env(name: str) -> None:
    """Print the lines by which a shell's Slurm commands find the cluster.

    \b
    Example:
      eval "$(beam-slurm cluster env)"
    """
    import shlex

    for key, value in _cluster(name).environment().items():
        click.echo(f"export {key}={shlex.quote(value)}")


@cluster.command("exec", context_settings={"allow_interspersed_args": False})
@name_option
@click.argument("host")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def exec_(name: str, host: str, command: tuple[str, ...]) -> None:
    """Run COMMAND inside HOST, in the present folder. Options come before HOST.

    \b
    Examples:
      beam-slurm cluster exec node2 ps -ef
      beam-slurm cluster exec --name second ctl -- tail -f /var/log/syslog
    """
    import os
    from pathlib import Path

    found = _cluster(name)
    command = command[1:] if command[0] == "--" else command
    argv = found.exec_argv(host, [*command], folder=str(Path.cwd()))
    os.execve(argv[0], argv, {**os.environ, **found.environment()})  # noqa: S606 - no shell wanted


def _flag(name: str) -> str:
    return "" if name == DEFAULT_NAME else f" --name {name}"


def _show(hosts: list[HostStatus]) -> None:
    """Print a table: drawn on a terminal, plain columns otherwise."""
    columns = ("host", "address", "power", "slurm", "pid", "processes")
    rows: list[tuple[Any, ...]] = [
        (h.name, h.address, "on" if h.running else "off", h.slurm, h.pid or "-", h.processes)
        for h in hosts
    ]
    if not sys.stdout.isatty():
        for row in (columns, *rows):
            click.echo("{:<8} {:<16} {:<6} {:<12} {:<8} {}".format(*row))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(*columns, box=None)
    for host, row in zip(hosts, rows, strict=True):
        well = host.running and host.slurm.isalpha() and host.slurm not in ("down", "unknown")
        table.add_row(*map(str, row), style=None if well else "red")
    Console().print(table)
