"""What a run says that asks for too much or for what is not there."""

from beam_slurm.node.rule import CAUSE, Rule

RUN = [
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
]
