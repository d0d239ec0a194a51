"""Peers train what ours trains, and their figures count what they say."""

import sys
from pathlib import Path

import pytest
from transformers import MarianConfig


FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def peers(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    for name in ("peers", "training", "measuring"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import peers

    yield peers
    for path in FOLDER.glob("*.py"):
        sys.modules.pop(path.stem, None)


@pytest.fixture
def text(tmp_path):
    folder = tmp_path / "text"
    folder.mkdir()
    (folder / "vocabulary.txt").write_text("5\t3\n4\t0\n")
    return folder


class Tokenizer:
    all_special_ids = [0, 1, 2, 3]

    def __len__(self):
        return 8


def test_settings_are_those_of_our_comparison(peers):
    import training

    shape = training.SHAPE
    for side in ("encoder", "decoder"):
        sizes = [shape[f"{side}_{name}"] for name in ("layers", "attention_heads", "ffn_dim")]
        assert sizes == [peers.LAYERS, peers.HEADS, peers.FEED_FORWARD]
    assert (shape["d_model"], shape["dropout"]) == (peers.WIDTH, peers.DROPOUT)
    assert (training.TOKENS, training.SMOOTHING) == (peers.TOKENS, peers.SMOOTHING)
    assert training.OPTIMISATION == {
        "learning_rate": peers.LEARNING_RATE,
        "warmup_steps": peers.WARMUP,
        "lr_scheduler_type": "inverse_sqrt",
        "adam_beta2": peers.BETA,
        "adam_epsilon": peers.EPSILON,
    }
    # Marian drops nothing of the attention
    assert MarianConfig().attention_dropout == 0.0
    for settings in (
        peers.PEERS["eole"].settings(Path("t"), Path("f"), 8, "bf16")["training"],
        peers.PEERS["opennmt"].settings(Path("t"), Path("f"), 8),
    ):
        assert settings["attention_dropout"] == [0.0] and settings["batch_type"] == "tokens"


def test_the_schedule_of_the_peers_has_our_highest_rate(peers):
    # theirs: rate x width^-0.5 x min(step^-0.5, step x warm-up^-1.5)
    rate = peers.optimisation(8)["learning_rate"]
    assert rate * peers.WIDTH**-0.5 * peers.WARMUP**-0.5 == pytest.approx(peers.LEARNING_RATE)


def test_text_is_the_numbers_of_our_vocabulary(peers, tmp_path):
    parts = {
        "train": {"input_ids": [[5, 6, 2], [5, 2]], "labels": [[7, 5, 2], [4, 2]]},
        "valid": {"input_ids": [[6, 2]], "labels": [[6, 2]]},
    }
    peers.write_text(parts, Tokenizer(), tmp_path)
    assert (tmp_path / "train.src").read_text() == "5 6\n5\n"
    assert (tmp_path / "train.tgt").read_text() == "7 5\n4\n"
    # counts of `train` alone, no special tokens, the most frequent first
    assert (tmp_path / "vocabulary.txt").read_text() == "5\t3\n4\t1\n6\t1\n7\t1\n"


def test_figures_are_those_after_the_warm_up(peers, monkeypatch):
    record, clock = peers.Record(), iter([10.0, 11.0, 13.0, 17.0])
    monkeypatch.setattr(peers.time, "perf_counter", lambda: next(clock))

    class Weight:
        def numel(self):
            return 12

    class Optimizer:
        param_groups = [{"params": [Weight(), Weight()]}]

    for tokens in (100, 20, 40, 80):
        record.batch(tokens, 2.5 * tokens)
        record.step(Optimizer())
    found = record.figures(warmup=1, updates=3)
    assert (found["tokens"], found["seconds"], found["tokens_per_second"]) == (60, 3.0, 20.0)
    assert found["losses"] == [2.5] * 3 and found["parameters"] == 24
    assert found["tokens_per_update"] == pytest.approx(160 / 3)
    with pytest.raises(ValueError, match="stopped after 4 of 5 updates"):
        record.figures(1, 5)
    record.batch(1, 1.0)
    with pytest.raises(ValueError, match="4 optimizer steps but 5 batches"):
        record.figures(1, 3)


def test_a_hook_sees_what_the_method_gets_and_returns(peers):
    class Loss:
        def forward(self, tokens, scale=1):
            return tokens * scale

    seen = []

    def around(original, *args, **kwargs):
        seen.append((args[1:], kwargs))
        return original(*args, **kwargs) + 1

    peers.with_hook(Loss, "forward", around)
    assert Loss().forward(3, scale=2) == 7 and seen == [((3,), {"scale": 2})]


@pytest.mark.parametrize("name", ["fairseq", "eole", "opennmt"])
def test_a_missing_environment_says_how_to_make_it(peers, name, tmp_path, text):
    with pytest.raises(SystemExit, match=f"install {name} --venvs"):
        peers.PEERS[name].run(tmp_path, text, tmp_path / "out", 8, 2, 1)


@pytest.mark.parametrize(
    "sizes, message",
    [((8, 8, 1), "less than the 8 updates"), ((8, 0, 1), "at least 1"), ((8, 2, 0), "0 threads: give at least 1")],
)
def test_wrong_sizes_are_refused(peers, sizes, message, tmp_path, text):
    with pytest.raises(SystemExit, match=message):
        peers.PEERS["eole"].run(tmp_path, text, tmp_path / "out", *sizes)


def environment(folder: Path, name: str, script: str):
    """A stand-in for the Python of a peer's environment."""
    python = folder / name / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)


def test_missing_text_says_how_to_make_it(peers, tmp_path):
    environment(tmp_path, "eole", "exit 0")
    with pytest.raises(SystemExit, match="segment --data FOLDER --text"):
        peers.PEERS["eole"].run(tmp_path, tmp_path, tmp_path / "out", 8, 2, 1)


def test_a_peer_that_fails_shows_its_log(peers, tmp_path, text):
    environment(tmp_path, "eole", "echo the reason; exit 3")
    with pytest.raises(SystemExit, match="eole failed:\nthe reason"):
        peers.PEERS["eole"].run(tmp_path, text, tmp_path / "out", 8, 2, 1, "fp32")
    assert "the reason" in (tmp_path / "out" / "eole" / "log.txt").read_text()


def test_figures_of_an_earlier_run_are_not_taken_for_this_one(peers, tmp_path, text):
    environment(tmp_path, "eole", "exit 0")
    stale = tmp_path / "out" / "eole" / "figures.json"
    stale.parent.mkdir(parents=True)
    stale.write_text('{"tokens_per_second": 1e9}')
    with pytest.raises(SystemExit, match="eole failed"):
        peers.PEERS["eole"].run(tmp_path, text, tmp_path / "out", 8, 2, 1, "fp32")


def test_a_run_has_its_threads_and_no_gpu(peers, tmp_path, text):
    script = 'printf \'{"threads": "%s", "gpu": "%s"}\' "$OMP_NUM_THREADS" "$CUDA_VISIBLE_DEVICES" > figures.json'
    environment(tmp_path, "eole", script)
    found = peers.PEERS["eole"].run(tmp_path, text, tmp_path / "out", 8, 2, 3, "fp32")
    assert found == {"threads": "3", "gpu": "", "precision": "fp32", "package": "eole==0.6.4"}


def test_a_package_that_does_not_install_says_how_to_go_on(peers, tmp_path, monkeypatch):
    peer = peers.PEERS["fairseq"]
    monkeypatch.setattr(peers.sys, "executable", "/bin/false")
    with pytest.raises(SystemExit, match="fairseq: could not make the environment.*Leave it out with"):
        peer.install(tmp_path)


def test_every_version_is_pinned(peers):
    for peer in peers.PEERS.values():
        assert all("==" in name for name in (peer.package, *peer.requirements))
