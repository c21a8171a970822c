"""What a run says of itself: in tables, in lines, in a figure. Reads files and Slurm, no more."""
