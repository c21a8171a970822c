#!/bin/bash
# One host of the floor. usage: floor-node.sh HEAD_IP CPUS GPUS
ip=$1 cpus=$2 gpus=$3
if [[ $SLURM_PROCID == 0 ]]; then
  exec ray start --head --node-ip-address="$ip" --port=6379 --num-cpus="$cpus" --num-gpus="$gpus" \
    --block --disable-usage-stats
fi
until (exec 3<>"/dev/tcp/$ip/6379") 2>/dev/null; do sleep 0.1; done
exec ray start --address="$ip:6379" --num-cpus="$cpus" --num-gpus="$gpus" --block
