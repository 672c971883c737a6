"""The package and stubs of the contract share the name `palimpsest`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("first", [True, False])
def test_stubs_can_be_imported_beside_the_package(tmp_path: Path, first: bool) -> None:
    stubs = tmp_path / "palimpsest" / "context" / "v1"
    stubs.mkdir(parents=True)
    (stubs / "pb2.py").write_text("NAME = 'stubs'")
    folders = [str(tmp_path), str(Path(__file__).parent.parent / "src")]
    path = os.pathsep.join(folders if first else reversed(folders))
    program = "from palimpsest import Palimpsest\nfrom palimpsest.context.v1 import pb2\nprint(pb2.NAME)"
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("stubs\n", "")
