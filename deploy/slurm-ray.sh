#!/bin/bash
# Train on several nodes of a Slurm cluster:
#
#     sbatch slurm-ray.sh DATA MODEL STORAGE [options of umpteen train]
#
# DATA, MODEL and STORAGE are on a file system that all nodes share. The environment with umpteen[ray] is too, or it is
# installed on every node in the same versions. Submit the same line again to resume.
#SBATCH --job-name=umpteen
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --mem=64G
#SBATCH --time=12:00:00

set -euo pipefail
data=$1 model=$2 storage=$3
shift 3

source "${UMPTEEN_ENVIRONMENT:-$HOME/umpteen}/bin/activate"

# Only processes that have the token can use the Ray cluster of this job.
RAY_AUTH_TOKEN=$(python -c 'import secrets; print(secrets.token_hex(32))')
export RAY_AUTH_TOKEN RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0

# This script runs on the first node, which becomes the head of the cluster and trains as well.
ip=$(hostname --ip-address | awk '{print $1}')
port=$((20000 + SLURM_JOB_ID % 10000))
node=(--disable-usage-stats --num-cpus="$SLURM_CPUS_PER_TASK" --object-store-memory=200000000 --block)
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT

srun --overlap --nodes=1 --ntasks=1 --nodelist="$SLURMD_NODENAME" \
    ray start --head --node-ip-address="$ip" --port="$port" --include-dashboard=false "${node[@]}" &
until (exec 3<> "/dev/tcp/$ip/$port") 2> /dev/null; do sleep 1; done

if ((SLURM_NNODES > 1)); then
    # A node that fails must not end the others: their tasks go on, and its tasks are run again.
    srun --overlap --nodes=$((SLURM_NNODES - 1)) --ntasks=$((SLURM_NNODES - 1)) --exclude="$SLURMD_NODENAME" \
        --no-kill --kill-on-bad-exit=0 ray start --address="$ip:$port" "${node[@]}" &
fi

umpteen train "$data" -o "$model" --engine ray --address "$ip:$port" --storage "$storage" "$@"
