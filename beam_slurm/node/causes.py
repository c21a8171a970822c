"""What a failed run's last lines look like, what that means, and what to do about it.

One row a cause. Within one line the first row that matches counts, so the special ones stand above
the general ones. ``docs/failures.md`` shows this table.
"""

from typing import NamedTuple, Tuple

CLASSES = {
    "config": "the recipe, the site file or an override asks for something that cannot be",
    "oom": "a GPU or a node has not enough memory",
    "nccl": "the nodes do not reach each other, or one keeps the others waiting",
    "node": "one node or one of its GPUs is broken or gone",
    "storage": "a file system is full, gone or damaged",
    "container": "the image or its runtime does not do, or does not fit to the node",
    "time": "the time limit came first",
    "preempted": "a job of higher priority took the nodes",
    "cancelled": "somebody ended it",
    "framework": "the training program failed by itself",
}

# A line of a lower rank counts before all lines of a higher one, wherever they stand: a rank that
# waits for one that ran out of memory says "NCCL" first.
CAUSE, EFFECT, VAGUE = range(3)


class Rule(NamedTuple):
    """One row: a sign, its class, and the next step."""

    cls: str
    rank: int
    sign: str  # for people
    patterns: Tuple[str, ...]  # regular expressions, searched in one line without its prefixes
    do: str


OUT_OF_TIME = Rule(
    "time",
    CAUSE,
    "Slurm: `DUE TO TIME LIMIT`",
    (r"DUE TO TIME LIMIT", r"^the job was ended\b.*\bTIMEOUT\b", r"\bout of time\b"),
    "submit again with --resume; raise job.time, or set job.total_time for a chain of jobs",
)

RULES = [
    # Slurm's own words
    OUT_OF_TIME,
    Rule(
        "preempted",
        CAUSE,
        "Slurm: `DUE TO PREEMPTION`",
        (r"DUE TO PREEMPTION", r"\bPREEMPTED\b"),
        "submit again with --resume, or ask for a QOS or partition that is not preempted",
    ),
    Rule(
        "node",
        CAUSE,
        "Slurm: `Node failure`",
        (r"\bNode failure\b", r"DUE TO NODE FAILURE", r"\bNODE_FAIL\b", r"\bDUE TO NODE\b"),
        "leave the node out (site.exclude) and ask the operators to look at it; --spares keeps "
        "a run going",
    ),
    Rule(
        "cancelled",
        EFFECT,
        "Slurm: `JOB ... CANCELLED`, no reason given",
        (r"\*\*\* JOB \d+ ON \S+ CANCELLED AT \S+ \*\*\*", r"^the job was (?:ended|cancelled)\b"),
        "nothing is broken: submit again with --resume to go on",
    ),
    # GPUs and hosts that are broken
    Rule(
        "node",
        CAUSE,
        "an uncorrectable ECC error",
        (r"uncorrectable ECC error", r"ECC_UNCORRECTABLE|ECCUncorrectable"),
        "have the operators reset or replace that GPU; until then leave the node out "
        "(site.exclude)",
    ),
    Rule(
        "node",
        CAUSE,
        "a GPU fell off the bus, an Xid of the hardware, a GPU that was lost",
        (
            r"fallen off the bus",
            # 13, 31, 43 and 45 are the program's own faults
            r"\bXid\b[^\n]*?\)?: (?!13\b|31\b|43\b|45\b)\d+",
            r"GPU is lost",
            r"NVRM: .*(?:RmInitAdapter failed|GPU at PCI)",
        ),
        "have the operators reset or replace that GPU; until then leave the node out "
        "(site.exclude)",
    ),
    Rule(
        "node",
        CAUSE,
        "CUDA finds no GPU, too few, or a driver that does not answer",
        (
            r"No CUDA GPUs are available",
            r"no CUDA-capable device is detected",
            r"CUDA error: (?:system not yet initialized|initialization error)",
            r"CUDA error: invalid device ordinal",
            r"Error 802: system not yet initialized",
            r"NVIDIA-SMI has failed because it couldn't communicate",
            r"CUDA-capable devices? (?:is|are|\(s\) is/are) (?:all )?busy or unavailable",
            r"the step sees \d+ GPUs",
        ),
        "run nvidia-smi on that node (`beam-slurm shell RUN --node N`); leave it out "
        "(site.exclude) if it shows less than the others",
    ),
    Rule(
        "node",
        CAUSE,
        "a port that is taken",
        (r"Address already in use", r"EADDRINUSE", r"no free block of \d+ ports"),
        "look for a Ray or server of your own on that node and end it; the next attempt takes "
        "other ports",
    ),
    Rule(
        "node",
        CAUSE,
        "too many open files or processes",
        (
            r"Too many open files",
            r"pthread_create failed|can't start new thread",
            r"Resource temporarily unavailable.*(?:fork|thread)",
        ),
        "the node's limits are low: ask the operators for LimitNOFILE and TasksMax of slurmd",
    ),
    # Containers; above storage, because a runtime's "No space left" is about its own folders
    Rule(
        "container",
        CAUSE,
        "enroot cannot make a user namespace",
        (r"enroot-nsenter: failed to create user namespace",),
        "ask the operators for a higher user.max_user_namespaces on that node",
    ),
    Rule(
        "container",
        CAUSE,
        "pyxis or enroot has no room for the image",
        (
            r"pyxis: .*No space left on device",
            r"enroot.*No space left on device",
            r"pyxis: .*Write failed because",
        ),
        "import the image once to a .sqsh on shared storage (`beam-slurm image import`), or "
        "clear enroot's folders on that node",
    ),
    Rule(
        "container",
        CAUSE,
        "pyxis or enroot says why it cannot start the image",
        (
            r"enroot-\w+: failed",
            r"\[ERROR\].*(?:enroot|hooks\.d|401|403|404|URL|manifest|registry)",
            r"pyxis: {2,}(?!\[INFO\]|\[WARN\]).*"
            r"(?:denied|failed|No such file|FATAL|\[ERROR\]|[Cc]ould not|not found|nauthorized)",
        ),
        "mend site.images or the mount that the line names; `beam-slurm doctor --on-nodes` "
        "tries it everywhere",
    ),
    Rule(
        "container",
        EFFECT,
        "pyxis cannot start the image",
        (r"pyxis: .*(?:fail|couldn't|could not|cannot)", r"spank_pyxis\.so.*failed"),
        "mend site.images; `beam-slurm doctor --on-nodes` tries it everywhere",
    ),
    Rule(
        "container",
        CAUSE,
        "Docker: no such image, or no permission to pull it",
        (
            r"pull access denied|manifest unknown|toomanyrequests|No such image",
            r"manifest for \S+ not found",
            r"[Uu]nable to find image .* locally.*(?:denied|unauthorized)",
            r"initializing source docker://",
            r"image not known|did not resolve to an alias",
        ),
        "mend the image's name, log in to the registry, or load the image on every node beforehand",
    ),
    Rule(
        "container",
        CAUSE,
        "Docker cannot hand over GPUs",
        (
            r"could not select device driver",
            r"nvidia-container-cli: ",
            r"unresolvable CDI devices",
            r"unknown or invalid runtime name: nvidia",
        ),
        "that node lacks a working NVIDIA container toolkit: leave it out and tell the operators",
    ),
    Rule(
        "container",
        CAUSE,
        "Docker's or Podman's daemon or runtime refuses",
        (
            r"Error response from daemon",
            r"[Cc]annot connect to the Docker daemon",
            r"permission denied while trying to connect to the Docker",
            r"OCI runtime (?:error|create failed|exec failed)",
            r"^Error: (?:crun|runc|creating container storage|short-name|statfs)",
            r"(?:docker|podman) ended with code (?!137)\d+",
        ),
        "the words are the runtime's own: try the same image by hand on that node, or leave it out",
    ),
    Rule(
        "container",
        CAUSE,
        "Apptainer cannot start the image",
        (
            r"^FATAL: {2,}",
            r"squashfuse\S* (?:exited|failed)",
            r"(?:apptainer|singularity) ended with code 255",
        ),
        "check the .sif on that node (apptainer inspect); build it again if it is not whole",
    ),
    Rule(
        "container",
        CAUSE,
        "the image's CUDA is newer than the node's driver",
        (
            r"CUDA driver version is insufficient",
            r"NVIDIA driver on your system is too old",
            r"forward compatibility was attempted on non supported HW",
            r"cuda>=\d[\d.]*.*please update your driver|unsatisfied condition: cuda",
        ),
        "take an image for the older CUDA, or nodes with a newer driver (site.constraint)",
    ),
    Rule(
        "container",
        CAUSE,
        "the image does not know this GPU",
        (
            r"no kernel image is available for execution",
            r"not compatible with the current PyTorch installation",
            r"named symbol not found.*cuda|cudaErrorNoKernelImageForDevice",
        ),
        "take the image that was built for this GPU type",
    ),
    # Memory
    Rule(
        "oom",
        CAUSE,
        "the inference engine has no room for its KV cache",
        (
            r"No available memory for the cache blocks",
            r"Free memory on device .* is less than desired",
            r"larger than the (?:maximum number of tokens that can be stored|available) (?:in )?KV",
            r"KV cache is needed, which is larger than the available",
            r"Not enough memory\. Please try to increase --mem-fraction-static",
        ),
        "give the engine more of the GPU (gpu_memory_utilization, mem_fraction_static), fp8 KV "
        "cache (recipe.rollout.kv_cache) or more GPUs (recipe.rollout.gpus_per_engine)",
    ),
    Rule(
        "oom",
        CAUSE,
        "a GPU is full",
        (
            r"CUDA out of memory",
            r"CUDA error: out of memory|[Cc]uda failure.*out of memory",
            r"CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|CUBLAS_STATUS_ALLOC_FAILED",
            r"torch\.(?:cuda\.)?OutOfMemoryError",
            r"\bcu(?:da)?Malloc\w* failed|cuMemCreate.*out of memory",
        ),
        "smaller micro batches, more recomputation, or a wider cut (recipe.learner.tensor, "
        "recipe.learner.expert); `beam-slurm plan` shows what fits",
    ),
    Rule(
        "oom",
        CAUSE,
        "Ray killed a worker because its node ran out of memory",
        (
            r"ray\.exceptions\.OutOfMemoryError",
            r"killed due to the node running low on memory",
            r"\b[1-9]\d* Workers \(tasks / actors\) killed due to memory pressure",
        ),
        "recipe.optimizer.state: nvme where the framework has it, fewer data workers, or a "
        "smaller ray.object_store_gb; `beam-slurm plan` shows the need of each node",
    ),
    Rule(
        "oom",
        CAUSE,
        "/dev/shm is full or too small",  # noqa: S108
        (
            r"/dev/shm\S*.*(?:No space left|size|failed|too small)",  # noqa: S108
            r"insufficient shared memory",
            r"unable to (?:open|allocate|mmap) shared memory",
            r"\bBus error\b|SIGBUS",
            r"ray\.object_store_gb wants",
            r"ObjectStoreFullError",
        ),
        "a smaller ray.object_store_gb, or a larger /dev/shm (`--shm-size` for Docker and Podman)",
    ),
    Rule(
        "oom",
        CAUSE,
        "the kernel or Slurm killed a process for its memory",
        (
            r"oom[-_]kill",
            r"Out of memory: Killed process",
            r"\bOut Of Memory\b",
            r"\bOUT_OF_MEMORY\b",
            r"Exceeded (?:job|step) memory limit",
        ),
        "ask for the whole node's memory (hardware.exclusive: true), or put less of the "
        "optimizer on the host (recipe.optimizer.state)",
    ),
    Rule(
        "oom",
        CAUSE,
        "a node's memory is used up",
        (
            r"Cannot allocate memory",
            r"^(?:numpy\S*\.)?(?:_Array)?MemoryError\b",
            r"std::bad_alloc",
            r"DefaultCPUAllocator: can't allocate memory",
            r"cudaHostAlloc.*failed|cudaHostRegister.*failed",
        ),
        "ask for the whole node's memory (hardware.exclusive: true), or put less of the "
        "optimizer on the host (recipe.optimizer.state)",
    ),
    Rule(
        "oom",
        CAUSE,
        "a daemon of Ray's, a node's task or the entry was ended by SIGKILL",
        (
            r"ended by signal 9 \(SIGKILL\)",
            r"ended with code 137\b",
            r"\[exit code=-9\]|\bexitcode\s*: -9\b|Signal 9 \(SIGKILL\) received",
            r": task \S+: Killed$",
        ),
        "probably the kernel's out-of-memory killer (dmesg on that node tells): ask for the "
        "whole node's memory (hardware.exclusive: true), or give Ray less (ray.object_store_gb)",
    ),
    # Storage
    Rule(
        "storage",
        CAUSE,
        "the node's drive has less room than the recipe needs",
        (r"GB free, the recipe needs",),
        "clear what others left there, leave the node out (site.exclude), or "
        "recipe.optimizer.state: host",
    ),
    Rule(
        "storage",
        CAUSE,
        "a folder is not there, or not the same everywhere",
        (
            r"is not here, and .* is to be mounted",
            r"not the same .*(?:storage|folder)|not shared",
            r"has no node\.pyz",
        ),
        "that node lacks the mount: leave it out and tell the operators; `beam-slurm doctor "
        "--on-nodes` finds all such nodes",
    ),
    Rule(
        "storage",
        CAUSE,
        "a full file system or quota",
        (
            r"No space left on device|\bENOSPC\b",
            r"Disk quota exceeded|\bEDQUOT\b",
            r"[Ff]ile system (?:is )?full",
        ),
        "clear it (df, quota), keep fewer checkpoints (recipe.checkpoint.keep), then submit "
        "with --resume",
    ),
    Rule(
        "storage",
        CAUSE,
        "a write of a checkpoint that failed",
        (
            r"PytorchStreamWriter failed writing",
            r"inline_container.*unexpected pos",
            r"CheckpointException",
        ),
        "look for a full disk or quota (df, quota) below site.paths.outputs, then submit with "
        "--resume",
    ),
    Rule(
        "storage",
        CAUSE,
        "shared storage that does not answer",
        (
            r"Stale (?:NFS )?file handle",
            r"Input/output error",
            r"Remote I/O error",
            r"Transport endpoint is not connected|transport endpoint shutdown",
        ),
        "the file system failed on that node: tell the operators, leave it out (site.exclude), "
        "then --resume",
    ),
    Rule(
        "storage",
        CAUSE,
        "a file system that is read-only",
        (r"Read-only file system",),
        "a path of the recipe lies on a read-only mount or in the image: mend site.paths or the "
        "mount; a node whose disk failed is to be left out",
    ),
    Rule(
        "storage",
        CAUSE,
        "a damaged file of the model or of a checkpoint",
        (
            r"SafetensorError|HeaderTooLarge|MetadataIncompleteBuffer",
            r"PytorchStreamReader failed",
            r"failed finding central directory",
            r"unexpected EOF, expected \d+ more bytes",
            r"Inconsistent checkpoint folder",
        ),
        "`beam-slurm prepare` names the model's bad files; a bad checkpoint is to be moved "
        "away, then --resume goes on from the one before",
    ),
    # Configuration
    Rule(
        "config",
        CAUSE,
        "no whole checkpoint to go on from",
        (r"no whole checkpoint",),
        "look at what the line calls unfinished; without --resume the run starts from scratch",
    ),
    Rule(
        "config",
        CAUSE,
        "an override or key that the framework does not have",
        (
            r"Could not override '",
            r"Config(?:Attribute|Key|Type|Composition)(?:Error|Exception)",
            r"Key '[^']*' is not in struct",
            r"Error parsing override|OverrideParseException|no viable alternative at input",
            r"MissingConfigException|Cannot find primary config",
            r"InterpolationKeyError|InterpolationResolutionError",
            r"[Mm]issing mandatory value",
        ),
        "mend the override or the recipe's key that the line names (`submit --dry-run` shows "
        "the command)",
    ),
    Rule(
        "config",
        CAUSE,
        "an argument that the program does not take",
        (
            r"unrecognized arguments:",
            r"error: argument ",
            r"error: the following arguments are required",
            r"\bNo such (?:option|command)\b",
            r"\bMissing option\b|\bInvalid value for\b",
        ),
        "mend the argument that the line names (`submit --dry-run` shows the command); the "
        "checkout may be of another version",
    ),
    Rule(
        "config",
        CAUSE,
        "a value of the wrong kind",
        (r"\d+ validation errors? for ", r"\bValidationError\b", r"yaml\.(?:scanner|parser)\."),
        "mend the value; the lines behind it in the log name each key",
    ),
    Rule(
        "config",
        CAUSE,
        "a cut that does not divide",
        (r"(?:must be|is not|not|should be|be evenly) divisible by",),
        "mend the cut or the batch: `beam-slurm plan` checks all of these before a run",
    ),
    Rule(
        "config",
        CAUSE,
        "more GPUs or CPUs wanted than Ray has",
        (
            r"Cluster resources may be insufficient",
            r"Ray has \d+ GPUs, the job \d+",
            r"[Pp]lacement group .*(?:timed out|infeasible|not ready)",
        ),
        "the layout and the job's nodes do not agree: compare `beam-slurm plan` with "
        "hardware.nodes and the overrides",
    ),
    Rule(
        "config",
        CAUSE,
        "a model or data set that has to be fetched",
        (
            r"couldn't connect to 'https://huggingface\.co'",
            r"LocalEntryNotFoundError|OfflineModeIsEnabled|RepositoryNotFoundError|GatedRepoError",
            r"is not a local folder and is not a valid model identifier",
            r"HFValidationError",
        ),
        "fetch it first (`beam-slurm prepare`) and give its path (site.paths.models, "
        "site.paths.datasets)",
    ),
    Rule(
        "config",
        CAUSE,
        "W&B without a key",
        (
            r"api_key not configured|No API key configured|wandb login",
            r"WANDB_API_KEY.*(?:required|must|not set|missing)",
            r"wandb\.errors\.\S*(?:UsageError|AuthenticationError)",
        ),
        "export WANDB_API_KEY before submitting, or turn W&B off",
    ),
    Rule(
        "config",
        CAUSE,
        "a program, script or interface that is not there",
        (
            r"can't open file '.*': \[Errno 2\]",
            r"^(?:\S+: )?cannot start \S+: ",
            r"^(?:/bin/)?(?:ba)?sh: (?:line \d+: )?\S+: (?:command not found|No such file)",
            r"exec: \"\S+\": (?:executable file not found|stat)",
            r"execve\(\): \S+: No such file",
            r"the entry exited with code 12[67]$",
            r"network interface '\S+' is not here|no usable IPv4 address|no address of this node",
        ),
        "mend the path, name or interface that the line names; it must be there on the nodes, "
        "in the image",
    ),
    Rule(
        "framework",
        CAUSE,
        "numbers that are not finite",
        (r"found (?:NaN|Inf)\b", r"\b(?:loss|grad\S*)\b.* is (?:nan|inf|NaN|Inf)\b"),
        "go on from a checkpoint before it (--resume) with a lower learning rate; if it comes "
        "again on one node, leave that out",
    ),
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

# Nothing in the table was seen, by what failed first.
DEFAULTS = {
    "entry": Rule(
        "framework",
        VAGUE,
        "anything else that the entry says",
        (),
        "read its traceback (`beam-slurm logs RUN`); without one, attempt-*/ray/NODE.logs.tar.gz",
    ),
    "watchdog": Rule(
        "framework",
        VAGUE,
        "no step, no output and no checkpoint for too long",
        (),
        "attempt-*/stacks/NODE.txt shows where each process waits; raise recipe.watchdog if it "
        "was only slow",
    ),
    "slurm": Rule(
        "node",
        VAGUE,
        "a step that srun could not start or keep",
        (),
        "srun's words are in `beam-slurm logs RUN`; leave the node that they name out "
        "(site.exclude)",
    ),
    "ray": Rule(
        "node",
        VAGUE,
        "Ray did not start or ended on a node",
        (),
        "`beam-slurm logs RUN --ray NODE`, then attempt-*/ray/NODE.logs.tar.gz; leave the node "
        "out if it is the same again",
    ),
    "preflight": Rule(
        "node",
        VAGUE,
        "not enough nodes that are fit",
        (),
        "attempt-*/preflight.json says what each node lacks; leave the bad ones out "
        "(site.exclude) or ask for job.spares",
    ),
}
DEFAULTS["gate"] = DEFAULTS["ray"]
