"""A trained model of others, exported and compared with its own torch code.

The package annalog (PyPI, MIT) holds a transformer as in the paper that writes molecules as SMILES:
learned positions, norms after each layer, an output of its own. It has no config.json, so that the
test writes its weights as a training run.
"""

import importlib
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
from tests.rounding import path_terms, rounding
from tokenizers import Regex, decoders, models, pre_tokenizers, processors

from seqserve_export.command import main
from seqserve_model.checkpoint import RunDirectory, write_json, write_tensors
from seqserve_model.config import NormPosition, PositionScheme, TransformerConfig
from seqserve_model.data import Pair, write_pairs
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine.local_engine import LocalEngine

PACKAGE = "annalog==1.0.6"
LAYERS, POSITIONS = 3, 102
LONGEST = 60
MOLECULES = [
    "CC(=O)Oc1ccccc1C(=O)O",
    "CN1C=NC2=C1C(=O)N(C(=O)N2C)C",
    "CC(C)Cc1ccc(cc1)C(C)C(=O)O",
    "CC(=O)Nc1ccc(O)cc1",
    "Clc1ccccc1",
    "O=C(O)c1ccccc1",
    "CN(C)CCOC(c1ccccc1)c1ccccc1",
    "Brc1ccc2[nH]ccc2c1",
    "C[C@H](N)C(=O)O",
    "COc1ccc2[nH]cc(CCNC(C)=O)c2c1",
    "CCN(CC)CCNC(=O)c1ccc(N)cc1",
    "FC(F)(F)c1ccc(cc1)C#N",
]
NAMES = {
    "tok_embedding.weight": "embedding.weight",
    "pos_embedding.weight": "positions.table",
    "self_attention.fc_": "self_attention.",
    "encoder_attention.fc_": "cross_attention.",
    "self_attn_layer_norm": "self_residual.norm",
    "enc_attn_layer_norm": "cross_residual.norm",
    "ff_layer_norm": "feed_forward_residual.norm",
    "positionwise_feedforward.fc_1": "feed_forward.up",
    "positionwise_feedforward.fc_2": "feed_forward.down",
    "attention.q.": "attention.query.",
    "attention.k.": "attention.key.",
    "attention.v.": "attention.value.",
    "attention.o.": "attention.output.",
}
SPECIAL = {"<sos>": "<s>", "<eos>": "</s>"}

pytestmark = pytest.mark.newcomer


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, without those that its own searches need."""
    folder = tmp_path_factory.mktemp("annalog")
    install = ["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--target"]
    subprocess.run([sys.executable, "-m", "pip", *install, str(folder), PACKAGE], check=True)
    return folder / "annalog"


@pytest.fixture(scope="module")
def weights(package: Path) -> dict[str, torch.Tensor]:
    path = package / "ckpt_and_vocab" / "Lev_extended.pt"
    loaded: dict[str, torch.Tensor] = torch.load(path, "cpu", weights_only=True)
    return loaded


@pytest.fixture(scope="module")
def words(package: Path) -> list[str]:
    path = package / "ckpt_and_vocab" / "stereo_experiment_vocab_ttf.pkl"
    found: list[str] = pickle.loads(path.read_bytes())["itos"]
    return [SPECIAL.get(word, word) for word in found]


@pytest.fixture(scope="module")
def theirs(package: Path, weights: dict[str, torch.Tensor], words: list[str]) -> Iterator[Any]:
    """The network by the package's own code, in evaluation mode."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(package))
        code = importlib.import_module("model_files.seq2seq_attention")
    sizes = (len(words), 256, LAYERS, 8, 512, 0.1, torch.device("cpu"), POSITIONS)
    pad = words.index("<pad>")
    model = code.Seq2Seq(code.Encoder(*sizes), code.Decoder(*sizes), pad, pad, torch.device("cpu"))
    model.load_state_dict(weights)
    return model.eval()


def our_name(name: str) -> str:
    if name.startswith("decoder.fc_out."):
        return {"weight": "output_projection.weight", "bias": "logits_bias"}[name.split(".")[-1]]
    for theirs, ours in NAMES.items():
        name = name.replace(theirs, ours)
    stack, _, rest = name.partition(".")
    if rest == "embedding.weight":
        return f"{'source' if stack == 'encoder' else 'target'}_{rest}"
    return f"{stack}_{rest}"


def tokenizer_of(words: list[str]) -> tokenizers.Tokenizer:
    """Divides SMILES into atoms, bonds and rings, as the package does."""
    ids = {word: number for number, word in enumerate(words)}
    made = tokenizers.Tokenizer(models.WordLevel(ids, "<unk>"))
    made.add_special_tokens(["<unk>", "<pad>", "<s>", "</s>"])
    made.pre_tokenizer = pre_tokenizers.Split(Regex(r"\[[^\]]*\]|%\d\d|Br|Cl|."), "isolated")
    made.decoder = decoders.Fuse()
    ends = [(token, ids[token]) for token in ("<s>", "</s>")]
    made.post_processor = processors.TemplateProcessing(
        single=["<s>", "$A", "</s>"], special_tokens=ends
    )
    return made


@pytest.fixture(scope="module")
def config(words: list[str]) -> TransformerConfig:
    return TransformerConfig(
        vocabulary_size=len(words),
        width=256,
        heads=8,
        feed_forward_width=512,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        norm_position=NormPosition.POST,
        positions=PositionScheme.LEARNED,
        shared_embeddings=False,
        tied_output=False,
        logits_bias=True,
        max_source_length=POSITIONS - 1,
        max_target_length=POSITIONS - 1,
        pad_id=words.index("<pad>"),
        bos_id=words.index("<s>"),
        eos_id=words.index("</s>"),
        unk_id=words.index("<unk>"),
    )


@pytest.fixture(scope="module")
def artifact(
    config: TransformerConfig,
    weights: dict[str, torch.Tensor],
    words: list[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """What ``seqserve export`` makes of it, proof included."""
    run = RunDirectory(tmp_path_factory.mktemp("run"))
    write_json(run.config, config.to_dict())
    write_tensors(run.result, {our_name(name): weight for name, weight in weights.items()})
    tokenizer_of(words).save(str(run.tokenizer))
    write_pairs(run.test, [Pair(molecule, molecule) for molecule in MOLECULES])
    repository = tmp_path_factory.mktemp("models")
    place = ["--name", "annalog", "--model-repository", str(repository), "--threads", "1"]
    assert main([str(run.path), *place]) == 0
    return repository / "annalog" / "1"


@pytest.fixture(scope="module")
def engine(artifact: Path) -> Iterator[LocalEngine]:
    with LocalEngine(artifact) as engine:
        yield engine


@torch.inference_mode()
def greedy(model: Any, source: list[int], config: TransformerConfig) -> list[int]:
    """Searches with the package's network, one token after the other."""
    target = [config.bos_id]
    for _ in range(LONGEST):
        logits, _ = model(torch.tensor([source]), torch.tensor([target]))
        target.append(int(logits[0, -1].argmax()))
        if target[-1] == config.eos_id:
            break
    return target[1:]


def test_texts_are_divided_as_by_the_package(engine: LocalEngine, words: list[str]) -> None:
    ids = engine.encode("Clc1[nH]cc%10")
    assert [words[id_] for id_ in ids] == ["<s>", "Cl", "c", "1", "[nH]", "c", "c", "%10", "</s>"]
    assert engine.tokenizer.decode(ids) == "Clc1[nH]cc%10"


def test_greedy_targets_are_those_of_the_package(
    engine: LocalEngine, theirs: Any, config: TransformerConfig
) -> None:
    sources = [engine.encode(molecule) for molecule in MOLECULES]
    options = DecodingOptions(max_decoding_length=LONGEST)
    found = [answer.best.token_ids for answer in engine.decode(sources, options)]
    expected = [greedy(theirs, source, config) for source in sources]
    assert found == [[id_ for id_ in row if id_ != config.eos_id] for row in expected]
    # A model that was trained writes molecules.
    texts = [engine.tokenizer.decode(row) for row in found]
    assert all(re.fullmatch(r"[\w\[\]()=#@+\-/\\%.]+", text) for text in texts)


@torch.inference_mode()
def test_scores_are_those_of_the_package(
    engine: LocalEngine, theirs: Any, config: TransformerConfig
) -> None:
    for molecule, other in zip(MOLECULES, reversed(MOLECULES), strict=True):
        source = engine.encode(molecule)
        target = [config.bos_id, *engine.tokenizer.encode_target(other)]
        logits, _ = theirs(torch.tensor([source]), torch.tensor([target[:-1]]))
        logprobs = logits[0].log_softmax(-1)
        expected = logprobs.gather(1, torch.tensor(target[1:])[:, None])[:, 0].numpy()
        length = np.array([len(source)], np.int32)
        given = np.array([source]), length, np.array([target])
        [found] = engine.runtime.score(*given, ["log_probabilities"])
        bound = rounding(path_terms(config), float(logits.abs().max()))
        np.testing.assert_allclose(found[0], expected, atol=bound, rtol=0)
