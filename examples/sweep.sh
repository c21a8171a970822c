#!/bin/bash
# A whole sweep once: a Slurm of four hosts, the points two hosts each and two at a time, the table
# and the figure. Nothing stays behind but the sweep's folder below ./runs. Words given to it go to
# beam-slurm sweep.
set -euo pipefail

sweeps=$(dirname "$0")/sweeps

finish() {
  beam-slurm sweep results "$1" -o runs/sweep.png
  echo
  echo "Look around:  beam-slurm status   beam-slurm sweep --help   $1"
}

if [[ $(id -u) != 0 ]] || ! command -v slurmctld >/dev/null; then
  echo "No root or no Slurm packages here: the points run on this machine, one after the other."
  beam-slurm sweep "$sweeps/demo-here.yaml" --local --wait "$@"
  finish "$sweeps/demo-here.yaml"
  exit
fi

name=sweep-$$
down() { beam-slurm cluster down --name "$name"; }
trap down EXIT
beam-slurm cluster up --name "$name" --hosts 4 --gpus 8 --gpu-type h200
eval "$(beam-slurm cluster env --name "$name")"
beam-slurm sweep "$sweeps/demo.yaml" --wait "$@"
finish "$sweeps/demo.yaml"
