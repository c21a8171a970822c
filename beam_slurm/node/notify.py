"""Verb ``notify``: one message about the run to the site's webhook; and when one is sent.

    node.pyz notify --attempt DIR --event NAME --webhook VARIABLE --form json|slack  < message

A webhook may be dead, slow or hostile, and the run must not feel it: whoever has something to tell
starts this verb as a process of its own, which gives up after LIMIT seconds. Each message is sent
once or not at all: a file in the run's notified/ says that it was tried, over all its attempts and
jobs. The URL is a secret, so it comes by the name of its variable and is repeated nowhere.
"""

import argparse
import contextlib
import ipaddress
import json
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

from beam_slurm.node import attempts, events
from beam_slurm.node.mask import Mask, names_in

EVENTS = ("start", "end", "failure", "restart")
FORMS = ("json", "slack")
LIMIT = 10.0  # seconds for one message
MOMENT = 3.0  # seconds of them that the end of a job may wait for
LONGEST = 1000  # characters of a message for people

Facts = Dict[str, Any]


class Hook(NamedTuple):
    """The site's webhook.

    Attributes:
        variable: which one holds its URL; "" if there is none.
        form: one of FORMS.
        on: the events that it is to hear of.
    """

    variable: str = ""
    form: str = "json"
    on: str = ""


class Refused(Exception):
    """A message that was not sent; the text says why, and nothing of the URL."""


def options(parser: argparse.ArgumentParser) -> None:
    """The words by which a script tells of the webhook."""
    parser.add_argument("--webhook", default="", help="the variable that holds its URL")
    parser.add_argument("--form", choices=FORMS, default=FORMS[0])
    parser.add_argument("--notify", default="", help="events that it hears of: start,failure")


def hook(args: argparse.Namespace) -> Hook:
    """The webhook of a command line with ``options``."""
    return Hook(args.webhook, args.form, args.notify)


def others(given: Hook) -> Dict[str, str]:
    """What the steps inherit: everything but the URL, which is no business of the training."""
    return {name: value for name, value in os.environ.items() if name != given.variable}


def tell(  # noqa: PLR0913
    given: Hook, attempt: str, event: str, text: str, facts: Facts, last: bool = False
) -> None:
    """Send one message, if the site wants this one and nobody has tried it before.

    Args:
        given: the webhook.
        attempt: the attempt's folder that it is about.
        event: one of EVENTS.
        text: what there is to say, in one line, without the run's name.
        facts: the same for programs.
        last: this process and its job are about to end: wait for a moment, until it is sent.
    """
    if not given.variable or event not in given.on.split(","):
        return
    with harmless(attempt, event):
        if not _first(attempt, event):
            return
        child = _start(given, attempt, event, _message(attempt, event, text, facts), last)
        if last:
            try:
                child.wait(MOMENT + 1)
            except subprocess.TimeoutExpired:
                child.kill()
                raise Refused("it took too long") from None


@contextlib.contextmanager
def harmless(attempt: str, event: str) -> Iterator[None]:
    """Whatever goes wrong with a message, the run comes first: it is written down and forgotten."""
    try:
        yield
    except Exception as problem:  # a full disk, no more processes, an outcome that says nothing
        _failed(attempt, event, _words(problem))


def main(argv: List[str]) -> int:
    """Send the message on standard input; 1 if that was not possible, which it has said then."""
    parser = argparse.ArgumentParser(prog="node.pyz notify")
    parser.add_argument("--attempt", required=True)
    parser.add_argument("--event", required=True, choices=EVENTS)
    parser.add_argument("--webhook", required=True, help="the variable that holds the URL")
    parser.add_argument("--form", choices=FORMS, default=FORMS[0])
    parser.add_argument("--seconds", type=float, default=LIMIT)
    args = parser.parse_args(argv)
    mask = Mask(names_in(os.environ, os.environ.get("BEAM_SLURM_SECRETS", "").split()))
    message = mask.whole(sys.stdin.buffer.read())
    said = ["no answer within %g s" % args.seconds]

    def work() -> None:
        try:
            send(os.environ.get(args.webhook, ""), _shaped(args.form, message))
            said[0] = ""
        except Exception as problem:
            said[0] = _words(problem)

    # Neither a name server nor a server that drips can be interrupted: they are left behind.
    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    worker.join(args.seconds)
    why = said[0]
    if why:
        _failed(args.attempt, args.event, why)
    else:
        events.record(args.attempt, events.make("notified", of=args.event))
    sys.stderr.flush()
    os._exit(1 if why else 0)


def send(url: str, body: bytes) -> None:
    """POST ``body`` as JSON; whatever the server says but "2xx" is a refusal.

    Certificates are verified, proxies are those of the environment, and no redirection is followed:
    it would take the run's facts to somebody else.

    Raises:
        Refused: with the reason.
    """
    why = unfit(url)
    if why:
        raise Refused(why)
    request = urllib.request.Request(  # noqa: S310 - unfit has looked at the scheme
        url,
        data=body,
        method="POST",
        headers={"Content-Type": "application/json", "User-Agent": "beam-slurm"},
    )
    try:
        with urllib.request.build_opener(_Straight).open(request, timeout=LIMIT):
            pass
    except urllib.error.HTTPError as problem:
        raise Refused("it answered %d" % problem.code) from None
    except urllib.error.URLError as problem:
        raise Refused(_words(problem.reason)) from None
    except OSError as problem:
        raise Refused(_words(problem)) from None


def unfit(url: str) -> str:
    """Why no message goes to this URL, without repeating it; "" if one may.

    Over plain HTTP whoever listens reads the URL, so it is for this host and private networks.
    """
    if not url:
        return "its variable is not set"
    try:
        parts = urllib.parse.urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return "its URL is malformed"
    if parts.scheme not in ("http", "https") or not host or not url.isprintable() or " " in url:
        return "its URL is no https://host/..."
    if parts.username is not None:
        return "its URL holds a user name: urllib does not send it"
    if parts.scheme == "https" or host == "localhost":
        return ""
    try:
        private = ipaddress.ip_address(host).is_private
    except ValueError:
        private = False
    return "" if private else "http:// is for localhost and private addresses: use https://"


def _first(attempt: str, event: str) -> bool:
    """Whether nobody has told this yet: a run starts once, and an attempt ends once."""
    run, number = os.path.dirname(attempt), attempts.number(attempt)
    folder = os.path.join(run, "notified")
    os.makedirs(folder, exist_ok=True)
    kind = "end" if event == "failure" else event
    name = kind if event == "start" else "%s-%d" % (kind, number)
    try:
        os.close(os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    except FileExistsError:
        return False
    return True


def _message(attempt: str, event: str, text: str, facts: Facts) -> Facts:
    """Everything that a program may want to know, and ``text`` for people."""
    run = os.path.dirname(attempt)
    manifest = {}  # type: Facts
    try:
        with open(os.path.join(run, "manifest.json")) as file:
            found = json.load(file)
            manifest = found if isinstance(found, dict) else {}
    except (OSError, ValueError):
        pass
    nodes, each = manifest.get("nodes"), manifest.get("gpus_per_node")
    last, of = (facts.get("steps") or {}).get("last"), manifest.get("steps")
    job = facts.get("job")
    about = [
        manifest.get("profile"),
        "job %s" % job if job else "",
        "step %s of %s" % (last, of) if last is not None else "",
    ]
    return {
        "event": event,
        "run": os.path.basename(run),
        "profile": manifest.get("profile"),
        "state": facts.get("state"),
        "class": facts.get("class") or None,
        "cause": facts.get("cause"),
        "do": facts.get("do") or None,
        "stopped": facts.get("stopped") or None,
        "next": facts.get("next"),
        "attempt": attempts.number(attempt),
        "steps": {"last": last, "of": of},
        "nodes": facts.get("nodes") or [],
        "gpus": nodes * each if nodes and each else None,
        "job": job,
        "folder": run,
        "time": round(time.time(), 3),
        "text": "%s (%s): %s" % (os.path.basename(run), ", ".join(filter(None, about)), text),
    }


def _shaped(form: str, message: bytes) -> bytes:
    if form == "json":
        return message
    text = json.loads(message)["text"]
    text = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
    # What Slack would take for a link or for everybody's name.
    for letter, word in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(letter, word)
    return json.dumps({"text": text}).encode()


def _start(
    given: Hook, attempt: str, event: str, message: Facts, last: bool
) -> "subprocess.Popen[bytes]":
    program = os.path.join(os.path.dirname(attempt), "node.pyz")
    options = ["--attempt=" + attempt, "--event=" + event, "--webhook=" + given.variable]
    options += ["--form=" + given.form, "--seconds=%g" % (MOMENT if last else LIMIT)]
    with tempfile.TemporaryFile() as file:  # a pipe would make us wait until somebody reads it
        file.write(json.dumps(message).encode())
        file.seek(0)
        # The job may be ending: that is what it tells of, so it does not hear of it itself.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
        try:
            return subprocess.Popen(
                [sys.executable, program, "notify", *options],
                stdin=file,
                stdout=subprocess.DEVNULL,  # preflight's is a pipe that the script reads to its end
                start_new_session=True,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _failed(attempt: str, event: str, why: str) -> None:
    events.record(attempt, events.make("not-notified", of=event, why=why))
    events.say("the webhook was not told of the %s: %s" % (event, why))


def _words(problem: Any) -> str:
    """What went wrong, in the words of the system; nothing that might show the URL."""
    if isinstance(problem, Refused):
        return str(problem)
    if isinstance(problem, ssl.SSLCertVerificationError):
        return "its certificate is not trusted: " + problem.verify_message
    if isinstance(problem, TimeoutError) or "timed out" in str(problem):
        return "no answer"
    return getattr(problem, "strerror", None) or type(problem).__name__


class _Straight(urllib.request.HTTPRedirectHandler):
    """Follows no redirection: it is an answer like any other then."""

    def redirect_request(self, *_: Any) -> Optional[urllib.request.Request]:
        return None
