"""Training jobs on text: the King James Bible as characters, a Transformer and an LSTM that predict the next one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from dlcp.agents.scripts import JobOptions, load_script
from dlcp.datasets import kjv
from dlcp.errors import MachineCannot
from dlcp.transport.contract.optimizer import Sgd

SCRIPTS = {"kjv_transformer.py": 110_271, "kjv_lstm.py": 93_087}
"""Script → parameters of its model."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As agents train; torch's threads would fight over a busy machine's cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def data() -> None:
    try:
        kjv.text("test")
    except MachineCannot as problem:
        pytest.skip(str(problem))


@pytest.mark.usefixtures("data")
def test_text__is_the_whole_bible_in_two_parts() -> None:
    words = ["".join(kjv.CHARACTERS[code] for code in kjv.text(part)) for part in ("train", "test")]
    assert words[0].startswith("In the beginning God created the heaven and the earth.\nAnd the earth was without")
    assert words[1].endswith("The grace of our Lord Jesus Christ be with you all. Amen.\n")
    assert [text.count("\n") for text in words] == [kjv.VERSES - kjv.TEST_VERSES, kjv.TEST_VERSES]
    assert set("".join(words)) == set(kjv.CHARACTERS)
    assert 0.04 < len(words[1]) / len(words[0]) < 0.06


@pytest.mark.usefixtures("data")
def test_passages__are_followed_by_what_follows() -> None:
    inputs, following = kjv.passages("test", 32)
    np.testing.assert_array_equal(inputs.ravel()[1:], following.ravel()[:-1])
    assert inputs.shape == following.shape == ((len(kjv.text("test")) - 1) // 32, 32)


def test_text__missing_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineCannot) as caught:
        kjv.text.__wrapped__("train")
    assert caught.value.hint == kjv.INSTALL
    program = tmp_path / "bible"
    program.write_text("#!/bin/sh\necho 'Ge1:1 In the beginning'\n", encoding="ascii")
    program.chmod(0o755)
    with pytest.raises(MachineCannot, match="1 lines, not 31102 verses"):
        kjv.text.__wrapped__("train")


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("name", SCRIPTS)
def test_model__is_bound_to_the_flat_vector_and_scored_by_the_character(name: str) -> None:
    script = load_script(name)
    job = script.job(JobOptions(seed=1, worker=0, workers=1, batch=4))
    parameters = job.initial_parameters()
    assert len(parameters) == sum(count for _, count in script.LAYERS) == SCRIPTS[name]
    counts = [0] * len(script.LAYERS)
    for layer, parameter, _, _ in job.bind(parameters):
        counts[layer] += parameter.numel()
    assert counts == [count for _, count in script.LAYERS]
    parameters[:] = 0
    loss, accuracy = job.score()
    assert loss == pytest.approx(math.log(len(kjv.CHARACTERS)), rel=1e-6), "all characters are equally likely"
    assert accuracy == pytest.approx(float((job.test_set()[1] == 0).double().mean())), (
        "the first guess is the first character"
    )


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("name", SCRIPTS)
def test_model__sees_no_character_that_is_to_come(name: str) -> None:
    model = load_script(name).job(JobOptions(seed=1, worker=0, workers=1, batch=1)).model
    one, other = torch.zeros(1, 32, dtype=torch.int64), torch.zeros(1, 32, dtype=torch.int64)
    other[0, 20:] = 5
    with torch.no_grad():
        before, after = model(one), model(other)
    torch.testing.assert_close(before[..., :20], after[..., :20])
    assert not torch.allclose(before[..., 20:], after[..., 20:])


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize(("name", "rate"), [("kjv_transformer.py", 0.2), ("kjv_lstm.py", 1.0)])
def test_model__learns_with_the_testbeds_update(name: str, rate: float) -> None:
    """40 steps: better than the frequencies of single characters, whose entropy is 4.2 bits."""
    steps, sgd = 40, Sgd(rate, 0.9, 40, 5)
    job = load_script(name).job(JobOptions(seed=1, worker=0, workers=1, batch=16))
    parameters, velocity = job.initial_parameters(), np.zeros(SCRIPTS[name], np.float32)
    places = [(parameter, start, stop) for _, parameter, start, stop in job.bind(parameters)]
    for step in range(steps):
        inputs, wanted = job.batch(step)
        gradients = torch.autograd.grad(job.loss(job.model(inputs), wanted), [p for p, _, _ in places])
        sgd.step(step, parameters, velocity, np.concatenate([g.reshape(-1).numpy() for g in gradients]))
    assert job.score()[0] / math.log(2) < 4.2
