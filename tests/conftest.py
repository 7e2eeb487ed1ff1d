"""Settings for all tests."""

from __future__ import annotations

import os
from pathlib import Path

# A browser shares the cores with the model, and threads that spin while they wait slow both many times over.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Triton decides when it is first imported, by whichever test comes first, whether its kernels are interpreted.
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")

from hypothesis import settings  # after the environment is set

# How long an example takes says something about the machine, not about the code.
settings.register_profile("agentkv", deadline=None)
settings.load_profile("agentkv")
