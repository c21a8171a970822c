"""One import of a container image to a file that all nodes share, as a small job.

Left to themselves, all nodes of a run pull the image at once: tens of GB each, into /run or a home
folder. pyxis and Apptainer start a file instead, which is made here once.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from beam_slurm import images, runs, script, slurm
from beam_slurm.errors import BeamSlurmError
from beam_slurm.schema import Site

CPUS = 8  # both tools compress on all that they have
TIME = "2:00:00"
POLL_S = 5.0


@dataclass(frozen=True)
class Import:
    """One import. ``str()`` is its script: what dry-run prints is submitted.

    Attributes:
        site: where it runs.
        image: as the runtime's own tool takes it, behind docker://.
        file: absolute path of the file to make.
        id: the job's name in its comment, by which it can be found again.
    """

    site: Site
    image: str
    file: Path
    id: str

    @property
    def token(self) -> str:
        """The job's comment."""
        return f"beam-slurm:{self.id}"

    @property
    def log(self) -> str:
        """The job's log; %j stands for its number."""
        return f"{self.file}.import-%j.log"

    def __str__(self) -> str:
        site = self.site
        return script.render(
            "image.sbatch.j2",
            directives=[
                ("job-name", "beam-image"),
                ("comment", self.token),
                *script.placement(site),
                ("nodes", 1),
                ("ntasks", 1),
                ("cpus-per-task", CPUS),
                ("time", TIME),
                ("output", self.log),
                ("no-requeue", None),
                *script.more_directives(site, single=True),
            ],
            unset_directives=[],
            setup=[script.Raw(line) for line in site.setup],
            runtime=site.container,
            image=self.image,
            file=str(self.file),
            tmp=site.paths.tmp,
        )


def make(site: Site, image: str, file: Path, import_id: str | None = None) -> Import:
    """The import of ``image`` to ``file`` for the site's runtime.

    Raises:
        BeamSlurmError: this runtime starts no files, or the image or the file's name is not one.
    """
    ending = images.FILES.get(site.container)
    if ending is None:
        bare = site.container == "bare"
        raise BeamSlurmError(
            f"there is nothing to import for {site.container}",
            why="without a container no image is needed"
            if bare
            else f"{site.container} keeps images in a store on each node and starts no file",
            remedy="set site.container to pyxis or apptainer, if the site has one of them"
            if bare
            else "pull it on every node before the run: "
            f"srun --nodes=N {site.container} pull {images.spell(image, site.container, 'IMAGE')}",
        )
    if file.suffix != ending:
        raise BeamSlurmError(
            f"{site.container} starts files that end in {ending}, not {file.name}",
            remedy=f"-o {file.with_suffix(ending)}, or another site.container",
        )
    reference = images.parse(image, "IMAGE")
    spelled = images.spell(image, site.container, "IMAGE").removeprefix("docker://")
    return Import(
        site, spelled, file.absolute(), import_id or runs.new_id(reference.name.split("/")[-1])
    )


def submit(made: Import) -> str:
    """Submit the import; the job's id.

    Raises:
        BeamSlurmError: the file is there already, its folder is not, or Slurm refuses.
    """
    if made.file.exists():
        raise BeamSlurmError(
            f"{made.file} is there already",
            why="a run may be using it",
            remedy="use it, or choose another name with -o",
        )
    if not made.file.parent.is_dir():
        raise BeamSlurmError(f"there is no folder {made.file.parent}", remedy="make it first")
    with tempfile.NamedTemporaryFile("w", suffix=".sbatch", encoding="utf-8") as written:
        written.write(str(made))
        written.flush()
        try:
            return slurm.submit(Path(written.name), made.token)
        except slurm.Uncertain as problem:
            raise problem.error(made.token) from None


def wait(made: Import, job_id: str) -> None:
    """Return when the file is there.

    Raises:
        BeamSlurmError: the job has ended and the file is not there.
    """
    while True:
        found = slurm.job(job_id)
        if found is None or found.ended:
            break
        time.sleep(POLL_S)
    if not made.file.exists():
        raise BeamSlurmError(
            f"job {job_id} has not made {made.file}",
            why=f"Slurm says {found.state if found else 'nothing'}",
            remedy=f"read {made.log.replace('%j', job_id)}",
            exit_code=1,
        )
