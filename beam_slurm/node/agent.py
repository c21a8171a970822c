"""The port of Ray's dashboard agent, told to the raylet before the agent itself can.

A raylet waits 15 s for a file in which its agent writes this port, and then aborts, although the
port was fixed by ``ray start`` and nothing can change that time. On slow storage or busy cores
the agent takes longer to import. Seen with Ray 2.60: "Timed out waiting for file
.../dashboard_agent_listen_port_...".
"""

import contextlib
from typing import Any, Dict, List


def announce(port: int) -> None:
    """Let the raylet that ``ray start`` starts in this process find ``port`` in that file.

    The agent writes the same once it is there. A Ray that lacks these names is left alone.
    """
    try:
        from ray._private import services
        from ray._raylet import (  # type: ignore[attr-defined,unused-ignore]
            DASHBOARD_AGENT_LISTEN_PORT_NAME,
            persist_port,
        )
    except ImportError:
        return
    start = services.start_ray_process

    def announcing(command: List[str], process_type: str, *args: Any, **more: Any) -> Any:
        if process_type == "raylet":
            told = _options(command)
            with contextlib.suppress(Exception):  # then the raylet waits, as it always did
                persist_port(
                    told["session_dir"], told["node_id"], DASHBOARD_AGENT_LISTEN_PORT_NAME, port
                )
        return start(command, process_type, *args, **more)

    services.start_ray_process = announcing


def _options(command: List[str]) -> Dict[str, str]:
    pairs = (word.partition("=") for word in command if word.startswith("--"))
    return {name[2:]: value for name, _, value in pairs}
