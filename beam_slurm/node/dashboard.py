"""Ray's dashboard, for entries that submit a Ray job to it: it comes up after the nodes."""

import http.client
import os
import time
from typing import Dict
from urllib.parse import urlsplit


class Silent(Exception):
    """Nobody answers at the dashboard's address; the text says what was the last word."""


def wait(seconds: float) -> None:
    """Return when the dashboard at $RAY_API_SERVER_ADDRESS can tell its version.

    ``ray job submit`` asks the same first, and gives up at once.

    Raises:
        Silent: it could not within ``seconds``.
    """
    where = urlsplit(os.environ["RAY_API_SERVER_ADDRESS"]).netloc
    headers = _authorization()
    deadline = time.monotonic() + seconds
    while True:
        # Not urllib: it would obey http_proxy.
        connection = http.client.HTTPConnection(where, timeout=10)
        try:
            connection.request("GET", "/api/version", headers=headers)
            status = connection.getresponse().status
            if status == http.client.OK:
                return
            why = "HTTP status %d" % status
        except (OSError, http.client.HTTPException) as problem:
            why = str(problem)
        finally:
            connection.close()
        if time.monotonic() > deadline:
            raise Silent(
                "Ray's dashboard at %s did not answer within %.0f s: %s" % (where, seconds, why)
            )
        time.sleep(0.1)


def _authorization() -> Dict[str, str]:
    path = os.environ.get("RAY_AUTH_TOKEN_PATH")
    if os.environ.get("RAY_AUTH_MODE") != "token" or not path:
        return {}
    with open(path) as file:
        return {"Authorization": "Bearer " + file.read().strip()}
