#!/bin/bash
# A stand-in for SkyRL's launch script of this recipe, which needs a GPU cluster.
# The first word is how many nodes the recipe is for; 0 where it is published for two sizes.
set -eu
exec python "$(dirname "$0")/stand_in.py" 8 "$0" "$@"
