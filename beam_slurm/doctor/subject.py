"""What is examined: a profile on this site, or the site alone with the least that a run needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from beam_slurm import frameworks, job, profiles
from beam_slurm.discover import Cluster
from beam_slurm.doctor.checks import Check
from beam_slurm.errors import BeamSlurmError
from beam_slurm.frameworks.launch import Missing
from beam_slurm.node.checkpoint import EVALUATION
from beam_slurm.schema import Profile, Site
from beam_slurm.yamlfile import Key


@dataclass(frozen=True)
class Subject:
    """A profile on this site.

    Attributes:
        profile: the profile; the demo's, cut to one GPU, if only the site counts.
        request: None if there can be none.
        alone: whether only the site counts.
        model: folder of the model as this machine sees it; None if none is needed or known.
        datasets: the same of the problems.
    """

    profile: Profile
    request: job.JobRequest | None
    alone: bool
    model: Path | None = None
    datasets: Path | None = None

    @property
    def site(self) -> Site:
        """The site, all settings laid on it."""
        return self.profile.site

    @property
    def bare(self) -> bool:
        """Whether the run has no container."""
        container = self.site.container
        if self.alone:  # the demo has none, the runs after it do
            return container == "bare"
        return container == "bare" or self.profile.framework.name == "demo"

    def path(self, name: str) -> Path | None:
        """A folder of ``site.paths`` that matters here and is set."""
        if not self.alone and name not in (
            *frameworks.paths(self.profile.framework.name),
            "runs",
            "scratch",
        ):
            return None
        found = getattr(self.site.paths, name)
        return Path(found) if found else None

    @property
    def images(self) -> dict[str, str]:
        """The images that matter here."""
        if self.alone:
            return dict(self.site.images)
        names = (getattr(self.profile.framework, "image", None), EVALUATION)
        return {name: image for name, image in self.site.images.items() if name in names}


def make(
    profile: str | None,
    site: Path | None,
    settings: Sequence[tuple[Key, str]],
    cluster: Cluster | None,
) -> tuple[Subject, list[Check]]:
    """The subject, and a failed check for each thing that it still wants to be told.

    Raises:
        BeamSlurmError: the profile or the site file cannot be read.
    """
    file = site or profiles.site_file()
    resolved = profiles.resolve(profile or "demo", site=site, settings=settings)
    if profile is None:
        least = _least(resolved.profile.site, cluster)
        resolved = profiles.resolve("demo", site=site, settings=[*least, *settings])
    try:
        request = job.make_request(resolved)
        str(request)
    except BeamSlurmError as error:
        told = Check("request", "fail", error.what, error.why or "", error.remedy or "")
        return Subject(resolved.profile, None, profile is None), [told]
    if profile is None:
        models = resolved.profile.site.paths.models
        model, datasets = Path(models) / "Beam" if models else None, None
    else:
        unknown = Missing()
        found = frameworks.prepare(resolved, unknown)
        keys = [key for key, _ in unknown.items]
        model = _known(found.model, "site.paths.models" in keys)
        datasets = _known(found.datasets, {"site.paths.models", "site.paths.datasets"} & set(keys))
    where = f"in {file}" if file else "in a site file: beam-slurm init writes one"
    unsaid = [] if file else [Check("site file", "warn", "there is none", "", "beam-slurm init")]
    unsaid += [
        Check("site file", "fail", f"{key} is not set", what, f"say it {where}")
        for key, what in request.missing
    ]
    return Subject(resolved.profile, request, profile is None, model, datasets), unsaid


def _known(path: str | None, missing: object) -> Path | None:
    return Path(path) if path and not missing else None


def _least(site: Site, cluster: Cluster | None) -> list[tuple[Key, str]]:
    """One GPU of one node, of the kind that is here: whether this site works at all."""
    types = []
    if cluster:
        try:
            chosen = cluster.partition(site.partition)
        except BeamSlurmError:
            pass  # the check of the partition says so
        else:
            types = [gpu.type for node in cluster.nodes_of(chosen.name) for gpu in node.gpus]
    ours = [gpu for gpu, theirs in site.gpu_names.items() if theirs in types]
    gpu = next(iter([*ours, *site.gpu_names, *filter(None, types)]), "h200")
    wanted = {"gpu": gpu, "nodes": "1", "gpus_per_node": "1"}
    return [(("hardware", key), value) for key, value in wanted.items()]
