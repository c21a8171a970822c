#!/bin/bash
# The whole way once: a Slurm of four hosts, one submission, the run, the report. Nothing stays
# behind but the run folder below ./runs. Words given to it go to beam-slurm submit.
set -euo pipefail

finish() {
  beam-slurm report
  echo
  echo "Look around:  beam-slurm status   beam-slurm logs   beam-slurm submit --profile demo --dry-run"
}

if [[ $(id -u) != 0 ]] || ! command -v slurmctld >/dev/null; then
  echo "No root or no Slurm packages here: the demo runs on this machine alone, without Slurm."
  gpus=$({ nvidia-smi --list-gpus 2>/dev/null || true; } | wc -l)
  beam-slurm submit --profile demo --nodes 1 --set hardware.gpus_per_node="$((gpus > 1 ? gpus : 1))" \
    --local --wait "$@"
  finish
  exit
fi

name=demo-$$
down() { beam-slurm cluster down --name "$name"; }
trap down EXIT
beam-slurm cluster up --name "$name" --hosts 4 --gpus 8 --gpu-type h200
eval "$(beam-slurm cluster env --name "$name")"
beam-slurm submit --profile demo --wait "$@"
finish
