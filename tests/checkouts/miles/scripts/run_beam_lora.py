"""A stand-in for Miles' launcher of adapters, which needs a GPU cluster: as run_beam.py."""

from run_beam import main

main()
