"""One reader per framework; all give the same history."""

from beam_slurm.metrics.history import History
from beam_slurm.metrics.known import same_set
from beam_slurm.metrics.reader import Reader, not_read, reader
from beam_slurm.metrics.schema import Checkpoint, Evaluation, Step
from beam_slurm.metrics.series import METRICS, Metric, Series, find, series

__all__ = [
    "METRICS",
    "Checkpoint",
    "Evaluation",
    "History",
    "Metric",
    "Reader",
    "Series",
    "Step",
    "find",
    "not_read",
    "reader",
    "same_set",
    "series",
]
