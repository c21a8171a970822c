"""What the others say when a rank, a node or a file is gone."""

from beam_slurm.node.rule import CAUSE, EFFECT, VAGUE, Rule

EFFECTS = [
    # What others suffer when a rank or a node is gone
    Rule(
        "nccl",
        CAUSE,
        "NCCL or Gloo finds no interface of that name",
        (
            r"Bootstrap ?: no socket interface found",
            r"Unable to find address for:? ",
            r"NCCL_SOCKET_IFNAME.*(?:not|no)\b",
        ),
        "set site.network.interface to one that every node has (`ip -br addr` there)",
    ),
    Rule(
        "node",
        EFFECT,
        "another rank or its node is gone",
        (
            r"ncclRemoteError",
            r"NodeDiedError|node .* (?:was|has been) marked dead|missed too many heartbeats",
            r"[Tt]he node .* has died|its node has died|Owner's node has crashed",
            r"OwnerDiedError",
            r"(?:unknown|fatal).*NVLink|NVLink.*(?:[Ff]atal|uncorrectable)",
        ),
        "look on the node that the line names; leave it out (site.exclude) if it comes again, "
        "or use --spares",
    ),
    Rule(
        "nccl",
        EFFECT,
        "the fabric lost packets",
        (
            r"Got completion .*(?:error|status=?) ?(?:12|5|10)\b",
            r"transport retry counter exceeded|RETRY_EXC_ERR",
            r"ibv_\w+ failed|NET/IB .*(?:failed|error)|no active IB",
        ),
        "ask the operators for link errors of the two nodes; leave the bad one out (site.exclude)",
    ),
    Rule(
        "nccl",
        EFFECT,
        "a collective that never ended",
        (
            r"Watchdog caught collective operation timeout",
            r"[Cc]ollective .*timed? ?out|NCCL.*timed? ?out",
            r"[Tt]imed out waiting \d+ ?ms for (?:send|recv)",
            r"[Hh]eartbeat monitor timed out",
            r"DistStoreError|waiting for clients|\[c10d\].*timed out|Socket Timeout",
        ),
        "see which rank did not come (attempt-*/stacks, NCCL_DEBUG=INFO); leave its node out if "
        "it is the same again",
    ),
    Rule(
        "nccl",
        EFFECT,
        "an NCCL or Gloo call that failed",
        (
            r"nccl(?:System|Internal|UnhandledCuda)Error|ncclInvalid\w+",
            r"NCCL error",
            r"DistBackendError|DistNetworkError",
            r"NCCL watchdog thread terminated",
            r"gloo.*(?:Connection (?:closed|reset)|connect.*(?:failed|refused))",
        ),
        "NCCL_DEBUG=INFO tells more; check site.network.interface and NCCL_IB_HCA, then the "
        "fabric of the nodes",
    ),
    Rule(
        "node",
        EFFECT,
        "CUDA failed without a fault of the program's",
        (r"CUDA error: (?:unspecified launch failure|hardware stack error)", r"cudaErrorLaunchF"),
        "look at that node's dmesg for an Xid; leave it out if it comes again there",
    ),
    Rule(
        "framework",
        EFFECT,
        "a kernel that reads or writes where it may not",
        (
            r"illegal memory access|device-side assert|misaligned address|illegal instruction",
            r"\bXid\b",
            r"CUBLAS_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR)|CUDNN_STATUS_EXECUTION_FAILED",
        ),
        "run it again with CUDA_LAUNCH_BLOCKING=1 to see the place; on one node only: leave "
        "that out",
    ),
    Rule(
        "framework",
        EFFECT,
        "a crash in native code",
        (
            r"Fatal Python error: (?!.*Aborted)",
            r"SIGSEGV received|\bSegmentation fault\b|\(SIGSEGV\)",
            r"double free or corruption|free\(\): invalid|malloc\(\): corrupt",
        ),
        "the stack is in the log behind it; on one node only: leave that out (site.exclude)",
    ),
    Rule(
        "framework",
        EFFECT,
        "an inference server that is not ready in time",
        (
            r"[Tt]imed? ?out.*(?:servers?|engines?|router).*(?:healthy|ready|start)",
            r"(?:[Ss]erver|[Ee]ngine)\S*.*(?:not|failed to) (?:become |be )?(?:healthy|ready)",
            r"[Rr]untime[_ ]env.*timed out|worker.*register.*timed? ?out",
        ),
        "loading took longer than allowed: raise the framework's time "
        "(SKYRL_WAIT_UNTIL_INFERENCE_SERVER_HEALTHY_TIMEOUT_S, "
        "RAY_worker_register_timeout_seconds)",
    ),
    # What beam-slurm says of Ray
    Rule(
        "container",
        CAUSE,
        "a Python without Ray, or a runtime that is not installed",
        (r"has no Ray: |has no Ray$", r"is not on PATH here"),
        "mend site.paths.venv or the image: Ray and the runtime must be there on every node",
    ),
    Rule(
        "node",
        EFFECT,
        "Ray is not complete, or has nodes of others",
        (
            r"nodes joined Ray, missing: ",
            r"Ray has nodes that are not this job's",
            r"is there and is not ours",
            r"did not answer within",
            r"(?:head|Ray)'s? .*does not answer",
        ),
        "`beam-slurm logs RUN --ray NODE` of the missing one; raise ray.deadline_s if its image "
        "is still being unpacked",
    ),
    # May be harmless where it stands, so only if nothing else is found
    Rule(
        "container",
        VAGUE,
        "a module or library that is missing",
        (
            r"^ModuleNotFoundError: |^ImportError: ",
            r"cannot open shared object file|undefined symbol: |version `GLIBC\S+' not found",
        ),
        "the image does not fit to the checkout: take the recipe's image, or mend "
        "site.paths.venv and PYTHONPATH",
    ),
    Rule(
        "config",
        VAGUE,
        "a file that is not there",
        (r"^FileNotFoundError: ", r"\[Errno 2\] No such file or directory", r"^NotADirectoryError"),
        "mend the path that the line names; `beam-slurm doctor --on-nodes` checks site.paths on "
        "every node",
    ),
    Rule(
        "storage",
        VAGUE,
        "a file that may not be read or written",
        (r"^PermissionError: ", r"\[Errno 13\] Permission denied", r": Permission denied$"),
        "mend the rights of that path for your user on the nodes (in Docker: the image's user)",
    ),
    Rule(
        "framework",
        VAGUE,
        "a Ray worker that ended without a word",
        (
            r"Worker exit type: SYSTEM_ERROR|unexpectedly exits with a connection error code 2",
            r"WorkerCrashedError|ActorUnavailableError",
        ),
        "its own words are in attempt-*/ray/NODE.logs.tar.gz (worker-*.err); without any, think "
        "of the kernel's out-of-memory killer",
    ),
]
