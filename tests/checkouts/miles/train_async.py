"""A stand-in for Miles' asynchronous trainer, which needs a GPU cluster: as train.py."""

import runpy
from pathlib import Path

runpy.run_path(str(Path(__file__).with_name("train.py")), run_name="__main__")
