"""Artifacts damaged anywhere: the file is named, and older versions continue to serve."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.endless_model import NAME, copy_version
from tests.support.process import ONCE, ServerProcess, eventually

from seqserve import Client, ModelState

from .unaffected_client import UnaffectedClient

SEED = 5
FILES = ("encoder.onnx", "decoder.onnx", "weights.bin", "tokenizer.json")
WATCH = ("--watch-interval-s", "0.1", "--slots", "8", "--keep-versions", "1")

pytestmark = pytest.mark.chaos


def flip(content: bytes, draw: random.Random) -> bytes:
    place = draw.randrange(len(content))
    return content[:place] + bytes([content[place] ^ 1 << draw.randrange(8)]) + content[place + 1 :]


def truncate(content: bytes, draw: random.Random) -> bytes:
    return content[: draw.randrange(len(content))]


Damage = Callable[[bytes, random.Random], bytes]
# A manifest has no hash of its own: only damage that makes it invalid is found.
DAMAGES: list[tuple[str, Damage]] = [
    *((name, damage) for name in FILES for damage in (flip, truncate)),
    ("manifest.json", truncate),
]


async def test_every_damage_is_found_and_replaces_nothing(repository: Path, tmp_path: Path) -> None:
    draw = random.Random(SEED)
    models = tmp_path / "models"
    copy_version(repository, models, 1)
    damaged = {2 + number: damage for number, damage in enumerate(DAMAGES)}
    with ServerProcess(models, tmp_path, *WATCH) as server:
        async with UnaffectedClient(server.target) as unaffected:
            await unaffected.usual_s(5)
            for version, (name, damage) in damaged.items():
                draft = copy_version(repository, tmp_path / "draft", version)
                file = draft / name
                file.write_bytes(damage(file.read_bytes(), draw))
                draft.rename(models / NAME / str(version))
            await eventually(lambda: server.value("model_state", state="failed") == len(damaged))
            await unaffected.usual_s(5)
        with Client(server.target, retry=ONCE) as client:
            found = {model.version: model for model in client.models()}
            assert client.generate("Nobody", max_decoding_length=3).version == 1
        for version, (name, _) in damaged.items():
            assert found[version].state is ModelState.FAILED
            assert f"{NAME}/{version}/{name}: " in found[version].state_reason
            assert f'model={NAME}/{version} reason="{NAME}/{version}/{name}: ' in server.stderr
        assert found[1].state is ModelState.READY
        assert server.value("model_loads_total", result="failure") == len(damaged)
        await eventually(lambda: len(server.engines()) == 1)
        assert "Traceback" not in server.stderr
    print(f"\n{len(damaged)} damaged versions, each refused by the name of its file")
