"""Settings for all tests."""

from __future__ import annotations

import os

# A browser shares the cores with the model: waiting threads must not spin. Read when torch is first imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
