"""An agent over stdin and stdout, for a host that is reached by a remote shell: python -m dlcp.agents"""

import os
import sys

from dlcp.agents.agent import serve

if __name__ == "__main__":
    replies = os.dup(1)
    os.dup2(2, 1)  # stdout carries only the protocol: whatever else prints goes to stderr
    serve(sys.stdin.fileno(), replies)
