"""Outputs of failed runs, as they look, and what is to be made of each."""

from __future__ import annotations

from typing import NamedTuple

POLICY = "(MegatronPolicyWorker pid=2671339, ip=10.65.16.209) "
CYAN = "\x1b[36m(RolloutManager pid=9021, ip=10.1.0.7)\x1b[0m "

# Every worker says the same behind it, and the driver's own end says less than they do.
TAIL = """\
(MegatronPolicyWorker pid=71, ip=10.65.16.3) Exception raised from recvBytes at Utils.hpp:671
(MegatronPolicyWorker pid=71, ip=10.65.16.3) frame #0: c10::Error::Error(c10::SourceLocation) + 0x57
(raylet) A worker died or was killed while executing a task by an unexpected system error.
Traceback (most recent call last):
  File "/opt/nemo-rl/examples/run_grpo.py", line 281, in <module>
    main()
ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.
\tclass_name: MegatronPolicyWorker
\tactor_id: 772b47483834f39d7b2aa6cc03000000
The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit \
detail: Worker unexpectedly exits with a connection error code 2. End of file. There are some \
potential root causes. (1) The process is killed by SIGKILL by OOM killer due to high memory usage.
wandb: You can sync this run to the cloud by running:
wandb: wandb sync /shared/logs/wandb/offline-run-20260824
srun: error: gpu001: task 0: Exited with exit code 1
"""
WATCHDOG = """\
(Worker pid=4009) [rank1]:[E ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective \
operation timeout: WorkNCCL(SeqNum=158046, OpType=ALLREDUCE, NumelIn=2867200, Timeout(ms)=600000) \
ran for 600027 milliseconds before timing out.
(Worker pid=4009) [rank1]:[E ProcessGroupNCCL.cpp:583] [Rank 1] To avoid data inconsistency, we \
are taking the entire process down.
"""
CLI = "subprocess.CalledProcessError: Command 'ray job submit' returned non-zero exit status 1.\n"


class Case(NamedTuple):
    """An output, and what is to be found in it."""

    cls: str
    cause: str  # stands in the cause
    text: str
    component: str = "entry"
    code: int = 1
    why: str = ""


CASES = {
    # Memory
    "torch, in a Ray worker": Case(
        "oom",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.37 GiB",
        "ray.exceptions.RayTaskError(OutOfMemoryError): ray::DTensorPolicyWorkerV2.get_logprobs() "
        "(pid=2671339, ip=10.65.16.209, actor_id=d5836b6045)\n"
        '  File "/opt/nemo-rl/nemo_rl/utils/nsys.py", line 119, in wrapper\n'
        "    ret = func(*args, **kwargs)\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.37 GiB. GPU 3 has a total "
        "capacity of 139.81 GiB of which 1.20 GiB is free.\n",
    ),
    "torch, with prefix and colour": Case(
        "oom",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 96.00 MiB (ip 10.1.0.7)",
        f"{CYAN}Traceback (most recent call last):\n"
        f'{CYAN}  File "/root/miles/train.py", line 31, in train\n'
        f"{CYAN}    loss.backward()\n"
        f"{CYAN}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 96.00 MiB\n",
    ),
    "NCCL waits for a rank that is out of memory": Case(
        "oom",
        "CUDA out of memory",
        WATCHDOG + POLICY + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n",
    ),
    "vLLM has no room for its cache": Case(
        "oom",
        "ValueError: No available memory for the cache blocks.",
        "ERROR 04-30 10:20:36 [core.py:396] EngineCore failed to start.\n"
        "ERROR 04-30 10:20:36 [core.py:396] Traceback (most recent call last):\n"
        'ERROR 04-30 10:20:36 [core.py:396]   File "/opt/vllm/v1/core/kv_cache.py", line 387, in '
        "f\n"
        'ERROR 04-30 10:20:36 [core.py:396]     raise ValueError("No available memory for the "\n'
        "ERROR 04-30 10:20:36 [core.py:396] ValueError: No available memory for the cache blocks. "
        "Try increasing `gpu_memory_utilization` when initializing the engine.\n"
        "RuntimeError: Engine core initialization failed. See root cause above.\n",
    ),
    "vLLM finds the GPU in use": Case(
        "oom",
        "Free memory on device",
        "(EngineCore_DP0 pid=7781) ValueError: Free memory on device (31.2/139.8 GiB) on startup "
        "is "
        "less than desired GPU memory utilization (0.6, 83.9 GiB).\n" + TAIL,
    ),
    "SGLang has no room for its cache": Case(
        "oom",
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        "[2026-04-23 21:31:41 TP2] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/opt/sglang/srt/managers/scheduler.py", line 2015, in run_scheduler_process\n'
        "    scheduler = Scheduler(server_args, port_args, gpu_id)\n"
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.\n"
        "[2026-04-23 21:31:42] Received sigquit from a child process. It usually means the child "
        "failed.\n",
    ),
    "Ray's memory monitor": Case(
        "oom",
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\n"
        "Memory on the node (IP: 10.0.0.2, ID: 8c5a) where the task was running was 1990GB / "
        "2000GB\n"
        "Consider provisioning more memory on this node.\n",
    ),
    "Ray's memory monitor, by its raylet": Case(
        "oom",
        "2 Workers (tasks / actors) killed due to memory pressure",
        "(raylet, ip=10.0.0.9) [2026-12-07 09:57:19,206 E 393463 393463] (raylet) "
        "node_manager.cc:3277: 2 Workers (tasks / actors) killed due to memory pressure (OOM), "
        "0 Workers crashed due to other reasons at node (ID: 8289, IP: 10.0.0.9)\n" + TAIL,
    ),
    "the kernel, as Slurm tells": Case(
        "oom",
        "Detected 1 oom_kill event",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=113.1. Some of the step tasks have "
        "been OOM Killed.\nsrun: error: gpu002: task 0: Out Of Memory\n",
        code=137,
    ),
    "the entry is killed without a word": Case(
        "oom",
        "the entry was ended by signal 9 (SIGKILL)",
        "========================= Step 12/200 =========================\n▶ Generating responses\n",
        code=137,
        why="the entry was ended by signal 9 (SIGKILL)",
    ),
    "torchrun's child is killed": Case(
        "oom",
        "exitcode : -9 (pid: 14750)",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
        "Root Cause (first observed failure):\n[0]:\n  rank      : 0 (local_rank: 0)\n"
        "  exitcode  : -9 (pid: 14750)\n  traceback : Signal 9 (SIGKILL) received by PID 14750\n",
    ),
    "a raylet is killed": Case(
        "oom",
        "node2: Ray's raylet was ended by signal 9 (SIGKILL)",
        "Some Ray subprocesses exited unexpectedly:\n  raylet [exit code=-9]\n"
        "Remaining processes will be killed.\n",
        component="ray",
        code=69,
        why="node2: Ray's raylet was ended by signal 9 (SIGKILL)",
    ),
    "a node's task is killed": Case(
        "oom", "node2: task 1: Killed", "", component="ray", code=69, why="node2: task 1: Killed"
    ),
    "shared memory": Case(
        "oom",
        "Error while creating shared memory segment /dev/shm/nccl-YsNtZF",
        "gpu001:183:220 [1] misc/shmutils.cc:72 NCCL WARN Error: failed to extend\n"
        "gpu001:183:220 [1] misc/shmutils.cc:113 NCCL WARN Error while creating shared memory "
        "segment "
        "/dev/shm/nccl-YsNtZF (size 33030528)\n"
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690, unhandled "
        "system error\nncclSystemError: System call (e.g. socket, malloc) or external library call "
        "failed or device error.\n",
    ),
    "a bus error": Case(
        "oom", "SIGBUS", "step 3\n", code=135, why="the entry was ended by signal 7 (SIGBUS)"
    ),
    "host memory": Case(
        "oom",
        "OSError: [Errno 12] Cannot allocate memory",
        'Traceback (most recent call last):\n  File "/usr/lib/python3.12/os.py", line 3, in fork\n'
        "    pid = os.fork()\nOSError: [Errno 12] Cannot allocate memory\n",
    ),
    # Nodes
    "ECC": Case(
        "node",
        "CUDA error: uncorrectable ECC error encountered",
        POLICY + "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
        "CUDA kernel errors might be asynchronously reported at some other API call.\n"
        "For debugging consider passing CUDA_LAUNCH_BLOCKING=1.\n"
        "[rank1]:[E ProcessGroupNCCL.cpp:916] NCCL watchdog thread terminated with exception: CUDA "
        "error: uncorrectable ECC error encountered\n",
    ),
    "off the bus": Case(
        "node",
        "GPU has fallen off the bus",
        WATCHDOG
        + "kernel: NVRM: Xid (PCI:0000:4e:00): 79, pid=2261, GPU has fallen off the bus.\n",
    ),
    "an Xid of the hardware": Case(
        "node",
        "Xid (PCI:0000:4e:00): 94",
        "NVRM: Xid (PCI:0000:4e:00): 94, pid=22613, name=ray::Worker, Contained: SM. RST: No\n",
    ),
    "an Xid of the program's": Case(
        "framework",
        "Xid (PCI:0000:4e:00): 31",
        "NVRM: Xid (PCI:0000:4e:00): 31, pid=22613, name=ray::Worker, MMU Fault: ENGINE GRAPHICS\n",
    ),
    "no GPU": Case(
        "node",
        "RuntimeError: No CUDA GPUs are available (ip 10.65.16.209)",
        POLICY + "RuntimeError: No CUDA GPUs are available\n" + TAIL,
    ),
    "a node is lost": Case(
        "node",
        "node3: Node failure",
        WATCHDOG + TAIL,
        component="ray",
        code=69,
        why="node3: Node failure",
    ),
    "a remote rank is gone": Case(
        "node",
        "ncclRemoteError: A call failed possibly due to a network error",
        "ncclRemoteError: A call failed possibly due to a network error or a remote process "
        "exiting "
        "prematurely.\nLast error:\nsocketProgressOpt: Call to recv from 172.16.0.4<33759> "
        "failed : "
        "Connection reset by peer\n",
    ),
    "a node of Ray's is dead": Case(
        "node",
        "The node with node id: 5b1f and address: 10.0.0.4",
        "(raylet) The node with node id: 5b1f and address: 10.0.0.4 and node name: gpu004 has been "
        "marked dead because the detector has missed too many heartbeats from it.\n" + TAIL,
    ),
    "a port is taken": Case(
        "node",
        "EADDRINUSE",
        POLICY
        + "torch.distributed.DistNetworkError: The server socket has failed to listen on any "
        "local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: "
        "address already in use\n",
    ),
    "too many open files": Case(
        "node", "[Errno 24] Too many open files", "OSError: [Errno 24] Too many open files: 'a'\n"
    ),
    "a worker never joins": Case(
        "node",
        "7 of 8 nodes joined Ray, missing: gpu007 (waited 1800 s)",
        "beam-slurm: 7 of 8 nodes joined Ray, missing: gpu007 (waited 1800 s)\n",
        component="gate",
        code=69,
        why="7 of 8 nodes joined Ray, missing: gpu007 (waited 1800 s)",
    ),
    "ray start fails": Case(
        "node",
        "gpu003: ray start failed with exit code 1: RuntimeError: odd",
        "$ ray start --head\nRuntimeError: odd\n",
        component="ray",
        code=69,
        why="gpu003: ray start failed with exit code 1: RuntimeError: odd",
    ),
    "preflight": Case(
        "node",
        "3 of 4 nodes are fit",
        "",
        component="preflight",
        code=69,
        why="3 of 4 nodes are fit, missing: gpu003 has 7 of 8 GPUs",
    ),
    # NCCL
    "a collective times out": Case(
        "nccl",
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=158046",
        "========================= Step 12/200 =========================\n" + WATCHDOG + TAIL,
    ),
    "the fabric": Case(
        "nccl",
        "Got completion from peer 10.0.35.1<49189> with status=12",
        "gpu2:25146:25854 [0] transport/net_ib.cc:1298 NCCL WARN NET/IB: Got completion from peer "
        "10.0.35.1<49189> with status=12 opcode=0 len=0 vendor err 129 (Send)\n"
        "gpu2:25146:25854 [0] NCCL INFO transport/net.cc:1137 -> 6\n" + WATCHDOG,
    ),
    "no interface": Case(
        "nccl",
        "Bootstrap : no socket interface found",
        "gpu1:1:2 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to ib9\n"
        "gpu1:1:2 [0] bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found\n"
        "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, internal error\n",
    ),
    "a system call": Case(
        "nccl",
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2021",
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2021, unhandled "
        "system error, NCCL version 2.27.5\nncclSystemError: System call (e.g. socket, malloc) "
        "failed "
        "or device error.\nsocketStartConnect: Connect to 10.0.0.2<45763> failed : Connection "
        "refused\n",
    ),
    # Storage
    "a full disk while a checkpoint is saved": Case(
        "storage",
        "OSError: [Errno 28] No space left on device: '/shared/out/step_20/policy'",
        "Saving checkpoint for step 20...\n"
        'Traceback (most recent call last):\n  File "/opt/torch/serialization.py", line 965, in '
        "save\n"
        "    _save(obj, opened_zipfile)\n"
        "OSError: [Errno 28] No space left on device: '/shared/out/step_20/policy'\n"
        "\nDuring handling of the above exception, another exception occurred:\n\n"
        "Traceback (most recent call last):\n"
        "RuntimeError: [enforce fail at inline_container.cc:664] . unexpected pos 704 vs 598\n"
        "Exception ignored in: <function ZipFile.__del__ at 0x7f>\nTraceback (most recent call "
        "last):\n"
        "ValueError: seek of closed file\n",
    ),
    "a write that fails": Case(
        "storage",
        "PytorchStreamWriter failed writing file data/322: file write failed",
        POLICY + "RuntimeError: [enforce fail at inline_container.cc:857] . PytorchStreamWriter "
        "failed writing file data/322: file write failed\n" + TAIL,
    ),
    "quota": Case(
        "storage",
        "Disk quota exceeded",
        "OSError: [Errno 122] Disk quota exceeded: '/h/x'\n" + TAIL,
    ),
    "a stale handle": Case(
        "storage", "Stale file handle", POLICY + "OSError: [Errno 116] Stale file handle\n" + TAIL
    ),
    "an I/O error": Case(
        "storage",
        "Input/output error",
        "OSError: [Errno 5] Input/output error: '/l/m'\n" + WATCHDOG,
    ),
    "read-only": Case(
        "storage",
        "[Errno 30] Read-only file system: '/home/me/.cache'",
        "OSError: [Errno 30] Read-only file system: '/home/me/.cache'\n",
    ),
    "a damaged model": Case(
        "storage",
        "SafetensorError: Error while deserializing header: MetadataIncompleteBuffer",
        POLICY + "safetensors_rust.SafetensorError: Error while deserializing header: "
        "MetadataIncompleteBuffer\n" + TAIL,
    ),
    "a drive that is too small": Case(
        "storage",
        "gpu003: /nvme has 412.0 GB free, the recipe needs 700.0",
        "",
        component="ray",
        code=69,
        why="gpu003: /nvme has 412.0 GB free, the recipe needs 700.0",
    ),
    "a mount that is not there": Case(
        "storage",
        "/shared/models is not here",
        "",
        component="ray",
        code=69,
        why="gpu003: /shared/models is not here, and /shared/models:/root/models is to be mounted",
    ),
    # Containers
    "pyxis cannot import": Case(
        "container",
        "Write failed because No space left on device",
        "pyxis: importing docker image ...\n"
        "slurmstepd: error: pyxis: child 52574 failed with error code: 1\n"
        "slurmstepd: error: pyxis: failed to import docker image\n"
        "slurmstepd: error: pyxis: printing contents of log file ...\n"
        "slurmstepd: error: pyxis:     [INFO] Querying registry for permission grant\n"
        "slurmstepd: error: pyxis:     Write failed because No space left on device\n"
        "slurmstepd: error: pyxis:     FATAL ERROR:Failed to write to output filesystem\n"
        "slurmstepd: error: spank: required plugin spank_pyxis.so: task_init() failed with rc=-1\n"
        "srun: error: gpu001: task 0: Exited with exit code 1\n",
        component="slurm",
        why="the driver step exited with code 1",
    ),
    "pyxis cannot start": Case(
        "container",
        "enroot-mount: failed to mount: /home/me/data at /tmp/enroot-data/data: Permission denied",
        "slurmstepd: error: pyxis: container start failed with error code: 1\n"
        "slurmstepd: error: pyxis: printing enroot log file:\n"
        "slurmstepd: error: pyxis:     enroot-mount: failed to mount: /home/me/data at "
        "/tmp/enroot-data/data: Permission denied\n"
        "slurmstepd: error: pyxis: couldn't start container\n",
        component="slurm",
        why="the driver step exited with code 1",
    ),
    "no user namespace": Case(
        "container",
        "enroot-nsenter: failed to create user namespace: No space left on device",
        "slurmstepd: error: pyxis:     enroot-nsenter: failed to create user namespace: No space "
        "left "
        "on device\nslurmstepd: error: pyxis: couldn't start container\n",
        component="slurm",
        why="the driver step exited with code 1",
    ),
    "Docker has no such image": Case(
        "container",
        "gpu003: docker ended with code 125: docker: Error response from daemon: pull access "
        "denied",
        "",
        component="ray",
        code=69,
        why="gpu003: docker ended with code 125: docker: Error response from daemon: pull access "
        "denied for beam, repository does not exist",
    ),
    "Docker has no GPUs": Case(
        "container",
        "could not select device driver",
        'docker: Error response from daemon: could not select device driver "" with capabilities: '
        "[[gpu]].\n\nRun 'docker run --help' for more information\n",
        component="ray",
        code=69,
        why="gpu003: docker ended with code 125: docker: Error response from daemon: could not "
        "select "
        'device driver "" with capabilities: [[gpu]].',
    ),
    "Podman": Case(
        "container",
        "Error: crun: cannot stat",
        "Error: crun: cannot stat `/shared/models`: No such file or directory: OCI runtime "
        "attempted "
        "to invoke a command that was not found\n",
        component="slurm",
        code=127,
        why="the driver step exited with code 127",
    ),
    "Apptainer": Case(
        "container",
        "FATAL: container creation failed: mount hook function failure",
        "INFO:    squashfuse not found, will not be able to mount SIF\n"
        "FATAL:   container creation failed: mount hook function failure: mount /proc/self/fd/3 "
        "error: while mounting image: kernel reported a bad superblock for squashfs\n",
        component="slurm",
        code=255,
        why="the driver step exited with code 255",
    ),
    "an old driver": Case(
        "container",
        "CUDA driver version is insufficient for CUDA runtime version",
        "RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version\n",
    ),
    "another GPU": Case(
        "container",
        "no kernel image is available",
        "torch.AcceleratorError: CUDA error: no kernel image is available for execution on the "
        "device\n" + TAIL,
    ),
    "a module is missing": Case(
        "container",
        "ModuleNotFoundError: No module named 'nemo_rl'",
        'Traceback (most recent call last):\n  File "/opt/x/examples/run_grpo.py", line 15, in '
        "<module>"
        "\n    import nemo_rl\nModuleNotFoundError: No module named 'nemo_rl'\n",
    ),
    "no Ray": Case(
        "container",
        "has no Ray",
        "",
        component="gate",
        code=69,
        why="this Python (/usr/bin/python3) has no Ray: No module named 'ray'",
    ),
    # Configuration
    "Hydra": Case(
        "config",
        "Could not override 'trainer.epoch'.",
        "Could not override 'trainer.epoch'.\nTo append to your config use +trainer.epoch=3\n"
        "Key 'epoch' is not in struct\n    full_key: trainer.epoch\n    object_type=dict\n\n"
        "Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.\n",
    ),
    "OmegaConf": Case(
        "config",
        "omegaconf.errors.ConfigAttributeError: Missing key val_perod",
        'Traceback (most recent call last):\n  File "/opt/nemo-rl/examples/run_grpo.py", line 9, '
        "in f\n"
        "    config.grpo.val_perod\nomegaconf.errors.ConfigAttributeError: Missing key val_perod\n"
        "    full_key: grpo.val_perod\n    object_type=dict\n",
    ),
    "argparse, by Miles' job": Case(
        "config",
        "train.py: error: unrecognized arguments: --rollout-nmber 3",
        "EXEC: ray job submit -- python3 train.py --rollout-nmber 3 --wandb-key ***\n"
        "usage: train.py [-h] [--tensor-model-parallel-size N]\n"
        "train.py: error: unrecognized arguments: --rollout-nmber 3\n"
        "---------------------------------------\nJob 'raysubmit_x' failed\n"
        "---------------------------------------\nStatus message: Job entrypoint command failed "
        "with "
        "exit code 2, last available logs (truncated to 20,000 chars):\n" + CLI,
    ),
    "Typer": Case(
        "config",
        "No such option: --nun-rollout",
        "Usage: run_beam.py execute [OPTIONS]\n╭─ Error ─────────────────────────╮\n"
        "│ No such option: --nun-rollout   │\n╰─────────────────────────────────╯\n",
        code=2,
    ),
    "pydantic": Case(
        "config",
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for MasterConfig",
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for MasterConfig\n"
        "grpo.num_prompts_per_step\n  Input should be a valid integer [type=int_parsing]\n"
        "    For further information visit https://errors.pydantic.dev/2.11/v/int_parsing\n",
    ),
    "a cut": Case(
        "config",
        "AssertionError: world size (128) is not divisible by",
        "(skyrl_entrypoint pid=31) \x1b[32m2026-08-21 10:00:00.123\x1b[0m | \x1b[1mINFO    "
        "\x1b[0m | "
        "skyrl.train:main:3 - validated\n(skyrl_entrypoint pid=31) AssertionError: world size "
        "(128) "
        "is not divisible by pp*cp*tp (6)\n" + TAIL,
    ),
    "too few GPUs": Case(
        "config",
        "Maximum number of retries reached (6). Cluster resources may be insufficient",
        "▶ Setting up compute cluster...\n"
        "Not enough GPUs available. Requested 16 GPUs, but only 8 are available in the cluster.\n"
        "Retrying placement group creation... 1/6. Next retry in 1 seconds.\n"
        "nemo_rl.distributed.virtual_cluster.ResourceInsufficientError: Maximum number of retries "
        "reached (6). Cluster resources may be insufficient or cluster itself is highly "
        "unstable.\n",
    ),
    "a model to fetch": Case(
        "config",
        "We couldn't connect to 'https://huggingface.co'",
        "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and "
        "couldn't find "
        "them in the cached files.\n" + TAIL,
    ),
    "no key for W&B": Case(
        "config",
        "wandb.errors.errors.UsageError: api_key not configured (no-tty). call wandb.login",
        "wandb: Currently logged in as: nobody\n"
        "wandb.errors.errors.UsageError: api_key not configured (no-tty). call wandb.login\n",
    ),
    "no such program": Case(
        "config",
        "cannot start python: No such file or directory",
        "",
        code=127,
        why="cannot start python: No such file or directory",
    ),
    "no such program, by a shell": Case(
        "config", "bash: uv: command not found", "bash: uv: command not found\n", code=127
    ),
    "127 without a word": Case("config", "exited with code 127", "", code=127),
    "no such script": Case(
        "config",
        "can't open file '/w/run.py': [Errno 2] No such file or directory",
        "python: can't open file '/w/run.py': [Errno 2] No such file or directory\n",
        code=2,
    ),
    "no such data": Case(
        "config",
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/aime.parquet'",
        "Traceback (most recent call last):\nFileNotFoundError: [Errno 2] No such file or "
        "directory: "
        "'/data/aime.parquet'\n" + TAIL,
    ),
    # Slurm
    "the time limit": Case(
        "time",
        "DUE TO TIME LIMIT",
        "Step 12\nslurmstepd: error: *** JOB 123 ON gpu001 CANCELLED AT 2026-08-24T10:00:00 DUE TO "
        "TIME LIMIT ***\n" + POLICY + "torch.OutOfMemoryError: CUDA out of memory\n",
        component="slurm",
        code=143,
        why="the job was ended",
    ),
    "time is up and the entry has ended well": Case(
        "time",
        "the entry stopped at its deadline",
        "",
        code=75,
        why="the entry stopped at its deadline",
    ),
    "preemption": Case(
        "preempted",
        "DUE TO PREEMPTION",
        "slurmstepd: error: *** JOB 123 ON gpu001 CANCELLED AT 2026-08-24T10:00:00 DUE TO "
        "PREEMPTION "
        "***\n",
        component="slurm",
        code=143,
        why="the job was ended",
    ),
    "scancel": Case(
        "cancelled",
        "the job was ended",
        "step 3\n" + WATCHDOG + "OSError: [Errno 28] No space left on device\n",
        component="slurm",
        code=143,
        why="the job was ended",
    ),
    # With less to go by
    "pyxis, in short": Case(
        "container",
        "pyxis: couldn't start container",
        "slurmstepd: error: pyxis: couldn't start container\n",
        component="slurm",
        why="the driver step exited with code 1",
    ),
    "srun, in short": Case(
        "node",
        "the driver step exited with code 1",
        "srun: error: Unable to create step for job 12: Job/step already completing\n",
        component="slurm",
        why="the driver step exited with code 1",
    ),
    "nothing to go on from": Case(
        "config",
        "there is no whole checkpoint in /shared/out",
        "",
        component="preflight",
        code=2,
        why="there is no whole checkpoint in /shared/out to resume from: step_20 is unfinished",
    ),
    "rights": Case(
        "storage",
        "PermissionError: [Errno 13] Permission denied: '/shared/out/x'",
        "PermissionError: [Errno 13] Permission denied: '/shared/out/x'\n" + CLI,
    ),
    # The program itself
    "an exception": Case(
        "framework",
        "ValueError: reward has 3 values, 4 responses",
        "Traceback (most recent call last):\n"
        '  File "/opt/x/train.py", line 20, in step\n    check(reward)\n'
        "ValueError: reward has 3 values, 4 responses\n"
        "Exception ignored in atexit callback: <function close at 0x7f>\n"
        "Traceback (most recent call last):\nBrokenPipeError: [Errno 32] Broken pipe\n"
        "wandb: 🚀 View run at https://wandb.ai/x\n",
    ),
    "an exception in a Ray task": Case(
        "framework",
        "KeyError: 'aime25' (ip 10.65.16.209)",
        f"{POLICY}Traceback (most recent call last):\n{POLICY}KeyError: 'aime25'\n"
        "ray.exceptions.RayTaskError(KeyError): ray::skyrl_entrypoint() (pid=31, ip=10.0.0.1)\n",
    ),
    "an exception in a box": Case(
        "framework",
        "RuntimeError: nothing to do",
        "╭───────── Traceback (most recent call last) ─────────╮\n"
        "│ /root/miles/scripts/run_beam.py:12 in main           │\n"
        '│   12     raise OSError("No space left on device")    │\n'
        "╰──────────────────────────────────────────────────────╯\nRuntimeError: nothing to do\n",
    ),
    "an exit code and a word": Case(
        "framework",
        "the entry exited with code 3: reward model is not in step with the policy",
        "reward model is not in step with the policy\nsrun: error: gpu1: task 0: Exited with "
        "exit code 3\n",
        code=3,
        why="the entry exited with code 3",
    ),
    "NaN": Case(
        "framework",
        "AssertionError: Rank 3: found NaN in local grad norm for bucket #0",
        POLICY
        + "AssertionError: Rank 3: found NaN in local grad norm for bucket #0 in backward pass\n"
        + WATCHDOG,
    ),
    "native code": Case(
        "framework",
        "*** SIGSEGV received at time=1757940003",
        "*** SIGSEGV received at time=1757940003 on cpu 31 ***\n" + TAIL,
        code=139,
        why="the entry was ended by signal 11 (SIGSEGV)",
    ),
    "an illegal address": Case(
        "framework",
        "CUDA error: an illegal memory access was encountered",
        POLICY
        + "torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n"
        + WATCHDOG,
    ),
    "a launch that fails": Case(
        "node",
        "CUDA error: unspecified launch failure",
        POLICY + "torch.AcceleratorError: CUDA error: unspecified launch failure\n" + WATCHDOG,
    ),
    "an engine that takes too long": Case(
        "framework",
        "RuntimeError: Timed out waiting for 8 inference servers to become healthy",
        "(skyrl_entrypoint pid=31) RuntimeError: Timed out waiting for 8 inference servers to "
        "become healthy\n",
    ),
    "a worker without a word": Case("framework", "Worker exit type: SYSTEM_ERROR", TAIL),
    "a hang": Case(
        "framework",
        "no new step for 7200 s",
        "ModuleNotFoundError: No module named 'apex'\nStep 12\n",
        component="watchdog",
        code=69,
        why="no new step for 7200 s",
    ),
    "a hang in a collective": Case(
        "nccl",
        "no new step for 7200 s: [E ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught",
        WATCHDOG,
        component="watchdog",
        code=69,
        why="no new step for 7200 s",
    ),
}
