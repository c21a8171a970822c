"""What runs on the nodes: standard library only, Python 3.8+, shipped as one zipapp.

It imports nothing of the rest of beam-slurm; the rest imports nothing of it but ``pack``'s list.
"""
