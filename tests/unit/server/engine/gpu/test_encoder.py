import random
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from tests.unit.server.engine.gpu.host_device import on_device

from seqserve_server.engine.gpu import encoder
from seqserve_server.engine.gpu.encoder import shape_of, shapes
from seqserve_server.engine.packing import CrossKV


def of_source(encoded: CrossKV, index: int) -> np.ndarray:
    parts = [encoded.of_source(packed, index) for packed in encoded.packed]
    return np.concatenate([np.ravel(part) for part in (*parts, *(p[index] for p in encoded.last))])


@pytest.mark.parametrize("artifact", ["tiny_artifact", "tiny_fp16_artifact"])
def test_sources_of_a_filled_group_are_encoded_as_alone(
    request: pytest.FixtureRequest, artifact: str
) -> None:
    folder: Path = request.getfixturevalue(artifact)
    runtime = on_device(folder)[0]
    draw, longest = random.Random(4), runtime.manifest.limits.max_source_length
    groups = [
        [[*(draw.randrange(4, 90) for _ in range(draw.randrange(11))), 2] for _ in range(count)]
        for count in (1, 2, 3, 7, 16)
    ]
    before = [runtime.encode(group) for group in groups]
    runtime.warm_up()
    assert set(runtime._device_encoder._plans) == set(shapes(longest))
    # Those of one shape share its memory.
    after = [runtime.encode(group) for group in groups]
    for group, some, others in zip(groups, before, after, strict=True):
        assert some.starts == others.starts
        for index in range(len(group)):
            np.testing.assert_allclose(of_source(some, index), of_source(others, index), atol=2e-3)


def test_a_group_whose_shape_could_not_be_recorded_is_encoded_as_it_is(
    tiny_artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("CUDA failure 901: operation failed due to a previous error")

    monkeypatch.setattr(encoder, "recorded", fail)
    runtime = on_device(tiny_artifact)[0]
    wanted = of_source(runtime.encode([[5, 6, 2]]), 0)
    runtime.warm_up()
    np.testing.assert_array_equal(of_source(runtime.encode([[5, 6, 2]]), 0), wanted)


def test_a_recording_is_played_back_in_its_thread_alone(
    tiny_artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = on_device(tiny_artifact)[0]
    Thread(target=runtime.warm_up).run()
    plans = runtime._device_encoder._plans
    assert plans
    worker = Thread(target=runtime.warm_up)
    worker.start()
    worker.join()
    monkeypatch.setattr(
        runtime._device_encoder,
        "_plans",
        {shape: plan._replace(binding=None) for shape, plan in plans.items()},
    )
    # With a binding that is none, playing one back would fail.
    assert runtime.encode([[5, 6, 2]]).starts == [0, 3]


@pytest.mark.parametrize("longest", [12, 128, 1024])
def test_any_group_fits_a_recorded_shape_or_is_large(longest: int) -> None:
    recorded, draw = set(shapes(longest)), random.Random(2)
    for _ in range(2000):
        count = draw.choice([1, 2, 3, 5, 8, 16, 40, 120])
        most = draw.randint(1, longest)
        lengths = [draw.randint(1, most) for _ in range(count)]
        shape = shape_of(sum(lengths), count, max(lengths), longest)
        if shape is None:
            assert sum(lengths) > 512 or count > 60 or max(lengths) > 512
            continue
        assert shape in recorded
        more, room = shape.sources - count, shape.tokens - sum(lengths)
        assert 0 <= more <= room <= more * min(shape.longest, longest)
        assert max(lengths) <= shape.longest
