"""Services of a test session, and where the programs under test are (HOLDFAST_BUILD, default build/debug)."""
import os
import sys
import uuid

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, ROOT)

from tests.lib import stack  # noqa: E402


@pytest.fixture(scope="session")
def build():
    folder = os.environ.get("HOLDFAST_BUILD", os.path.join(ROOT, "build", "debug"))
    if not os.path.isdir(folder):
        pytest.fail(f"{folder} is not there: build first, or set HOLDFAST_BUILD")
    return folder


@pytest.fixture(scope="session")
def kafka():
    with stack.Kafka() as server:
        yield server


@pytest.fixture(scope="session")
def postgres():
    with stack.Postgres() as server:
        yield server


@pytest.fixture(scope="session")
def redis():
    with stack.Redis() as server:
        yield server


@pytest.fixture
def prefix():
    """Topic names of one test."""
    return f"t{uuid.uuid4().hex[:12]}."
