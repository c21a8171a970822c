"""The site's folders as the hosts see them and as a run sees them inside its container."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from beam_slurm import images
from beam_slurm.errors import BeamSlurmError
from beam_slurm.frameworks.launch import Missing
from beam_slurm.mounts import Mount
from beam_slurm.profiles import Resolved
from beam_slurm.yamlfile import dotted

WHAT = {
    "models": "folder that holds Beam/",
    "datasets": "shared folder for the problems to train and evaluate on",
    "outputs": "shared folder for logs and checkpoints",
    "scratch": "node-local NVMe",
    "nemo_rl": "checkout of NeMo RL's beam-support branch",
    "skyrl": "checkout of SkyRL's beam-release branch",
    "miles": "checkout of Miles' beam-image branch",
}

# Where the published container lines mount them; the checkout's own place is the framework's.
TARGETS = {
    "models": "/root/models",
    "datasets": "/root/datasets",
    "outputs": "/root/shared_data",
    "scratch": "/scratch",
}


class Folders:
    """What a run needs of ``site.paths``, asked for by name.

    Args:
        resolved: the profile.
        missing: takes what the site has not said yet.
        checkout: where the framework wants its checkout inside the container, by its name.
    """

    def __init__(self, resolved: Resolved, missing: Missing, checkout: Mapping[str, str]) -> None:
        self._resolved = resolved
        self._missing = missing
        self._targets = {**TARGETS, **checkout}
        self._mounts: dict[str, Mount] = {}
        self.bare = resolved.profile.site.container == "bare"

    @property
    def mounts(self) -> tuple[Mount, ...]:
        """The mounts of all folders that were asked for; none where hosts run the entry bare."""
        return () if self.bare else tuple(self._mounts.values())

    def host(self, name: str) -> str:
        """The folder as the hosts see it."""
        key = f"site.paths.{name}"
        path = getattr(self._resolved.profile.site.paths, name)
        found = self._missing.need(path, key, WHAT[name])
        self._mounts.setdefault(name, Mount(found, self._targets[name]))
        return found

    def inside(self, name: str) -> str:
        """The folder as the run sees it."""
        host = self.host(name)
        return host if self.bare else self._targets[name]

    def output(self, run_id: str) -> tuple[str, str]:
        """The run's own output folder, as (hosts, run) see it.

        Raises:
            BeamSlurmError: ``job.output_dir`` lies where the run's container could not see it.
        """
        outputs = PurePosixPath(self.host("outputs"))
        given = PurePosixPath(self._resolved.profile.job.output_dir or run_id)
        host = outputs / given
        if ".." in host.parts or outputs not in host.parents:
            raise BeamSlurmError(
                f"job.output_dir {given} is not in site.paths.outputs",
                where=self._resolved.document.place(("job", "output_dir")),
                why=f"only {outputs} is mounted into the container",
                remedy=f"a name, or a folder in {outputs}",
            )
        inside = PurePosixPath(self.inside("outputs")) / host.relative_to(outputs)
        return str(host), str(inside)

    def image(self, name: str, what: str) -> str | None:
        """The site's image of that name, as its runtime takes it; None where hosts run bare.

        Raises:
            BeamSlurmError: it is spelled as only another runtime does.
        """
        if self.bare:
            return None
        site, key = self._resolved.profile.site, ("site", "images", name)
        found = self._missing.need(site.images.get(name), dotted(key), what)
        place = self._resolved.document.places.get(key, dotted(key))
        return images.spell(found, site.container, place)
