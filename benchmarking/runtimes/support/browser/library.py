"""ONNX Runtime Web: the files of the npm package that a page loads, fetched once and stored as a build.

The package's hash is pinned with its version: different bytes from a registry, mirror or cache are rejected.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import tarfile
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path, PurePosixPath

from benchmarking.builds.store import Build, BuildKey, BuildStore
from benchmarking.core.child_process import program, run_program
from benchmarking.core.errors import BenchhouseError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import Json, Rebuild
from benchmarking.core.temporary import temporary_folder

PACKAGE = "onnxruntime-web"
VERSION = "1.30.0"
INTEGRITY = "sha512-q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ=="
"""Hash of the package's tarball, as published by the npm registry (Subresource Integrity)."""

KIND = "ort-web"
FOLDER_VARIABLE = "BENCHHOUSE_ORT_WEB_DIR"
"""Environment variable with a folder that is or contains the package's dist/, used instead of the registry."""
REGISTRY = "https://registry.npmjs.org/"
REGISTRY_VARIABLES = ("npm_config_registry", "NPM_CONFIG_REGISTRY")
TIMEOUT_S = 300.0
MAX_TARBALL_BYTES = 256 << 20
"""Size limit of the tarball, which has about 30 MB."""
SUFFIXES = (".bundle.min.mjs", ".wasm", ".asyncify.mjs", ".jsep.mjs", ".jspi.mjs", "-threaded.mjs")
"""Suffixes of the files in dist/ that pages load: bundles, WebAssembly and its glue code. The rest is the same code in
other forms, and source maps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """The files of ONNX Runtime Web, by name."""

    version: str
    folder: Path
    source: str
    """The npm package with its hash, or the folder given by the user."""

    def file(self, name: str) -> Path:
        """One of the files. Raises BenchhouseError if it is missing."""
        path = self.folder / name
        if not path.is_file():
            raise BenchhouseError(f"{self.folder} has no {name}: expected the dist/ of {PACKAGE} {VERSION}")
        return path

    def files(self) -> dict[str, Path]:
        """All files that a page may load, by name."""
        return {path.name: path for path in sorted(self.folder.iterdir()) if path.name.endswith(SUFFIXES)}


def library_key() -> BuildKey:
    """What the files depend on."""
    return BuildKey(kind=KIND, parts={"package": PACKAGE, "version": VERSION, "integrity": INTEGRITY})


def ensure_library(store: BuildStore, rebuild: Rebuild) -> Mapping[str, Json]:
    """Fetch the files if they are missing. Raises BenchhouseError if that fails."""
    if _configured_folder() is not None:
        library = find_library(store)
        return {"version": library.version, "source": library.source}

    def fetch(folder: Path) -> Mapping[str, Json]:
        npm = program("npm")
        tarball = _pack_with_npm(npm) if npm is not None else _download()
        return {"files": list[Json](unpack(tarball, folder))}

    build, is_new = store.get(library_key(), fetch, rebuild)
    return {"version": VERSION, "source": _source(), "is_new": is_new, "size_bytes": build.size_bytes}


def find_library(store: BuildStore) -> Library:
    """The files in the user's folder or in the store. Raises BenchhouseError if there are none."""
    configured = _configured_folder()
    if configured is not None:
        dist = configured / "dist" if (configured / "dist").is_dir() else configured
        if not dist.is_dir():
            raise BenchhouseError(f"{FOLDER_VARIABLE} names {configured}, which is not a folder")
        try:
            package = json.loads((dist.parent / "package.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            package = None
        version = str(package.get("version", "unknown")) if isinstance(package, dict) else "unknown"
        return Library(version=version, folder=dist, source=str(dist))
    build: Build | None = store.find(library_key())
    if build is None:
        raise BenchhouseError(f"{PACKAGE} {VERSION} is not in {store.root}: run once on wasm or webgpu to fetch it")
    return Library(version=VERSION, folder=store.folder(library_key()), source=_source())


def unpack(tarball: bytes, folder: Path) -> list[str]:
    """Unpack the files that pages load into a folder and return their names. Raises BenchhouseError for a checksum
    mismatch."""
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(tarball).digest()).decode()
    if integrity != INTEGRITY:
        raise BenchhouseError(f"checksum mismatch for {PACKAGE} {VERSION}: expected {INTEGRITY}, got {integrity}")
    names: list[str] = []
    with tarfile.open(fileobj=io.BytesIO(tarball), mode="r:gz") as archive:
        for member in archive:
            path = PurePosixPath(member.name)
            if str(path.parent) != "package/dist" or not path.name.endswith(SUFFIXES) or not member.isfile():
                continue
            content = archive.extractfile(member)
            assert content is not None
            (folder / path.name).write_bytes(content.read())
            names.append(path.name)
    return sorted(names)


def _pack_with_npm(npm: str) -> bytes:
    """The tarball from the registry, mirror or cache that the user's npm is configured for."""
    with temporary_folder("benchhouse-npm") as folder:
        command = [npm, "pack", f"{PACKAGE}@{VERSION}", "--pack-destination", str(folder), "--ignore-scripts"]
        done = run_program(command, limit_s=TIMEOUT_S, folder=folder)
        if done.exit_code is None:
            raise _fetch_error(f"npm pack took more than {TIMEOUT_S:g} s")
        packed = list(folder.glob("*.tgz"))
        if done.exit_code != 0 or len(packed) != 1:
            errors = [
                line for line in done.stderr.splitlines() if "error" in line.lower() and "log" not in line.lower()
            ]
            raise _fetch_error(f"npm pack: {errors[0].strip() if errors else f'exit code {done.exit_code}'}")
        return packed[0].read_bytes()


def _download() -> bytes:
    registry = next((os.environ[name] for name in REGISTRY_VARIABLES if os.environ.get(name)), REGISTRY)
    url = f"{registry.rstrip('/')}/{PACKAGE}/-/{PACKAGE}-{VERSION}.tgz"
    if not url.startswith(("https://", "http://")):
        raise _fetch_error(f"the registry {registry} is not an HTTP address")
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:  # noqa: S310 - a web address, see above
            content: bytes = response.read(MAX_TARBALL_BYTES + 1)
    except (OSError, HTTPException) as error:
        raise _fetch_error(f"{url}: {getattr(error, 'reason', error)}") from error
    if len(content) > MAX_TARBALL_BYTES:
        raise _fetch_error(f"{url} is larger than {MAX_TARBALL_BYTES >> 20} MiB")
    return content


def _fetch_error(why: str) -> BenchhouseError:
    return BenchhouseError(
        f"cannot fetch {PACKAGE} {VERSION} ({why}): set {FOLDER_VARIABLE} to a folder with its dist/, "
        "or run once where the npm registry is reachable"
    )


def _source() -> str:
    return f"npm:{PACKAGE}@{VERSION} {INTEGRITY}"


def _configured_folder() -> Path | None:
    path = os.environ.get(FOLDER_VARIABLE)
    return Path(path).expanduser() if path else None
