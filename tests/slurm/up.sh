#!/usr/bin/env bash
# A real SLURM on one Debian machine, for the tests in tests/cluster: two nodes with two pretended GPUs each.
#
#   tests/slurm/up.sh      installs SLURM from Debian if need be, starts it, waits until both nodes are idle
#   tests/slurm/down.sh    stops what this started
#
# Needs root. A second call finds everything running and changes nothing. There is no accounting database, no cgroup
# and no confinement of devices: what those add on a real cluster is not tried here. Each node is a slurmd of its own
# (`-N`), which claims more CPUs and memory than the machine has, so that the profile for real clusters fits unchanged.
set -euo pipefail

STATE=${SLURM_TEST_STATE:-/var/tmp/servebench-slurm}
CONFIG=/etc/slurm
MARK="# made by tests/slurm/up.sh"
NODES=(node1 node2)
GPUS=2
HOST=$(hostname -s)

source "$(dirname "$0")/../services.sh"

[ "$(id -u)" = 0 ] || fail "must run as root: slurmd starts jobs for users"

PACKAGES=(slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge)
if ! dpkg --status "${PACKAGES[@]}" >/dev/null 2>&1; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "${PACKAGES[@]}" >/dev/null
fi

mkdir -p "$STATE" "$CONFIG" /run/munge
install -d -o slurm -g slurm "$STATE/controller"
chown munge:munge /run/munge
for node in "${NODES[@]}"; do mkdir -p "$STATE/$node"; done

slurm_conf() {
    cat <<CONF
$MARK
ClusterName=test
SlurmctldHost=$HOST(127.0.0.1)
SlurmUser=slurm
AuthType=auth/munge
# A job that is queued again waits until its old credential is out of date: 2 minutes unless said.
AuthInfo=cred_expire=10
# Works in any container; real clusters have cgroups. A job is what is in its process group: whatever of ours left that
# (engine, guard, workers) gets no signal from SLURM and must end by our own doing.
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
# Without a database, jobs are asked after with squeue; it must remember them for a while.
AccountingStorageType=accounting_storage/none
MinJobAge=300
GresTypes=gpu
SelectType=select/cons_tres
# Jobs go to the least loaded node first, so that two of them use both nodes.
SelectTypeParameters=CR_Core_Memory,CR_LLN
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0
ReturnToService=2
JobRequeue=1
# As on most clusters: from SIGTERM to SIGKILL.
KillWait=30
StateSaveLocation=$STATE/controller
SlurmctldLogFile=$STATE/controller/log
SlurmctldPidFile=$STATE/controller/pid
SlurmdSpoolDir=$STATE/%n
SlurmdLogFile=$STATE/%n/log
SlurmdPidFile=$STATE/%n/pid
CONF
    local port=6820
    for node in "${NODES[@]}"; do
        echo "NodeName=$node NodeHostname=$HOST NodeAddr=127.0.0.1 Port=$((++port)) CPUs=32 RealMemory=256000 Gres=gpu:$GPUS"
    done
    local all
    all=$(IFS=, && echo "${NODES[*]}")
    echo "PartitionName=gpu Nodes=$all Default=YES MaxTime=04:00:00 DefaultTime=00:05:00"
}

gres_conf() { # pretended devices: SLURM only wants files
    echo "$MARK"
    local number=0
    for node in "${NODES[@]}"; do
        for _ in $(seq "$GPUS"); do
            local file="$STATE/gpu$((number++))"
            [ -e "$file" ] || mknod -m 666 "$file" c 1 3
            echo "NodeName=$node Name=gpu File=$file"
        done
    done
}

for file in slurm gres; do
    target=$CONFIG/$file.conf
    if [ -e "$target" ] && ! grep -qF "$MARK" "$target"; then fail "$target is not mine; this machine has another SLURM"; fi
    "${file}_conf" >"$STATE/$file.conf"
    cmp -s "$STATE/$file.conf" "$target" && continue
    if running "$STATE/slurmctld.pid"; then fail "the configuration has changed; run tests/slurm/down.sh first"; fi
    install -m 644 "$STATE/$file.conf" "$target"
done

munge --no-input >/dev/null 2>&1 || start munged setpriv --reuid=munge --regid=munge --init-groups /usr/sbin/munged --foreground
within 20 munge --no-input || fail "munged does not answer; see $STATE/munged.out"
start slurmctld slurmctld -D
within 30 sh -c 'scontrol ping | grep -q "is UP"' || fail "slurmctld does not answer; see $STATE/controller/log"
for node in "${NODES[@]}"; do start "slurmd-$node" slurmd -D -N "$node"; done

idle() { [ "$(sinfo --noheader --Node --format '%t' | grep -c '^idle$')" = ${#NODES[@]} ]; }
busy() { sinfo --noheader --Node --format '%t' | grep -qE '^(mix|alloc)'; }
if ! within 30 idle && ! busy; then
    for node in "${NODES[@]}"; do scontrol update "NodeName=$node" State=RESUME || true; done
    within 20 idle || fail "the nodes are not idle: $(sinfo --noheader --Node --format '%N %t %E' | tr '\n' ';'); see $STATE/node1/log"
fi
sinfo --format '%P %N %t %G %c CPUs %m MB, at most %l'
