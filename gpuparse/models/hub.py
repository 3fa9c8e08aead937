"""Models from and to the Hugging Face Hub, by the library ``huggingface_hub``, which is imported when it is needed.

What comes from there may be anybody's. Only the files of a model are fetched, none that has code or pickled objects,
and they are read from a directory of plain files, by the checks that any model's directory gets.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpuparse.nn.build import PRETRAINED
from gpuparse.nn.saved import FILES
from gpuparse.system.files import open_file, read_json, write_json
from gpuparse.system.quote import shown

_WANTED = [*FILES, f"{PRETRAINED}/*"]
_NEVER = [f"*.{ending}" for ending in ("bin", "pt", "pth", "ckpt", "pkl", "pickle", "h5", "msgpack", "npz", "py", "so")]
_NAMES = ("name_or_path", "_name_or_path")  # of a pretrained encoder in its files


@contextmanager
def fetched(name: str, **options: Any) -> Iterator[Path]:
    """A directory with a model of the Hub, as long as it lasts; ``ValueError``, in one line, where there is none.

    Args:
        name: ``owner/name``.
        options: of ``huggingface_hub.snapshot_download``: revision, cache_dir, local_files_only, token.

    The library's cache keeps what was fetched, as links to files beside them; the directory has the files themselves
    (hard links, or copies where the system makes none).
    """
    hub = library("from_pretrained")
    try:
        cached = hub.snapshot_download(
            name, allow_patterns=_WANTED, ignore_patterns=_NEVER, library_name="gpuparse", **options
        )
    except Exception as error:  # the library's own, those of its transport, and what these wrap
        raise ValueError(f"{shown(name)}: {_reason(error, options)}") from None
    snapshot = Path(cached)
    # Where links can be made; a cache that others own cannot be written to.
    beside = snapshot.parent if os.access(snapshot.parent, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix=".gpuparse-", dir=beside, ignore_cleanup_errors=True) as directory:
        for pattern in _WANTED:
            for file in snapshot.glob(pattern if pattern in FILES else f"{PRETRAINED}/**/*"):
                if not file.is_dir():
                    _link(file, Path(directory, file.relative_to(snapshot)), inside=snapshot.parents[1])
        yield Path(directory)


def push(folder: Path, repo_id: str, *, token: Any, private: bool | None, branch: str | None, **options: Any) -> str:
    """Upload a model's directory in one commit, and say where that is; ``options`` are those of ``upload_folder``.

    The repository and the branch are made where they are not there. ``ValueError``, in one line, where it could not.
    """
    api = library("push_to_hub").HfApi(token=token, library_name="gpuparse")
    try:
        repo = api.create_repo(repo_id, private=private, repo_type="model", exist_ok=True).repo_id
        if branch is not None:
            api.create_branch(repo, branch=branch, exist_ok=True)
        # An encoder's files that the model before this one had would be taken for this one's.
        found = api.upload_folder(
            repo_id=repo, folder_path=folder, revision=branch, delete_patterns=[f"{PRETRAINED}/*"], **options
        )
    except Exception as error:
        raise ValueError(f"{shown(repo_id)}: {_reason(error, {'token': token})}") from None
    return str(found.pr_url or found.commit_url)


def without_paths(folder: Path) -> None:
    """Take from an encoder's files the directory that it came from, which is nobody else's business."""
    for file in (folder / PRETRAINED).glob("*.json"):
        values = read_json(file, inside=folder)
        if isinstance(values, dict):
            known = {key: values[key] for key in _NAMES if isinstance(values.get(key), str)}
            changed = {key: bare_name(value) for key, value in known.items()}
            if changed != known:
                write_json(file, values | changed)


def bare_name(path: str) -> str:
    """The last part of a path; ``owner/name`` and other names that are no place on this machine stay."""
    return os.path.basename(os.path.normpath(path)) if os.path.isabs(path) or os.path.exists(path) else path


def library(method: str) -> Any:
    """The library; ``ValueError``, in one line, where it is not installed."""
    try:
        import huggingface_hub
    except ImportError:
        raise ValueError(f"{method}: huggingface_hub is not installed; pip install 'gpuparse[hub]'") from None
    return huggingface_hub


def _link(file: Path, target: Path, inside: Path) -> None:
    """The file that a link of the cache leads to, under another name."""
    with open_file(file, inside):  # a regular one, of this model
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(os.path.realpath(file), target)
        except OSError:
            shutil.copyfile(file, target)


def _reason(error: Exception, options: dict[str, Any]) -> str:
    """Why a model could not be fetched or pushed, and what to do."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "HFValidationError" in kinds:
        return "no such directory, and no name of the Hugging Face Hub, which has the form owner/name"
    if "GatedRepoError" in kinds:
        return "a gated model of the Hugging Face Hub; ask for access there, and give token=..."
    if "RepositoryNotFoundError" in kinds:
        return "no such directory, and no such model on the Hugging Face Hub, or a private one; that wants token=..."
    if "RevisionNotFoundError" in kinds:
        return f"no revision {shown(str(options.get('revision')))} of it on the Hugging Face Hub"
    if "LocalEntryNotFoundError" in kinds:
        if options.get("local_files_only") or "outgoing traffic has been disabled" in str(error):
            return "no such directory, and not whole in the cache of the Hugging Face Hub; fetch it once while online"
        return "no such directory, not in the cache, and the Hugging Face Hub cannot be reached; look at the connection"
    return f"the Hugging Face Hub says: {shown(str(error)) or type(error).__name__}"
