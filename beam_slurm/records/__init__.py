"""What ran, so that weeks later somebody can say so and run it again.

A run folder holds the record of its run: ``manifest.json``, ``profile.yaml``, ``origins.json`` and
the script, written before the job is submitted, and the attempts, each written by its own nodes.
Nothing is written by two, and what the attempts know is read from them and never copied.
"""
