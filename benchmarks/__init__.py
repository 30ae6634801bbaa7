"""Measure umpteen beside its peers on the same matrices, in one run: ``python -m benchmarks.run``."""
