"""Sweeps: one profile at many points, each a whole run of its own, submitted as arrays.

    sweep.yaml ── file ──▶ points ── submission ──▶ folder ── arrays ──▶ task: script.sbatch
                                                      │
                             view, figure ◀── results ◀── states

A point's run folder is like any other's, so that all commands work on it. What a sweep adds is
which values each point has, which array it is a task of, and what comes out best.

``submission`` takes points that were made elsewhere, too: ``posttraining.several`` makes one of
each checkpoint that is to be evaluated.
"""
