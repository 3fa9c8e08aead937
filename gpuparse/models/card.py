"""The card of a model on the Hugging Face Hub: what it is, how good, and how it is used."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpuparse.config import Config
from gpuparse.models.hub import bare_name, library
from gpuparse.system.quote import shown


def public_config(config: Config) -> Config:
    """The same settings with the names of files alone: their directories are nobody else's business."""
    data = replace(config.data, train=os.path.basename(config.data.train), dev=os.path.basename(config.data.dev))
    return replace(config, data=data, scorer=replace(config.scorer, pretrained=bare_name(config.scorer.pretrained)))


_FIGURES = {"dev_uas": "UAS", "dev_las": "LAS", "dev_accuracy": "accuracy"}
_MOST = 300  # labels that are listed


def model_card(
    name: str,
    config: Config,
    *,
    labels: list[str],
    reads: list[str],
    weights: int,
    results: Mapping[str, Any],
    language: str | list[str] | None,
    license: str | None,
) -> str:
    """The text of ``README.md``: what the Hub reads of it, in YAML, then what people read, in Markdown.

    Args:
        name: of the model on the Hub.
        config: as it may be seen, see ``public_config``.
        reads: the columns that it reads.
        weights: how many numbers it has.
        results: of training; what is no figure in them is left out.
    """
    hub = library("card")
    kind, data = ("parser", "dependency parsing") if config.task == "parse" else ("tagger", "part-of-speech tagging")
    figures = {
        title: 100 * float(results[key])
        for key, title in _FIGURES.items()
        if isinstance(results.get(key), (int, float)) and 0 <= results[key] <= 1
    }
    dev = config.data.dev or "development data"
    short = name.rpartition("/")[2]
    about = hub.ModelCardData(
        model_name=short,
        language=language,
        license=license,
        library_name="gpuparse",
        pipeline_tag="token-classification",
        tags=["gpuparse", data.replace(" ", "-")],
        eval_results=[
            hub.EvalResult(
                task_type="token-classification",
                task_name=data,
                dataset_type="treebank",
                dataset_name=dev,
                metric_type=title.lower(),
                metric_name=title,
                metric_value=round(value, 2),
            )
            for title, value in figures.items()
        ]
        or None,
    )
    lines = ["---", about.to_yaml().strip(), "---", "", f"# {_plain(short)}", ""]
    lines += [f"A model of gpuparse for {data}.", "", "## Figures", ""]
    if figures:
        lines += [f"| on {_plain(dev)} | % |", "|---|--:|"]
        lines += [f"| {title} | {value:.2f} |" for title, value in figures.items()]
        lines += ["", "As training counted them, with gold words and gold tags."]
    else:
        lines += ["It was trained without development data; nobody has said how good it is."]
    lines += [
        "",
        "## Use",
        "",
        "```",
        "pip install 'gpuparse[hub]'",
        "```",
        "",
        "```python",
        "import gpuparse as gp",
        "",
    ]
    lines += [f'{kind} = gp.{kind.capitalize()}.from_pretrained("{name}")', _USES[kind], "```", ""]
    lines += [_reading(reads), "", "## What it is", ""]
    lines += [f"- {weights:,} weights, in safetensors; nothing in the model is run when it is loaded."]
    lines += [f"- Trained on {_plain(config.data.train or 'the artificial treebank of gpuparse')}."]
    listed = ", ".join(f"`{_plain(label)}`" for label in labels[:_MOST]) + (", …" if len(labels) > _MOST else "")
    lines += [f"- {len(labels):,} {'labels' if config.task == 'parse' else 'tags'}: {listed}"]
    lines += ["", "## Settings", "", "~~~~toml", config.to_toml().strip(), "~~~~", ""]
    return "\n".join(lines)


_USES = {
    "parser": '(tree,) = parser.parse([["We", "saw", "it"]])\nprint(tree.heads, tree.deprels)',
    "tagger": '(sentence,) = tagger.tag([["We", "saw", "it"]])\nprint(sentence.text)',
}


def _reading(columns: list[str]) -> str:
    if not columns:
        return "It reads words alone."
    named = " and ".join(column.upper() for column in columns)
    return f"It reads words with {named}, as CoNLL-U has them; words that come without are parsed less well."


def _plain(text: str) -> str:
    """A name within a line of Markdown."""
    return shown(text).replace("`", "'").replace("|", "/").replace("<", "‹").replace("[", "(").replace("]", ")")
