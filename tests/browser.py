"""A headless Chromium that looks at a page: what it asks for, complains of, and how wide it is."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")

# Shows the page in a frame of some width, and tells how wide and high its content is.
FRAME = """<!doctype html><link rel="icon" href="data:,"><body><iframe src="/page" width="{width}"
height="900" onload="const it = this.contentDocument; const all = it.documentElement;
document.body.dataset.said = JSON.stringify([all.clientWidth, all.scrollWidth,
getComputedStyle(it.body).backgroundColor, it.querySelectorAll('script').length])"></iframe>
"""


def program() -> str | None:
    """Where it is; None if it is not here."""
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


def run(folder: Path, *words: str) -> tuple[str, str]:
    """What it prints, and what it complains of, with ``folder`` as its home."""
    found = program()
    assert found
    done = subprocess.run(
        [
            found,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            "--hide-scrollbars",
            "--enable-logging=stderr",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            f"--user-data-dir={folder / 'browser'}",
            *words,
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    complaints = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    return done.stdout, "\n".join(complaints)


@contextmanager
def serving(page: bytes, width: int) -> Iterator[tuple[str, list[str]]]:
    """The page at /page, and framed at /; the address, and the paths that are asked for."""
    asked: list[str] = []
    bodies = {"/page": page, "/": FRAME.format(width=width).encode()}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = bodies.get(self.path)
            self.send_response(200 if body else 404)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *words: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
