"""What runs say of themselves: tables, lines, a figure, a page. Reads files and Slurm, no more."""
