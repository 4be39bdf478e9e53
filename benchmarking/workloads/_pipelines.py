"""Pipelines of diffusers: folders of several models, of which the denoiser is the one that is run."""

from __future__ import annotations

from pathlib import Path

from benchmarking.workloads._config import CONFIG_NAME

INDEX_NAME = "model_index.json"
"""What a pipeline has in place of config.json."""
DENOISERS = ("unet", "transformer")
"""The subfolder of the model that runs at every step, by the names diffusers gives it."""

CONFIG_FILES = (CONFIG_NAME, INDEX_NAME, *(f"{name}/{CONFIG_NAME}" for name in DENOISERS))
"""Paths that say what a model is, in a model's folder and in a pipeline's."""


def model_folder(folder: Path) -> Path:
    """The folder of the model that is run: of a pipeline its denoiser's, else `folder` itself."""
    if has_config(folder) or not (folder / INDEX_NAME).is_file():
        return folder
    return next((folder / name for name in DENOISERS if has_config(folder / name)), folder)


def has_config(folder: Path) -> bool:
    """Whether there is a config.json in the folder itself."""
    return (folder / CONFIG_NAME).is_file()
