"""Small models saved to folders, a cache of the hub's shape, and a hub on this machine."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

SHA = "c0ffee" + "0" * 34


@pytest.fixture
def save_tiny() -> Callable[..., Path]:
    """A function that saves the catalog's tiny model, as transformers makes it, into a folder."""

    def save(folder: Path, name: str = "tiny-bert", **options: Any) -> Path:
        import transformers
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING

        from benchmarking.workloads.support import families

        entry = families.catalog_entry(name)
        assert entry is not None
        model_class = options.pop("model_class", entry.model_class)
        config = CONFIG_MAPPING[entry.config["model_type"]].from_dict(dict(entry.config))
        getattr(transformers, model_class)(config).save_pretrained(folder, **options)
        return folder

    return save


class SmallModel:
    """A family's model of a configuration, with weights large enough that it does not repeat itself forever."""

    def __init__(
        self,
        plugin: Any,
        config: dict[str, Any],
        task: str | None = None,
        dtype: str = "float32",
        deviation: float = 0.2,
    ) -> None:
        import torch

        from benchmarking.core.records import Workload, canonical_hash
        from benchmarking.workloads.support.weights import fill, skip_random_initialisation

        self.plugin = plugin
        self.workload = Workload(
            model_id=config["model_type"],
            family=plugin.name,
            task=task or plugin.tasks_of(config)[0],
            source="local",
            config=config,
            config_hash=canonical_hash(config),
            weights="random",
            max_sequence_length=plugin.max_sequence_length(config),
        )
        attention = plugin.default_attention(config)
        with skip_random_initialisation():
            self.model = plugin.build(self.workload, dtype=getattr(torch, dtype), attention=attention)
        fill(self.model, seed=1, standard_deviation=deviation)

    def inputs(self, point: Any) -> dict[str, Any]:
        import torch

        assert self.plugin.check(self.workload, point) is None
        return {name: torch.from_numpy(a) for name, a in self.plugin.inputs(self.workload, point, 0).items()}

    def operation(self, point: Any, **mode: Any) -> Any:
        return self.plugin.torch_operation(self.model, self.workload, point, self.inputs(point), mode)

    def run(self, operation: Any, marks: list[str] | None = None) -> Any:
        import torch

        operation.reset()
        with torch.inference_mode():
            return operation.run((marks if marks is not None else []).append)


@pytest.fixture(scope="session")
def small_model() -> type[SmallModel]:
    """The class of small models of a family: SmallModel(plugin, config, task, dtype, deviation)."""
    return SmallModel


@pytest.fixture
def cached_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Path]:
    """A function that creates the folder of a model's snapshot `main` in an empty hub cache."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))

    def make(name: str) -> Path:
        root = tmp_path / "hf" / "hub" / f"models--{name.replace('/', '--')}"
        (root / "refs").mkdir(parents=True)
        (root / "refs" / "main").write_text(SHA)
        snapshot = root / "snapshots" / SHA
        snapshot.mkdir(parents=True)
        return snapshot

    return make


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, dict[str, bytes]]]:
    """A hub on this machine: put files into it as hub[model][file name] = content."""
    models: dict[str, dict[str, bytes]] = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = _answer(models, self.path)
            self.send_response(200 if answer is not None else 404)
            content, headers = answer if answer is not None else (b"", {"X-Error-Code": "RepoNotFound"})
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        do_HEAD = do_GET  # noqa: N815 - the base class's naming

        def log_message(self, format: str, *args: Any) -> None:
            return None

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.delenv("HF_HUB_OFFLINE")
    yield models
    server.shutdown()
    server.server_close()


def _answer(models: dict[str, dict[str, bytes]], path: str) -> tuple[bytes, dict[str, str]] | None:
    """The content and headers of the hub's answer, or None for a model or file it does not have."""
    for model, files in models.items():
        if path.startswith(f"/api/models/{model}/tree/"):
            entries = [{"type": "file", "path": n, "size": len(c), "oid": _oid(n)} for n, c in files.items()]
            return json.dumps(entries).encode(), {"Content-Type": "application/json"}
        if path.startswith(f"/api/models/{model}"):
            siblings = [{"rfilename": name} for name in files]
            data = {"id": model, "modelId": model, "sha": SHA, "siblings": siblings, "private": False}
            return json.dumps(data).encode(), {"Content-Type": "application/json"}
        resolved = path.removeprefix(f"/{model}/resolve/")
        name = resolved.split("/", 1)[-1]  # after the commit; a file in a subfolder has more of them
        if resolved != path and name in files:
            return files[name], {"ETag": f'"{_oid(name)}"', "X-Repo-Commit": SHA}
    return None


def _oid(name: str) -> str:
    return name.encode().hex()[:40].ljust(40, "0")
