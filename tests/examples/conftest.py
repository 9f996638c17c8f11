"""The server of tests/clients/lifecycle."""

import importlib.util
from pathlib import Path

_spec = importlib.util.spec_from_file_location(
    "lifecycle_conftest", Path(__file__).resolve().parents[1] / "clients/lifecycle/conftest.py"
)
lifecycle = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(lifecycle)
server = lifecycle.server
