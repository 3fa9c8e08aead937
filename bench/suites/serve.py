"""`gpuparse serve`: words a second for many clients against one, and how long a click on the page takes."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from bench.bars import Bar, none_of
from bench.commands import COMMAND, failure
from bench.models import treebank_file
from bench.output import LOG, Problem, show
from bench.registry import TREEBANKS, Args, Measured, Option, Suite, at_least, seconds, threads, whole
from gpuparse.data.conllu import read_conllu
from gpuparse.data.sentence import Sentence

HEADERS = {"Content-Type": "application/json"}
DRAWN = """async ([word, head]) => {
  const at = (number) => document.querySelector(`#box .w[data-i="${number}"]`);
  const press = (node) => node.dispatchEvent(new MouseEvent('click', { bubbles: true }));
  const box = document.getElementById('box'), begun = performance.now();
  press(at(word));
  press(at(head));
  while (box.classList.contains('busy')) await new Promise((done) => setTimeout(done, 0));
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
  return performance.now() - begun;
}"""
OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]


class Load(NamedTuple):
    """What clients got in a time."""

    clients: int
    seconds: float
    requests: int
    words: int
    failures: int
    latencies: list[float]

    @property
    def words_per_second(self) -> float:
        return self.words / self.seconds


@contextmanager
def serving(args: Args) -> Iterator[tuple[str, int]]:
    """The host and the port of a server of the model."""
    if args.model is None:
        raise Problem("--model DIR: the directory of a trained parser", 2)
    program = [*COMMAND, "serve", str(args.model), "--port", "0", "--threads", str(args.threads)]
    process = subprocess.Popen(program, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        said: list[str] = []
        for line in process.stderr:
            said.append(line)
            if found := re.search(r"http://([\d.]+):(\d+)", line):
                yield found[1], int(found[2])
                break
        else:
            raise failure("serve", process.wait(), "".join(said))
    finally:
        process.terminate()
        process.wait()
        process.stderr.close()


def sentences(args: Args, least: int = 1, most: int = 100) -> list[Sentence]:
    found = [one for one in read_conllu(treebank_file(args, args.treebank)) if least <= len(one) <= most]
    if not found:
        raise Problem(f"{args.treebank}: no sentence of {least} to {most} words")
    return found


def as_given(one: Sentence) -> dict[str, Any]:
    return {"words": one.words, "upos": one.upos, "feats": one.feats}


def load(address: tuple[str, int], some: Sequence[Sentence], clients: int, duration: float, seed: int) -> Load:
    """Clients that ask for a sentence each, again and again."""
    bodies = [(json.dumps({"sentences": [as_given(one)]}), len(one)) for one in some]
    end = time.perf_counter() + duration
    rows: list[tuple[int, int, int, list[float]]] = []

    def client(number: int) -> None:
        random, connection = Random(f"{seed} {number}"), http.client.HTTPConnection(*address, timeout=60)
        requests = words = failures = 0
        latencies = []
        while (begun := time.perf_counter()) < end:
            body, count = random.choice(bodies)
            requests += 1
            try:
                connection.request("POST", "/api/parse", body, HEADERS)
                answer = connection.getresponse()
                right = answer.status == 200 and b'"heads":[' in answer.read()
            except (OSError, http.client.HTTPException):
                connection.close()
                right = False
            failures += not right
            words += count * right
            latencies.append(time.perf_counter() - begun)
        connection.close()
        rows.append((requests, words, failures, latencies))

    workers = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    begun = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    spent = time.perf_counter() - begun
    requests, words, failures = (sum(counts) for counts in zip(*(row[:3] for row in rows), strict=True))
    return Load(clients, spent, requests, words, failures, sorted(1000 * x for row in rows for x in row[3]))


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def clients(args: Args) -> Measured:
    """One client, then many, each for the same time."""
    some, found = sentences(args), []
    with serving(args) as address:
        load(address, some, 1, 2.0, args.seed)  # the first requests find kernels and caches cold
        for count in (1, args.clients):
            LOG.print(f"{count} clients, {args.seconds:g} s")
            found.append(load(address, some, count, args.seconds, args.seed))
        connection = http.client.HTTPConnection(*address)
        connection.request("GET", "/api/health")
        health = json.loads(connection.getresponse().read())
        connection.close()
    rows = [
        (
            str(one.clients),
            f"{one.requests:,}",
            f"{one.words_per_second:,.0f}",
            f"{statistics.median(one.latencies):.1f}",
            f"{percentile(one.latencies, 0.95):.1f}",
            str(one.failures),
        )
        for one in found
    ]
    columns = ("clients", ">requests", ">words/s", ">median, ms", ">95 %, ms", ">failures")
    show(f"A sentence a request, {args.seconds:g} s each, {args.threads} threads", columns, rows)
    first, many = found
    ratio = many.words_per_second / first.words_per_second
    bars = [
        none_of(f"failures of {args.clients} clients", many.failures + first.failures),
        Bar(f"words/s of {args.clients} clients over one", ratio, 3.0, unit="×"),
    ]
    shown = [{**one._asdict(), "latencies": len(one.latencies)} for one in found]
    return Measured({"loads": shown, "health": health}, bars)


def click(args: Args) -> Measured:
    """Clicks on sentences of about 40 words: asked for by HTTP, and in a browser until the answer is drawn."""
    some = sentences(args, 38, 42)[: args.sentences]
    with serving(args) as address:
        asked = _asked(address, some, args)
        drawn = _drawn(address, some, args)
    rows = [
        (name, str(len(times)), f"{statistics.median(times):.1f}", f"{percentile(times, 0.95):.1f}")
        for name, times in (("answered", asked), ("drawn in Chromium", drawn))
        if times
    ]
    columns = ("a click", ">clicks", ">median, ms", ">95 %, ms")
    show(f"Clicks on {len(some)} sentences of 38 to 42 words, {args.threads} threads", columns, rows)
    name = "a click until it is drawn, 95 %" if drawn else "a click until it is answered, 95 %"
    bars = [Bar(name, percentile(drawn or asked, 0.95), 100.0, 40.0, most=True, unit=" ms")]
    return Measured({"answered": asked, "drawn": drawn}, bars)


def _asked(address: tuple[str, int], some: Sequence[Sentence], args: Args) -> list[float]:
    """What the page asks for."""
    random, times = Random(args.seed), []
    connection = http.client.HTTPConnection(*address, timeout=60)
    wanted = {"svg": True, "marginals": True, "with_conllu": True}
    for one in some:
        for number in range(args.clicks + 1):
            word, head = random.sample(range(1, len(one) + 1), 2)
            required = [[head, word]] if number else []
            body = json.dumps({"sentences": [{"conllu": one.text, "required": required}], **wanted})
            begun = time.perf_counter()
            connection.request("POST", "/api/parse", body, HEADERS)
            answer = connection.getresponse()
            json.loads(answer.read())
            if answer.status != 200:
                raise Problem(f"a click was answered with {answer.status}")
            if number:
                times.append(1000 * (time.perf_counter() - begun))
    connection.close()
    return times


def _drawn(address: tuple[str, int], some: Sequence[Sentence], args: Args) -> list[float]:
    """The same in a real browser; nothing where there is none."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return []
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        return []
    random, times = Random(args.seed), []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=OPTIONS)
        page = browser.new_page()
        page.goto("http://{}:{}".format(*address))
        for one in some:
            page.click("#open")
            page.fill("#pasted", one.text)
            page.click("#replace")
            while page.evaluate("document.querySelectorAll('#box .pad').length") != len(one):
                page.wait_for_timeout(50)
            page.wait_for_timeout(300)  # for the best trees, which are asked for afterwards
            for _ in range(args.clicks):
                word, head = random.sample(range(1, len(one) + 1), 2)
                times.append(page.evaluate(DRAWN, [word, head]))
                page.wait_for_timeout(150)
                page.keyboard.press("u")
                page.wait_for_timeout(150)
        browser.close()
    return times


SUITE = Suite(
    "serve",
    "gpuparse serve: words a second for 32 clients against one, failures; the time of a click on 40 words",
    {"clients": clients, "click": click},
    [
        TREEBANKS,
        Option("model", "a trained parser", kind=Path),
        Option("treebank", "whose sentences are asked for", "en_ewt-ud-dev.conllu"),
        Option("clients", "at a time", 32, whole, trial=True),
        Option("seconds", "of each load", 60.0, seconds, trial=True),
        Option("sentences", "that are clicked on", 20, whole, trial=True),
        Option("clicks", "on each", 5, whole, trial=True),
        Option("seed", "of sentences and clicks", 0, at_least(0)),
        threads(),
    ],
)
