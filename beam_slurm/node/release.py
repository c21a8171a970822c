"""Releases what waits for a checkpoint as soon as that lies there, while the run goes on.

The jobs wait for the run's success (see ``followers``), so whatever is not released runs at its end
at the latest, or goes with it. Looking is a thread's: storage or a controller that does not answer
is to keep nobody waiting, and nothing that fails here harms the run.
"""

import re
import threading
from typing import Set

from beam_slurm.node import again, assets, checkpoint, events, followers
from beam_slurm.node.followers import Follower

EVERY = 5.0  # seconds between two looks

# It has been released, cancelled or forgotten: there is nothing to be done about it any more.
GONE = re.compile(r"no longer pending|already (?:finished|complet)|Invalid job id")


class Release(threading.Thread):
    """Looks after the jobs that wait for a run's checkpoints.

    Args:
        run: the run folder.
        framework: whose checkpoints they are.
        checkpoints: where they lie.
    """

    def __init__(self, run: str, framework: str, checkpoints: str) -> None:
        super().__init__(daemon=True)
        self.folder = run
        self.framework = framework
        self.checkpoints = checkpoints
        self._over = threading.Event()
        self._said: Set[str] = set()
        self._settled: Set[str] = set()  # jobs: released, gone, or left to wait for the run's end

    def begin(self) -> None:
        """Look from now on, if the framework saves checkpoints and nobody looks yet."""
        if self.checkpoints and self.framework in checkpoint.LAYOUTS and not self.is_alive():
            self.start()

    def run(self) -> None:
        """Look now and then until the attempt is over."""
        while not self._over.is_set():
            try:
                self.look()
            except OSError as problem:  # the next look may do better
                self._say("what waits for a checkpoint is not released: %s" % problem)
            self._over.wait(EVERY)

    def end(self) -> None:
        """Look no more: what follows the attempt decides about those that still wait."""
        self._over.set()

    def look(self) -> None:
        """Release what has its checkpoint by now.

        Raises:
            OSError: a file cannot be read or written.
        """
        known = followers.read(self.folder)
        waiting = [it for it in known if it.step is not None and it.job not in self._settled]
        steps = {it.step for it in waiting if it.step is not None and not it.model}
        saved = checkpoint.saved(self.framework, self.checkpoints, steps) if steps else []
        for it in waiting:
            there = not assets.check_model(it.model) if it.model else it.step in saved
            if there and not self._over.is_set() and self._release(it):
                known.remove(it)
                followers.write(self.folder, known)

    def _release(self, follower: Follower) -> bool:
        """Try to release a job; whether it does not wait for the run any more."""
        code, said = again.release(follower.job)
        job, step = follower.job, follower.step
        if code and again.SILENT.search(said):
            self._say("job %s waits on, Slurm's controller does not answer: %s" % (job, said))
            return False
        self._settled.add(job)
        gone = GONE.search(said)
        if code and not gone:
            self._say("job %s is not released, and waits for the run's end: %s" % (job, said))
        elif code:
            self._say("job %s does not wait for step %s any more: %s" % (job, step, said))
        else:
            events.say("step %s is saved: job %s, which waited for it, may start" % (step, job))
        return code == 0 or gone is not None

    def _say(self, text: str) -> None:
        """Say it, once an attempt."""
        if text not in self._said:
            self._said.add(text)
            events.say(text)
