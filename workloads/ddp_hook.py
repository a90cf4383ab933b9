"""DistributedDataParallel that keeps its backend, with its gradients over DLCP by a communication hook.

    torchrun --nproc-per-node 2 workloads/ddp_hook.py
    torchrun --nnodes 2 --node-rank N --master-addr HOST --master-port 29400 workloads/ddp_hook.py

The hook carries gradients only, so it may lose up to a tenth of them where the network lost them (DLCP_LOSS_BOUND).
"""

import sys

import fashion_mnist_cnn
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from dlcp.agents.scripts import JobOptions
from dlcp.frameworks.pytorch import DlcpState, dlcp_hook


def main(steps: int) -> None:
    """Train for so many steps; rank 0 tells how it went."""
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    job = fashion_mnist_cnn.job(JobOptions(seed=1, worker=rank, workers=size, batch=32))
    model = DistributedDataParallel(job.model, bucket_cap_mb=0.05)  # several buckets, for a model as small as this
    state = DlcpState(model)
    model.register_comm_hook(state, dlcp_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    loss = torch.zeros(1)
    for step in range(steps):
        inputs, labels = job.batch(step)
        optimizer.zero_grad()
        loss = job.loss(model(inputs), labels)
        loss.backward()
        optimizer.step()
    if rank == 0:
        print(f"loss {loss.item():.4f}, accuracy {fashion_mnist_cnn.accuracy(job.model):.2%} after {steps} steps")
        print(state.statistics())
    state.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
