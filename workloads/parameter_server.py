"""Parameter servers inside the job: gradients leave while backward runs, forward waits only for its own layer.

    torchrun --nproc-per-node 2 workloads/parameter_server.py
    torchrun --nnodes 2 --node-rank N --master-addr HOST --master-port 29400 workloads/parameter_server.py

Every rank serves its share of the parameters. Only gradients may be lost, up to a tenth (DLCP_LOSS_BOUND).
"""

import sys

import fashion_mnist_cnn
import torch
import torch.distributed as dist

from dlcp.agents.scripts import JobOptions
from dlcp.frameworks.pytorch import DlcpOptimizer


def main(steps: int) -> None:
    """Train for so many steps; rank 0 tells how it went."""
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    job = fashion_mnist_cnn.job(JobOptions(seed=1, worker=rank, workers=size, batch=32))
    optimizer = DlcpOptimizer(
        job.model, lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9), bucket_bytes=50_000
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    loss = torch.zeros(1)
    for step in range(steps):
        inputs, labels = job.batch(step)
        loss = job.loss(job.model(inputs), labels)
        loss.backward()
        optimizer.step()
        schedule.step()
    optimizer.close()
    if rank == 0:
        print(f"loss {loss.item():.4f}, accuracy {fashion_mnist_cnn.accuracy(job.model):.2%} after {steps} steps")
        print(optimizer.statistics())
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
