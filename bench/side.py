"""One side of a comparison of two checkouts: decodes batches when it is told to, and says how long that took.

Run by bench/certificates.py in the directory of a checkout, whose gpuparse and bench modules it uses. Each line of its
input is a request, a JSON object, and so is each line of its output.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path[:1] = [str(Path.cwd()), str(Path.cwd() / "bench")]

import torch  # noqa: E402
from ppc_models import scored  # noqa: E402

import gpuparse as gp  # noqa: E402


def main() -> None:
    torch.set_num_threads(1)
    begin = json.loads(sys.stdin.readline())
    paths = Path(begin.pop("directory")), Path(begin.pop("models"))
    found = [batch.scores for batch in scored(begin.pop("name"), begin.pop("kind"), *paths, **begin)]
    _answer({"batches": len(found), "gpuparse": gp.__file__})
    for line in sys.stdin:
        asked = json.loads(line)
        scores = found[asked["batch"]]
        parts = {name: getattr(scores, name) for name in ("grandparents", "siblings")}
        parts = {name: None if x is None else x.to(x.device) for name, x in parts.items()}  # nothing scored yet
        fresh = gp.Scores(scores.arcs, scores.lengths, **parts, validate_args=False)
        begun = time.perf_counter()
        parse = gp.decode(fresh, asked["method"], **asked["options"])
        seconds = time.perf_counter() - begun
        _answer({"seconds": seconds, "certified": int(parse.certified.sum()), "sentences": len(parse.heads)})


def _answer(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main()
