"""What runs in the training image once training is over: conversion and evaluation.

Shipped as one zipapp like ``node``, but for the image's Python: 3.10 or newer. It imports nothing
of the rest of beam-slurm, and torch, transformers, vLLM and the like only where they are used: the
command line calls the pure modules too, so that bad input is found before any GPU is taken.
"""
