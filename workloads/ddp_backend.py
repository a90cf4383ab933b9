"""DistributedDataParallel over the backend `dlcp`: the job of any DDP tutorial with one word changed.

    torchrun --nproc-per-node 2 workloads/ddp_backend.py
    torchrun --nnodes 2 --node-rank N --master-addr HOST --master-port 29400 workloads/ddp_backend.py

The second line, on hosts 0 and 1 (N), is the same over a network; HOST is the address of host 0. DLCP_LOSS_BOUND=0.1
lets an all-reduce lose up to a tenth of its gradients where the network lost them; without it nothing is lost.
"""

import sys

import fashion_mnist_cnn
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import dlcp.frameworks.pytorch as dlcp
from dlcp.agents.scripts import JobOptions


def main(steps: int) -> None:
    """Train for so many steps; rank 0 tells how it went."""
    dist.init_process_group("dlcp")
    rank, size = dist.get_rank(), dist.get_world_size()
    job = fashion_mnist_cnn.job(JobOptions(seed=1, worker=rank, workers=size, batch=32))
    model = DistributedDataParallel(job.model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    mean_loss = torch.zeros(1)
    for step in range(steps):
        inputs, labels = job.batch(step)
        optimizer.zero_grad()
        loss = job.loss(model(inputs), labels)
        loss.backward()
        optimizer.step()
        mean_loss = loss.detach().reshape(1)
    dist.all_reduce(mean_loss, op=dist.ReduceOp.AVG)
    if rank == 0:
        print(f"loss {mean_loss.item():.4f}, accuracy {fashion_mnist_cnn.accuracy(job.model):.2%} after {steps} steps")
        print(dlcp.statistics())
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
