import dataclasses

import pytest

from seqserve.errors import OptionError
from seqserve.options import parse
from seqserve_server.contract.limits import Provider
from seqserve_server.front import config
from seqserve_server.front.config import ServeOptions
from seqserve_server.front.fronts.fronts import part_of
from seqserve_server.process.logs import LogFormat


def read(*argv: str, **environ: str) -> ServeOptions:
    return parse(ServeOptions, argv, prog="seqserve serve", description="", environ=environ)


def test_defaults_that_documents_rely_on() -> None:
    options = read()
    assert options == ServeOptions()
    documented = {"host": "127.0.0.1", "port": 50051, "provider": Provider.CPU, "keep_versions": 1}
    documented |= {"metrics_host": "127.0.0.1", "metrics_port": 9464, "insecure": False}
    # Half of it, the share of one caller, is room for a message of 64 MB and its copy.
    documented |= {"max_answer_mb": 256, "caller_share": 0.5}
    # No client learns what others asked.
    documented |= {"cache_mb": 0}
    files = ("model_repository", "tls_certificate", "tls_key", "tls_client_ca", "tokens")
    assert documented | dict.fromkeys(files) == {
        name: getattr(options, name) for name in (*documented, *files)
    }


@pytest.mark.parametrize(("workers", "slots"), [(1, 64), (4, 64), (5, 80), (16, 256), (64, 1024)])
def test_every_worker_has_slots_for_a_beam(workers: int, slots: int) -> None:
    options = read("--workers", str(workers))
    assert options.slot_count() == options.engine_limits().slots == slots
    assert read("--workers", str(workers), "--slots", "7").slot_count() == 7


def test_flags_win_over_variables() -> None:
    variables = {"SEQSERVE_PORT": "7", "SEQSERVE_LOG_FORMAT": "json"}
    options = read("--port", "8", **variables)
    assert (options.port, options.log_format) == (8, LogFormat.JSON)
    assert read(SEQSERVE_INSECURE="false").insecure is False


@pytest.mark.parametrize(
    "argv",
    [
        ("--port", "65536"),
        ("--metrics-port", "-1"),
        ("--slots", "0"),
        ("--workers", "0"),
        ("--max-queue", "0"),
        ("--cache-mb", "-1"),
        ("--provider", "tpu"),
        ("--drain-timeout-s", "-1"),
        ("--drain-timeout-s", "nan"),
        ("--max-message-bytes", "2147483648"),
        ("--max-connections", "0"),
        ("--max-calls-per-connection", "0"),
        ("--max-connection-age-s", "0.5"),
        ("--max-connection-age-s", "inf"),
        ("--trace-sample-ratio", "1.5"),
    ],
)
def test_values_out_of_bounds_name_the_flag(argv: tuple[str, str]) -> None:
    with pytest.raises(OptionError, match=argv[0]):
        read(*argv)


def test_each_gpu_has_a_process_of_one_worker() -> None:
    one = read("--provider", "cuda")
    assert (one.worker_count(), one.process_count(), one.slot_count()) == (1, 1, 64)
    three = read("--provider", "cuda", "--engine-processes", "3")
    assert (three.worker_count(), three.process_count()) == (3, 3)
    four = read("--provider", "cuda", "--workers", "4")
    with pytest.raises(OptionError, match=r"--workers: .*not 4 for 1; .*--engine-processes"):
        four.process_count()


def test_workers_follow_the_cores() -> None:
    assert ServeOptions(workers=3).worker_count() == 3
    assert ServeOptions(threads=10_000).worker_count() == 1
    assert ServeOptions().worker_count() >= 1


def test_every_option_is_explained() -> None:
    for field in dataclasses.fields(ServeOptions):
        assert field.metadata["help"].endswith("."), field.name


@pytest.mark.parametrize(
    ("cores", "fronts"), [(1, 1), (4, 1), (5, 2), (7, 2), (8, 3), (14, 5), (16, 5), (96, 8)]
)
def test_fronts_follow_the_cores(monkeypatch: pytest.MonkeyPatch, cores: int, fronts: int) -> None:
    monkeypatch.setattr(config, "available_cores", lambda: cores)
    assert read().front_count() == fronts
    assert read("--front-processes", "2").front_count() == 2
    # One front knows which versions are in use.
    assert read("--max-loaded-mb", "9").front_count() == 1
    with pytest.raises(OptionError, match="--front-processes: must be 1 with"):
        read("--max-loaded-mb", "9", "--front-processes", "2").front_count()


def test_each_front_has_its_part() -> None:
    options = read("--front-processes", "3", "--max-connections", "10", "--cache-mb", "8")
    part = part_of(options, 4000)
    assert (part.port, part.front_count()) == (4000, 3)
    assert (part.max_answer_mb, part.cache_mb, part.max_connections) == (85, 3, 4)
    assert part_of(read("--front-processes", "3"), 1).max_connections is None
