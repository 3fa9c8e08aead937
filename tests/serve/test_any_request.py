"""Requests at random from the description of the API: none is answered with 500, and answers are as described."""

from __future__ import annotations

from collections import Counter

import pytest

schemathesis = pytest.importorskip("schemathesis")

from hypothesis import HealthCheck, Phase, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from schemathesis import checks  # noqa: E402

from gpuparse.serve.app import create_app  # noqa: E402
from tests.serve.serving import SMALL, tiny_pipeline  # noqa: E402

APP = create_app(tiny_pipeline(), SMALL, "tiny")
SCHEMA = schemathesis.openapi.from_asgi("/api/openapi.json", APP)
AS_DESCRIBED = {f"{what}_conformance" for what in ("status_code", "content_type", "response_schema")}
CHECKED = [checks.not_a_server_error, *(one for one in checks.CHECKS.get_all() if one.__name__ in AS_DESCRIBED)]
OPERATIONS = [result.ok() for result in SCHEMA.get_all_operations()]
NAMES = [f"{operation.method.upper()} {operation.path}" for operation in OPERATIONS]


def at_random(operation, count):
    """Requests that are as described, and others."""
    kinds = [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE]
    cases = st.one_of([operation.as_strategy(generation_mode=kind) for kind in kinds])
    relaxed = [HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.data_too_large]
    seen: Counter[int] = Counter()

    random = {"phases": [Phase.generate], "database": None, "derandomize": True, "deadline": None}

    @settings(max_examples=count, suppress_health_check=relaxed, **random)
    @given(case=cases)
    def run(case):
        seen[case.call_and_validate(checks=CHECKED).status_code] += 1

    run()
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS, ids=NAMES)
def test_a_few_of_each(operation):
    seen = at_random(operation, 40)
    assert seen and max(seen) < 500


@pytest.mark.exhaustive
def test_ten_thousand():
    seen: Counter[int] = Counter()
    for operation in OPERATIONS:
        seen += at_random(operation, 1000 if operation.method == "get" else 1800)
    print(dict(seen))
    assert seen.total() >= 10_000 and max(seen) < 500 and seen[200] > 100
