"""Diffusion models: from noise to an image in many passes through a denoiser, a UNet or a transformer (DiT).

A call is the whole denoising loop of the point's steps (`support.denoising`), with the denoiser only: no text encoder
(the prompt's embeddings are seeded numbers of CLIP's shape, 77 tokens) and no VAE (the sides of the latents are an
eighth of `image_size`). There is no classifier-free guidance, so each step and image takes one pass instead of two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarking.core.contracts import FamilyOperation
from benchmarking.core.errors import BenchhouseError, UnsupportedError, first_line
from benchmarking.core.lazy_modules import np, torch
from benchmarking.core.model_contracts import TORCH_EXPORTER, QualityKind, Recipe, WorkloadFamily
from benchmarking.core.records import Family, Json, Point, Scalar, Workload
from benchmarking.workloads.support import denoising
from benchmarking.workloads.support.configuration import integer, library_path
from benchmarking.workloads.support.denoising import PIXELS_PER_LATENT, Denoiser, DenoisingLoop, NoiseSchedule
from benchmarking.workloads.support.families import wrong_axes
from benchmarking.workloads.support.generation import floats_as
from benchmarking.workloads.support.transformers_models import quiet
from benchmarking.workloads.support.weights import skip_random_initialisation

AXES = ("image_size", "steps")
DEFAULT_IMAGE_SIZE = 512
"""Default if the configuration has none."""
DEFAULT_STEPS = (20,)

PROMPT_TOKENS = 77
"""Length of the prompt's embeddings, to which CLIP's text encoder pads every prompt."""
TIME_IDS = 6
"""SDXL's sizes: original height and width, cut from the top and left, wanted height and width."""

STABLE_DIFFUSION = NoiseSchedule(
    beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", steps_offset=1, set_alpha_to_one=False
)
DIT = NoiseSchedule(beta_start=0.0001, beta_end=0.02, beta_schedule="linear", steps_offset=0, set_alpha_to_one=True)
"""The published schedules. They do not affect the cost of a step."""


class Diffusion(WorkloadFamily):
    """Stable Diffusion's UNets (1, 2 and XL), and DiT. A call has no tokens, and attention is always torch's
    scaled-dot-product attention."""

    name: Family = "diffusion"
    rank = 7
    unit = "images"
    can_split_batch = False
    """No: the latents of a batch share their step."""
    model_types = frozenset({denoising.UNET, denoising.DIT, denoising.OLD_TRANSFORMER})
    quality: Mapping[str, QualityKind] = {"text-to-image": "latents", "unconditional-image-generation": "latents"}
    """The hub has no task for class-conditional images, which DiT makes; it counts them as unconditional (no
    prompt)."""

    def tasks_of(self, config: Mapping[str, Json]) -> tuple[str, ...]:
        return (self.tasks[1 if _is_dit(config) else 0],)

    def axes(self, workload: Workload) -> Mapping[str, tuple[float, ...]]:
        latent_size = workload.config.get("sample_size")
        size = latent_size * PIXELS_PER_LATENT if isinstance(latent_size, int) else DEFAULT_IMAGE_SIZE
        return {"image_size": (size,), "steps": DEFAULT_STEPS}

    def check(self, workload: Workload, point: Point) -> str | None:
        if (problem := wrong_axes(workload, point, AXES)) is not None:
            return problem
        if (why_not := denoising.missing() or denoising.unsupported(workload.config)) is not None:
            return why_not
        size, steps = int(point.axes["image_size"]), int(point.axes["steps"])
        # The pixels of a latent or, in a DiT, of a patch of latents.
        unit = PIXELS_PER_LATENT * (integer(workload.config, "patch_size", 2) if _is_dit(workload.config) else 1)
        if size % unit:
            near = max(size // unit, 1) * unit
            return f"image size {size}: {workload.model_id} needs a multiple of {unit} pixels, such as {near}"
        if steps > (limit := schedule_of(workload.config).max_steps):
            return f"{steps} steps: {workload.model_id} takes at most {limit}"
        return None

    def inputs(self, workload: Workload, point: Point, seed: int) -> dict[str, np.ndarray]:
        """Noise, batch x channels x latent height x latent width, and the denoiser's conditions."""
        config, batch_size = workload.config, point.batch_size
        latent_size = int(point.axes["image_size"]) // PIXELS_PER_LATENT
        generator = np.random.default_rng([seed, batch_size, latent_size])

        def normal(*shape: int) -> np.ndarray:
            return generator.standard_normal((batch_size, *shape), dtype=np.float32)

        noise = normal(integer(config, "in_channels", 4), latent_size, latent_size)
        if _is_dit(config):
            classes = integer(config, "num_embeds_ada_norm", 1000)
            return {"hidden_states": noise, "class_labels": generator.integers(0, classes, batch_size)}
        prompt = normal(PROMPT_TOKENS, integer(config, "cross_attention_dim", 1280))
        inputs = {"sample": noise, "encoder_hidden_states": prompt}
        if config.get("addition_embed_type") == "text_time":
            size = point.axes["image_size"]
            # The width of SDXL's embedding of the whole prompt: the projection's input without the sizes' embeddings.
            width = integer(config, "projection_class_embeddings_input_dim", 2816)
            inputs["text_embeds"] = normal(width - TIME_IDS * integer(config, "addition_time_embed_dim", 256))
            inputs["time_ids"] = np.tile(np.array([size, size, 0, 0, size, size], dtype=np.float32), (batch_size, 1))
        return inputs

    def model_class(self, workload: Workload) -> Any:
        """The denoiser's class, with its module imported. Raises UnsupportedError without diffusers, or for another
        kind of model."""
        if (why_not := denoising.missing() or denoising.unsupported(workload.config)) is not None:
            raise UnsupportedError(f"{workload.model_id}: {why_not}")
        import diffusers

        return getattr(diffusers, denoising.class_name(workload.config))

    def build(self, workload: Workload, *, dtype: Any, attention: str | None = None) -> Any:
        kind, before = self.model_class(workload), torch.get_default_dtype()
        try:
            torch.set_default_dtype(dtype)  # of the parameters from the start, so there is never a second copy of them
            with quiet("diffusers"):
                model = kind.from_config(dict(workload.config))
        except (TypeError, ValueError, NotImplementedError) as error:
            raise BenchhouseError(f"cannot build {workload.model_id}: {first_line(error)}") from error
        finally:
            torch.set_default_dtype(before)
        return model.eval()

    def load(self, workload: Workload, *, dtype: Any, attention: str | None = None) -> tuple[Any, tuple[str, ...]]:
        kind = self.model_class(workload)
        try:
            with quiet("diffusers"), skip_random_initialisation():
                model, report = kind.from_pretrained(
                    library_path(str(workload.path)),
                    torch_dtype=dtype,
                    use_safetensors=True,
                    local_files_only=True,
                    output_loading_info=True,
                    low_cpu_mem_usage=False,  # True needs accelerate; nothing is initialised only to be overwritten
                )
        except (OSError, RuntimeError, TypeError, ValueError) as error:
            raise BenchhouseError(f"cannot load the weights in {workload.path}: {first_line(error)}") from error
        if lacking := sorted(report["missing_keys"]):
            raise BenchhouseError(
                f"the weights in {workload.path} lack {len(lacking)} tensors of {kind.__name__}, such as {lacking[0]}"
            )
        return model.eval(), ()

    def recipe(self, workload: Workload) -> Recipe | str:
        return Recipe(plan="denoiser", fixed_axes=("image_size",), exporter=TORCH_EXPORTER)

    def torch_operation(
        self, model: Any, workload: Workload, point: Point, inputs: Mapping[str, Any], mode: Mapping[str, Scalar]
    ) -> FamilyOperation:
        own = floats_as(model, inputs)
        noise = own.pop(latents_input(workload.config))
        denoiser = denoiser_of(model, workload.config, own)
        return DenoisingLoop(denoiser, point, noise, schedule_of(workload.config).steps(int(point.axes["steps"])))


def denoiser_of(model: Any, config: Mapping[str, Json], inputs: dict[str, Any]) -> Denoiser:
    """A step's pass through the model. `inputs` are all inputs but the noise and the step."""
    if not _is_dit(config):
        prompt = inputs.pop("encoder_hidden_states")
        added = {"added_cond_kwargs": inputs} if inputs else {}
        return lambda latents, times: model(latents, times, encoder_hidden_states=prompt, return_dict=False, **added)[0]

    def noise_in(latents: Any, times: Any) -> Any:
        output = model(latents, times, class_labels=inputs["class_labels"], return_dict=False)[0]
        return output[:, : latents.shape[1]]  # the second half is the variance, which DDIM does not use

    return noise_in


def _is_dit(config: Mapping[str, Json]) -> bool:
    return denoising.class_name(config) == denoising.DIT


def latents_input(config: Mapping[str, Json]) -> str:
    return "hidden_states" if _is_dit(config) else "sample"


def schedule_of(config: Mapping[str, Json]) -> NoiseSchedule:
    return DIT if _is_dit(config) else STABLE_DIFFUSION


PLUGIN = Diffusion()
