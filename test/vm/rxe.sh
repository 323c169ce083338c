#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# rxe.sh N: makes N software RDMA devices (RoCEv2), rxe0 …, each on a network interface of its own: roce0 … with the
# addresses 10.77.0.1 …, joined by a cable if there are two, else by a bridge. The driver works in the first network
# namespace only, so all are in it, and rules see to it that what goes from one device to another takes the cable although
# both addresses are of this machine.
set -euo pipefail

count=${1:-2}
[[ $count =~ ^[0-9]$ ]] || { echo "rxe.sh: from 0 to 9 devices" >&2; exit 2; }
[ "$count" -gt 0 ] || exit 0

# The largest RDMA MTU, 4096, and room for the headers.
mtu=4200

modules=(rdma_rxe ib_uverbs rdma_ucm dummy)
[ "$count" -eq 1 ] || modules+=(veth)
[ "$count" -le 2 ] || modules+=(bridge)
modprobe -a "${modules[@]}"
for setting in accept_local=1 rp_filter=0 arp_ignore=1 arp_announce=2; do
    echo "${setting#*=}" >"/proc/sys/net/ipv4/conf/all/${setting%=*}"
done

interfaces()
{
    local i

    case $count in
    1) echo "link add roce0 mtu $mtu type dummy" ;;
    2) echo "link add roce0 mtu $mtu type veth peer name roce1 mtu $mtu" ;;
    *)
        echo "link add roce mtu $mtu up type bridge"
        for ((i = 0; i < count; i++)); do
            echo "link add roce$i mtu $mtu type veth peer name to$i mtu $mtu"
            echo "link set to$i master roce up"
        done
        ;;
    esac
    for ((i = 0; i < count; i++)); do
        echo "link set roce$i up"
        echo "address add 10.77.0.$((i + 1))/24 dev roce$i"
    done
}

rules()
{
    local i address table

    for ((i = 0; i < count; i++)); do
        address=10.77.0.$((i + 1)) table=$((100 + i))
        echo "route add 10.77.0.0/24 dev roce$i src $address table $table"
        echo "rule add pref 10 iif roce$i lookup local"
        echo "rule add pref 20 from $address to $address lookup local"
        echo "rule add pref 30 from $address lookup $table"
        # No source yet: whoever asks for the way gets one of another device.
        echo "rule add pref 40 to $address lookup $((i == 0 ? 101 : 100))"
    done
    echo "rule add pref 50 lookup local"
    echo "rule delete pref 0 lookup local"
}

interfaces | ip -batch -
[ "$count" -eq 1 ] || rules | ip -batch -

# The core that sends is the one that takes in, unless told otherwise, and a queue pair sends from several: then packets overtake
# each other and much is sent again. By flow, as an adapter does it, those of a queue pair stay in order.
for queue in /sys/class/net/{roce,to}[0-9]*/queues/rx-*/rps_cpus; do
    [ ! -e "$queue" ] || printf '%x\n' $(((1 << $(nproc)) - 1)) >"$queue"
done

for ((i = 0; i < count; i++)); do
    rdma link add "rxe$i" type rxe netdev "roce$i"
done

# A port is active once its interface has a carrier.
for ((i = 0; i < count; i++)); do
    for ((try = 0; try < 300; try++)); do
        [[ $(rdma link show "rxe$i/1") != *"state ACTIVE"* ]] || continue 2
        sleep 0.1
    done
    echo "rxe.sh: rxe$i is not active" >&2
    exit 1
done
