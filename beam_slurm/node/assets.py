"""Whether model and problems lie whole on this machine: names, sizes and headers, never the data.

A shard of safetensors says itself how long it must be: eight bytes (little-endian) with the length
of a JSON header, the header with the place of each tensor, then the tensors. So 1 TB takes as long
as opening its few hundred files. Everything here returns problems as sentences; no problem is an
empty list. Layout: safetensors' format, and transformers' index of shards.
"""

import argparse
import json
import os
import struct
import sys
from typing import Any, Dict, List, Optional, Tuple

MODEL_TYPE = "beam"
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")

# SkyRL's are stated by its cookbook; Miles' are those of its main branch, so assumed for Beam.
SKYRL = (
    "dapo-math-17k-cleaned.parquet",
    "aime-2024-cleaned.parquet",
    "aime-2025-cleaned.parquet",
)
MILES = ("dapo-math-17k/dapo-math-17k.jsonl", "aime-2025/aime-2025.jsonl")
NEMO_RL = ("BytedTsinghua-SIA/DAPO-Math-17k", "opencompass/AIME2025")

PARQUET = b"PAR1"  # the first and the last four bytes of every Parquet file
LONGEST_HEADER = 100_000_000  # bytes; safetensors itself refuses a longer one
SHOWN = 3  # problems of one kind that are told in full


def check_model(folder: str) -> List[str]:
    """What is wrong with the model in ``folder``: a Beam checkpoint in safetensors."""
    if not os.path.isdir(folder):
        return ["%s is not there" % folder]
    problems = _config(os.path.join(folder, "config.json"))
    problems += _weights(folder)
    if not any(os.path.isfile(os.path.join(folder, name)) for name in TOKENIZER):
        problems.append("%s has no tokenizer: neither %s" % (folder, " nor ".join(TOKENIZER)))
    return problems + _unfinished(os.path.join(folder, ".cache", "huggingface", "download"))


def check_datasets(framework: str, folder: str) -> List[str]:
    """What is wrong with a framework's problems to train and evaluate on.

    Args:
        framework: nemo-rl, skyrl, miles or demo.
        folder: SkyRL's DATA_DIR, Miles' --data-dir, NeMo RL's HF_HOME; the demo has no data.
    """
    if framework == "demo":
        return []
    if framework == "nemo-rl":
        return [line for name in NEMO_RL for line in _cached(folder, name)]
    names, check = {"skyrl": (SKYRL, _parquet), "miles": (MILES, _jsonl)}[framework]
    return [line for name in names for line in check(os.path.join(folder, name))]


def main(argv: List[str]) -> int:
    """Verify on this machine and say so; 0 if all is whole."""
    parser = argparse.ArgumentParser(prog="node.pyz verify")
    parser.add_argument("--framework", required=True)
    parser.add_argument("--model", help="folder of the model")
    parser.add_argument("--datasets", help="folder of the problems")
    wanted = parser.parse_args(argv)
    problems = []
    if wanted.model:
        problems += check_model(wanted.model)
    if wanted.datasets:
        problems += check_datasets(wanted.framework, wanted.datasets)
    for problem in problems:
        sys.stdout.write("beam-slurm: %s\n" % problem)
    for path in (wanted.model, wanted.datasets):
        if path and not problems:
            sys.stdout.write("beam-slurm: %s is whole\n" % path)
    return 1 if problems else 0


def _config(path: str) -> List[str]:
    config, problem = _object(path)
    if problem:
        return [problem]
    found = config.get("model_type")
    if found != MODEL_TYPE:
        return ["%s says model_type %s, not %s" % (path, json.dumps(found), MODEL_TYPE)]
    return []


def _weights(folder: str) -> List[str]:
    index = os.path.join(folder, INDEX)
    single = os.path.join(folder, SINGLE)
    if not os.path.exists(index):
        if os.path.exists(single):
            return check_shard(single, [])[1]
        return ["%s has no weights: neither %s nor %s" % (folder, INDEX, SINGLE)]
    read, problem = _object(index)
    names = read.get("weight_map")
    if problem or not isinstance(names, dict) or not names:
        return [problem or "%s has no weight_map" % index]
    tensors = {}  # type: Dict[str, List[str]]
    for tensor, shard in names.items():
        tensors.setdefault(str(shard), []).append(tensor)
    missing = [shard for shard in sorted(tensors) if not _is_file(folder, shard)]
    problems = []
    if missing:
        problems.append(
            "%d of %d shards are not in %s: %s" % (len(missing), len(tensors), folder, few(missing))
        )
    damaged = []
    total = 0
    for shard in sorted(set(tensors) - set(missing)):
        size, found = check_shard(os.path.join(folder, shard), tensors[shard])
        total += size
        damaged += found
    problems += damaged[:SHOWN]
    if len(damaged) > SHOWN:
        problems.append("and %d more problems of shards in %s" % (len(damaged) - SHOWN, folder))
    metadata = read.get("metadata")
    stated = metadata.get("total_size") if isinstance(metadata, dict) else None
    if stated is not None and not problems and total != stated:
        problems.append(
            "%s says total_size %s, the shards hold %d bytes of tensors" % (index, stated, total)
        )
    return problems


def check_shard(path: str, tensors: List[str]) -> Tuple[int, List[str]]:
    """(bytes of tensors, problems) of one file that is to hold ``tensors``."""
    try:
        size = os.path.getsize(path)
        with open(path, "rb") as file:
            start = file.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
            # A damaged length must not make us read the data.
            text = file.read(length) if length <= min(LONGEST_HEADER, size) else b""
    except OSError as error:
        return 0, ["%s cannot be read: %s" % (path, error.strerror)]
    if not 2 <= length <= LONGEST_HEADER:
        return 0, ["%s (%d bytes) does not begin as a safetensors file" % (path, size)]
    if len(text) < length:
        return 0, ["%s is cut off in its header: %d bytes of %d" % (path, size, 8 + length)]
    try:
        header = json.loads(text.decode())
        ends = {
            name: int(entry["data_offsets"][1])
            for name, entry in header.items()
            if name != "__metadata__"
        }
    except (ValueError, AttributeError, KeyError, TypeError, IndexError):
        return 0, ["%s has a header that is no safetensors header" % path]
    data = max(ends.values(), default=0)
    wanted = 8 + length + data
    if size != wanted:
        how = "cut off" if size < wanted else "too long"
        return 0, ["%s is %s: %d bytes, its header says %d" % (path, how, size, wanted)]
    lost = [name for name in tensors if name not in ends]
    if lost:
        return data, ["%s lacks %d of its tensors: %s" % (path, len(lost), few(sorted(lost)))]
    return data, []


def _unfinished(folder: str) -> List[str]:
    """Partial files that ``hf download --local-dir`` keeps until they are whole."""
    found = [
        os.path.relpath(os.path.join(at, name), folder)
        for at, _, names in os.walk(folder)
        for name in names
        if name.endswith(".incomplete")
    ]
    if not found:
        return []
    return [
        "%s holds %d partial downloads: %s; a download runs, or was broken off: prepare goes on "
        "with it" % (folder, len(found), few(sorted(found)))
    ]


def _cached(home: str, name: str) -> List[str]:
    """Whether Hugging Face's cache holds a snapshot of a data set, with its files."""
    folder = os.path.join(home, "hub", "datasets--" + name.replace("/", "--"))
    if not os.path.isdir(folder):
        return ["%s is not there: the cache does not hold %s" % (folder, name)]
    snapshots = os.path.join(folder, "snapshots")
    # Entries are links to blobs: a link whose blob is not there yet is no file.
    if not any(os.path.isfile(os.path.join(at, f)) for at, _, fs in os.walk(snapshots) for f in fs):
        return ["%s holds no snapshot of %s" % (folder, name)]
    return _unfinished(os.path.join(folder, "blobs"))


def _parquet(path: str) -> List[str]:
    try:
        size = os.path.getsize(path)
        with open(path, "rb") as file:
            start = file.read(4)
            file.seek(max(0, size - 4))
            end = file.read(4)
    except OSError as error:
        return [_unread(path, error)]
    if size < 12 or start != PARQUET:
        return ["%s (%d bytes) does not begin as a Parquet file" % (path, size)]
    return [] if end == PARQUET else ["%s is cut off after %d bytes" % (path, size)]


def _jsonl(path: str) -> List[str]:
    try:
        with open(path, "rb") as file:
            line = file.readline(LONGEST_HEADER)
    except OSError as error:
        return [_unread(path, error)]
    if not line.strip():
        return ["%s is empty" % path]
    try:
        json.loads(line.decode())
    except ValueError:
        return ["the first line of %s is no JSON" % path]
    return []


def _object(path: str) -> Tuple[Dict[str, Any], Optional[str]]:
    """(the JSON object in a file, what is wrong with it)."""
    try:
        with open(path, "rb") as file:
            found = json.loads(file.read().decode())
    except OSError as error:
        return {}, _unread(path, error)
    except ValueError:
        return {}, "%s is no JSON" % path
    return (found, None) if isinstance(found, dict) else ({}, "%s is no JSON object" % path)


def _unread(path: str, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "%s is not there" % path
    return "%s cannot be read: %s" % (path, error.strerror)


def _is_file(folder: str, name: str) -> bool:
    return os.path.isfile(os.path.join(folder, name))


def few(names: List[str]) -> str:
    """The first of ``names``, and how many there are beside them."""
    more = " and %d more" % (len(names) - SHOWN) if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
