"""Arrays through submitit: its executor writes the script and the pickle, and starts the tasks.

What differs from submitit's own way, and why:

- One pickle for all tasks of an array, in place before sbatch is called: each task links it to the
  name under which submitit looks for it. submitit moves one for each task after the submission, so
  tasks would wait in vain if this process died in between.
- sbatch is called by ``slurm.submit``, which looks for the array's comment before it tries again.
- The batch script becomes Python and that becomes the point's script (``task``), with no srun in
  between: Slurm's signals reach whoever listens for them.
- An array of one task is still an array: a point's job is always ARRAY_INDEX.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from submitit import SlurmExecutor
from submitit.core.utils import DelayedSubmission

from beam_slurm.sweep import task
from beam_slurm.sweep.folder import Directive

# Said by submitit itself, or by what an array has of its own.
_OWN = ("open-mode", "output", "chdir", "comment")


class ArrayExecutor(SlurmExecutor):
    """submitit's executor for an array whose tasks become the scripts of their runs."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, python=f"exec {shlex.quote(sys.executable)}")

    def write(
        self,
        name: str,
        runs: Sequence[str],
        directives: Sequence[Directive],
        token: str,
        parallel: int | None,
    ) -> Path:
        """Write the script of an array and what its tasks need; the script's path.

        Args:
            name: of the files.
            runs: names of the runs, beside this executor's folder, by the index of their task.
            directives: #SBATCH options that the runs have in common; None is an option alone.
            token: the array's comment.
            parallel: how many tasks may run at the same time; None: all.
        """
        pickle = self.folder / f"{name}.pkl"
        sweep = self.folder.parent
        DelayedSubmission(task.start, str(sweep), list(runs)).dump(pickle)
        own = {
            option.replace("-", "_"): True if value is None else value
            for option, value in directives
            if option not in _OWN
        }
        log = f"{self.folder}/%A_%a.log"
        self.parameters = {}
        self.update_parameters(
            additional_parameters={**own, "comment": token, "chdir": str(sweep), "output": log},
            array_parallelism=parallel or len(runs),
            stderr_to_stdout=True,
            use_srun=False,
            wckey=None,
            setup=[
                f"ln -sf {shlex.quote(str(pickle))} {shlex.quote(str(self.folder))}"
                '/"${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}_submitted.pkl"'
            ],
        )
        self.parameters["map_count"] = len(runs)
        script = self.folder / f"{name}.sbatch"
        script.write_text(self._make_submission_file_text(self._submitit_command_str, name))
        return script
