"""The run over time: is anything evaluated and saved, what does the time limit cost, what a run."""

from __future__ import annotations

from beam_slurm.plan.result import Figure, Findings, note, warning
from beam_slurm.plan.storage import saved
from beam_slurm.schema import Profile


def check(profile: Profile) -> Findings:
    """Sense of the intervals."""
    recipe = profile.recipe
    if recipe.evaluation.every > recipe.steps:
        yield note(
            "evaluation",
            f"recipe.evaluation.every is {recipe.evaluation.every}, recipe.steps {recipe.steps}: "
            "the trained model is never evaluated",
            f"--set recipe.evaluation.every={recipe.steps} or less",
        )
    checkpoint = recipe.checkpoint
    if not checkpoint.enabled:
        yield note(
            "checkpoint",
            "recipe.checkpoint.enabled is false: nothing is saved, and a run that ends early is "
            "lost",
            "--set recipe.checkpoint.enabled=true",
        )
    elif not saved(profile):
        yield warning(
            "checkpoint",
            f"recipe.checkpoint.every is {checkpoint.every}, recipe.steps {recipe.steps}: nothing "
            "is saved",
            f"--set recipe.checkpoint.every={recipe.steps} or less",
        )
    elif profile.framework.name == "skyrl":  # the others can be asked to save
        lost = min(checkpoint.every, recipe.steps)
        yield note(
            "time-limit",
            f"at the limit of {profile.job.time}, up to {lost} of {recipe.steps} steps since the "
            f"last checkpoint are lost: SkyRL saves at its interval only",
            "--set recipe.checkpoint.every=... by that, and job.lead_s longer than one interval",
        )


def figures(profile: Profile, limit_minutes: int) -> list[Figure]:
    """GPU-hours of the whole time limit, and their price where the site has said one."""
    hardware, site = profile.hardware, profile.site
    gpus = (hardware.nodes + profile.job.spares) * hardware.gpus_per_node
    hours = gpus * limit_minutes / 60
    whole = profile.job.total_time
    time = f"job.total_time {whole}" if whole else f"job.time {profile.job.time}"
    how = f"{gpus} GPUs × {time}, at most"
    found = [Figure("GPU-hours", hours, None, "h", how)]
    if site.price_per_gpu_hour:
        price = f"{site.price_per_gpu_hour:g} {site.currency} for each"
        found.append(Figure("price", hours * site.price_per_gpu_hour, None, site.currency, price))
    return found
