"""What Slurm, a GPU, a host or a container runtime says when it fails."""

from beam_slurm.node.rule import CAUSE, EFFECT, Rule

OUT_OF_TIME = Rule(
    "time",
    CAUSE,
    "Slurm: `DUE TO TIME LIMIT`",
    (r"DUE TO TIME LIMIT", r"^the job was ended\b.*\bTIMEOUT\b", r"\bout of time\b"),
    "submit again with --resume; raise job.time, or set job.total_time for a chain of jobs",
)

MACHINE = [
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
]
