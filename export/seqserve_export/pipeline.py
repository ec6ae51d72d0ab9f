"""The way of a model into an artifact: quantise or halve, write, check, attach a shortlist.

``seqserve export`` and ``seqserve import`` both take these steps; they differ in the origin of the
model, the sentences and the scales.
"""

import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from seqserve.errors import OptionError
from seqserve_export.artifact import Description, declared, new_place, write_model
from seqserve_export.calibration import calibrate
from seqserve_export.capitals import recommend_small_letters
from seqserve_export.fp16_conversion import halve
from seqserve_export.options import Caches, ExportOptions, Precision, Scales
from seqserve_export.parity import HeldOut, OpenModel, report, verify
from seqserve_export.quantization import Calibration, quantize_in_place, with_same_weights
from seqserve_export.shortlist import NewShortlist, attach_shortlist
from seqserve_export.tolerance import check_tolerance
from seqserve_model.checkpoint import RunDirectory, current_commit, load_run, read_json
from seqserve_model.cpu import trim_memory
from seqserve_model.data import Pair, read_pairs
from seqserve_model.recipe import LanguagesRecipe, Recipe
from seqserve_model.transformer import Transformer
from seqserve_server.artifact.files import atomic_folder
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.artifact.records import Provenance, Quantization, Template
from seqserve_server.offline.offline import Offline
from seqserve_server.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounding:
    """The precision of an artifact, and the settings of int8."""

    precision: Precision = Precision.FP32
    scales: Scales = Scales.STATIC
    caches: Caches = Caches.FLOAT
    calibration: Calibration | None = None
    """For int8 only."""
    reason: str = ""
    """Why the scales were chosen, if they were not given."""

    def apply(self, model: Transformer) -> Transformer:
        """Quantises or halves a model, which must not be used any more.

        Raises:
            OptionError: ONNX Runtime has no kernel for its positions at this precision.
        """
        if self.precision is Precision.FP16:
            return halve(model)
        if self.precision is Precision.FP32:
            return model
        assert self.calibration is not None
        return quantize_in_place(model, self.calibration, self.scales, self.caches)

    @property
    def record(self) -> Quantization | None:
        """Its record in the manifest; None without quantisation."""
        if self.precision is not Precision.INT8:
            return None
        return Quantization(scales=self.scales.value, caches=self.caches.value, reason=self.reason)


NO_ROUNDING = Rounding()


def write_artifact(
    open_model: OpenModel,
    tokenizer: Tokenizer,
    repository: Path,
    description: Description,
    held_out: HeldOut | None,
    *,
    rounding: Rounding = NO_ROUNDING,
    shortlist: NewShortlist | None = None,
) -> Path:
    """Writes a model as ``repository/<name>/<version>``, and returns this folder.

    It is built and proved in a draft folder next to it, which is then renamed, so that a server
    that watches the repository never sees half an artifact. Each stage opens the model again, so
    that it is in memory only then.

    Args:
        open_model: Opens the model before it is rounded.
        held_out: Sentences of the proof; None only for random weights of tests and benchmarks.
        shortlist: Attached when the model is proved.

    Raises:
        OptionError: The model or its name cannot be exported, or the version exists.
        ParityError: The artifact and the model differ; nothing was written.
        SeqserveError: A server could not load it or not answer; nothing was written.
    """
    place = new_place(repository, description.name, description.version)
    with atomic_folder(place) as folder:
        _tell(f"{description.name}/{description.version}: writing ONNX graphs")
        model = rounding.apply(open_model())
        manifest = write_model(model, tokenizer, description, rounding.record, folder)
        del model
        trim_memory()
        if held_out is not None:
            manifest = prove(open_model, rounding, held_out, manifest, folder)
            if shortlist is not None:
                attach_shortlist(folder, manifest, shortlist, held_out)
            serve_once(folder, held_out)
    return place


def serve_once(folder: Path, held_out: HeldOut) -> None:
    """Loads an artifact with all checks of a server, and answers its shortest sentence.

    Where it translates, it may come to recommend ``lower_capitals``.

    Raises:
        SeqserveError: A server could not load it, or not answer.
    """
    trim_memory()
    manifest = Manifest.load(folder)
    template = manifest.template or Template()
    languages: Any = {}
    if template.source_languages:
        languages["source_language"] = min(template.source_languages)
    if template.target_languages:
        languages["target_language"] = max(template.target_languages)
    text = min((pair.source for pair in held_out.pairs if pair.source.strip()), key=len)
    slots = int(manifest.generation.get("beam_size", 1))
    offline = Offline(folder, workers=1, threads=held_out.threads, slots=slots, packs=False)
    with offline:
        offline.generate(text, **languages)
        recommend_small_letters(offline, folder)


def _tell(stage: str) -> None:
    """Says what a long work does now, where its result does not go."""
    print(f"seqserve: {stage}", file=sys.stderr, flush=True)


def prove(
    open_model: OpenModel, rounding: Rounding, held_out: HeldOut, manifest: Manifest, folder: Path
) -> Manifest:
    """Compares an artifact with its model, and writes the result into the manifest.

    Raises:
        ParityError: They differ by more than rounding explains.
    """
    _tell(f"torch and the artifact decode {len(held_out.pairs):,} sentences")
    proof = verify(
        lambda: rounding.apply(open_model()),
        folder,
        held_out,
        open_original=None if rounding.precision is Precision.FP32 else open_model,
    )
    report(proof.verification)
    check_tolerance(proof.verification, manifest.precision)
    manifest = replace(manifest, verification=proof.verification, self_test=proof.self_test)
    manifest.write(folder)
    return manifest


def export(options: ExportOptions) -> Path:
    """Exports a run; returns the artifact's folder.

    Raises:
        OptionError: The run, the data or the place do not fit.
        ParityError: The artifact and the model differ; nothing was written.
    """
    # Before a long work begins.
    new_place(options.model_repository, options.name, options.model_version)
    torch.set_num_threads(options.threads)
    model, tokenizer = load_run(options.run, options.weights)
    run = RunDirectory(options.run)
    data = options.data or run.test
    held_out = HeldOut(
        pairs=_pairs(data, options.sentences), name=data.name, threads=options.threads
    )
    calibration = None
    if options.precision is Precision.INT8:
        text = options.calibration or run.validation
        calibration = _calibrated(model, tokenizer, text, options.calibration_sentences)
    return write_artifact(
        partial(with_same_weights, model),
        tokenizer,
        options.model_repository,
        _description(options, model),
        held_out,
        rounding=Rounding(
            precision=options.precision,
            scales=options.scales,
            caches=options.caches,
            calibration=calibration,
        ),
    )


def _pairs(data: Path, limit: int) -> list[Pair]:
    return read_pairs(data).pairs[:limit]


def _calibrated(model: Transformer, tokenizer: Tokenizer, data: Path, limit: int) -> Calibration:
    max_length = model.config.max_source_length
    encoded = [tokenizer.encode(pair.source) for pair in _pairs(data, limit)]
    sources = [ids for ids in encoded if len(ids) <= max_length]
    if not sources:
        raise OptionError(f"{data}: no sentence of at most {max_length} tokens to calibrate on")
    return calibrate(model, sources)


def _description(options: ExportOptions, model: Transformer) -> Description:
    path = RunDirectory(options.run).report
    training = read_json(path) if path.exists() else {}
    weights = sum(parameter.numel() for parameter in model.parameters())
    path = RunDirectory(options.run).recipe
    languages = Recipe.from_dict(read_json(path)).languages if path.exists() else LanguagesRecipe()
    return Description(
        name=options.name,
        version=options.model_version,
        description=options.description or f"{weights / 1e6:.1f} million weights",
        licence=options.licence,
        provenance=Provenance(
            command=str(training.get("command", "")),
            commit=str(training.get("commit", "")) or current_commit(),
            data_licence=options.data_licence,
            attribution=options.attribution,
            steps=int(training.get("steps", 0)),
        ),
        template=declared(
            None,
            options.source_language or languages.source,
            options.target_language or languages.target,
        ),
        generation=options.recommended(),
    )
