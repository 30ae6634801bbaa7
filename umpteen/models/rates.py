"""How fast a machine works: the rates that estimates and plans divide work by."""

from typing import NamedTuple


class Rates(NamedTuple):
    """Seconds of one core for a unit of work, operations per second of devices, bytes per second of disk and network.

    The defaults are those of one core of a 2024 server processor, an NVMe disk and a network of 10 Gbit/s.
    """

    character: float = 3e-8  # of a text that becomes a tf-idf row and tokens
    clustered: float = 1.5e-7  # a feature of a label that is clustered
    label: float = 2.6e-6  # a label in each tree, whether or not a row has it
    visit: float = 5e-9  # a feature of a row for sixteen labels, until the solver stops
    weight: float = 2.4e-7  # a weight that is kept, until it is packed for the search
    step: float = 0.01  # of an optimiser, at least, on any device
    flops: dict[str, float] = {"cpu": 5e10, "mps": 2e12, "cuda": 1.2e14}  # noqa: RUF012
    disk: float = 5e8
    network: float = 1.2e9


TYPICAL = Rates()
