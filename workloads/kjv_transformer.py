"""A small Transformer that predicts the next character of the King James Bible: two blocks of width 64, passages of 32
characters. A step of 8 passages takes about 10 ms on one core.

The training table's loss is in nats a character (÷ ln 2: bits); its accuracy is the share of characters told right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlcp.datasets import kjv

if TYPE_CHECKING:
    import torch

    from dlcp.agents.scripts import JobOptions
    from dlcp.frameworks.pytorch import TrainingJob

WIDTH, HEADS, BLOCKS, LENGTH = 64, 4, 2, 32
EMBEDDING_DEVIATION = 0.3
"""Of the initial embeddings: with 1, PyTorch's own, plain SGD learns more slowly."""
TEST_PASSAGES = 1000
"""Of the test part, evenly spread: 32,000 characters, so that an accuracy is exact to half a point."""

_SIGNS = len(kjv.CHARACTERS)
LAYERS = (
    ("embedding", (_SIGNS + LENGTH) * WIDTH),
    *(
        layer
        for block in range(BLOCKS)
        for layer in (
            (f"block{block}.attention", 4 * (WIDTH + 1) * WIDTH + 2 * WIDTH),
            (f"block{block}.mlp", (WIDTH + 1) * 4 * WIDTH + (4 * WIDTH + 1) * WIDTH + 2 * WIDTH),
        )
    ),
    ("head", 2 * WIDTH + (WIDTH + 1) * _SIGNS),
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

    from dlcp.frameworks.pytorch import TrainingJob
    from dlcp.frameworks.pytorch.drawing import drawn, spread

    torch.manual_seed(options.seed)
    layers = _layers()

    def part(name: str) -> tuple[torch.Tensor, torch.Tensor]:
        inputs, wanted = kjv.passages(name, LENGTH)
        return torch.from_numpy(inputs), torch.from_numpy(wanted)

    return TrainingJob(
        torch.nn.Sequential(*layers), layers, drawn(*part("train"), options),
        lambda: spread(*part("test"), TEST_PASSAGES),
    )  # fmt: skip


def _layers() -> list[torch.nn.Module]:
    """The model's parts in order, as LAYERS names them."""
    from torch import nn

    class Embedding(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.signs, self.places = nn.Embedding(_SIGNS, WIDTH), nn.Embedding(LENGTH, WIDTH)
            for table in (self.signs, self.places):
                nn.init.normal_(table.weight, std=EMBEDDING_DEVIATION)

        def forward(self, codes: torch.Tensor) -> torch.Tensor:
            return self.signs(codes) + self.places.weight[: codes.shape[1]]

    class Attention(nn.Module):
        """x + attention(norm(x)), to the characters before alone."""

        def __init__(self) -> None:
            super().__init__()
            self.norm, self.qkv, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            n, length, _ = x.shape
            query, key, value = self.qkv(self.norm(x)).view(n, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
            seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            return x + self.out(seen.transpose(1, 2).reshape(n, length, WIDTH))

    class Mlp(nn.Module):
        """x + mlp(norm(x))."""

        def __init__(self) -> None:
            super().__init__()
            self.norm, self.up, self.down = (
                nn.LayerNorm(WIDTH),
                nn.Linear(WIDTH, 4 * WIDTH),
                nn.Linear(4 * WIDTH, WIDTH),
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.down(nn.functional.gelu(self.up(self.norm(x))))

    class Head(nn.Module):
        """Scores of all characters, N × characters × length as cross_entropy wants them."""

        def __init__(self) -> None:
            super().__init__()
            self.norm, self.scores = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, _SIGNS)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.scores(self.norm(x)).transpose(1, 2)

    blocks = [part for _ in range(BLOCKS) for part in (Attention(), Mlp())]
    return [Embedding(), *blocks, Head()]
