"""A small LSTM that predicts the next character of the King James Bible: one layer of 128, passages of 32 characters,
each from a fresh state. A step of 8 passages takes a few milliseconds on one core.

The training table's loss is in nats a character (÷ ln 2: bits); its accuracy is the share of characters told right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlcp.datasets import kjv

if TYPE_CHECKING:
    import torch

    from dlcp.agents.scripts import JobOptions
    from dlcp.frameworks.pytorch import TrainingJob

EMBEDDING, WIDTH, LENGTH = 32, 128, 32
TEST_PASSAGES = 1000
"""Of the test part, evenly spread: 32,000 characters, so that an accuracy is exact to half a point."""

_SIGNS = len(kjv.CHARACTERS)
LAYERS = (
    ("embedding", _SIGNS * EMBEDDING),
    ("lstm", 4 * WIDTH * (EMBEDDING + WIDTH + 2)),
    ("head", (WIDTH + 1) * _SIGNS),
)


def preload() -> None:
    """Read the text and run one step, so that an agent forked afterwards starts in milliseconds."""
    from dlcp.agents.scripts import JobOptions

    warm = job(JobOptions(seed=0, worker=0, workers=1, batch=8))
    inputs, wanted = warm.batch(0)
    warm.loss(warm.model(inputs), wanted).backward()  # type: ignore[no-untyped-call]
    kjv.text("test")


def job(options: JobOptions) -> TrainingJob:
    """One rank's model, data and loss; the same initial parameters at every rank with the same seed."""
    import torch
    from torch import nn

    from dlcp.frameworks.pytorch import TrainingJob
    from dlcp.frameworks.pytorch.drawing import drawn, spread

    torch.manual_seed(options.seed)
    embedding, lstm, head = nn.Embedding(_SIGNS, EMBEDDING), nn.LSTM(EMBEDDING, WIDTH, batch_first=True), nn.Linear(
        WIDTH, _SIGNS
    )  # fmt: skip

    class Model(nn.Module):
        """Scores of all characters, N × characters × length as cross_entropy wants them."""

        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.lstm, self.head = embedding, lstm, head

        def forward(self, codes: torch.Tensor) -> torch.Tensor:
            seen, _ = self.lstm(self.embedding(codes))
            scores: torch.Tensor = self.head(seen)
            return scores.transpose(1, 2)

    def part(name: str) -> tuple[torch.Tensor, torch.Tensor]:
        inputs, wanted = kjv.passages(name, LENGTH)
        return torch.from_numpy(inputs), torch.from_numpy(wanted)

    return TrainingJob(
        Model(), [embedding, lstm, head], drawn(*part("train"), options),
        lambda: spread(*part("test"), TEST_PASSAGES),
    )  # fmt: skip
