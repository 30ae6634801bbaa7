"""The specification: plain numpy, slow, obviously right. Every kernel is tested against its twin here."""

from __future__ import annotations

import numpy as np
