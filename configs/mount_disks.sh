#!/usr/bin/env bash
# Mounts this machine's data disks at /mnt/raylog-0, /mnt/raylog-1, ...: every disk without
# partitions that is empty or has a file system with a label raylog-N. An empty disk gets an ext4 file system.
# A disk that has a file system keeps it, with its records. A second run changes nothing.
# ray_cluster.yaml runs this script on every machine before Ray starts.
set -euo pipefail

sudo udevadm settle
number=0
while read -r disk; do
    if [ "$(lsblk -nro NAME "$disk" | wc -l)" -gt 1 ]; then continue; fi # has partitions: a system disk
    label=$(sudo blkid -p -o value -s LABEL "$disk" || true)
    found=0
    sudo blkid -p "$disk" >/dev/null || found=$?
    if [ "$found" -eq 2 ]; then # blkid found nothing on the disk itself
        while [ -e "/dev/disk/by-label/raylog-$number" ]; do number=$((number + 1)); done
        label=raylog-$number
        sudo mkfs.ext4 -q -L "$label" "$disk"
        sudo udevadm settle
        number=$((number + 1))
    fi
    case $label in raylog-*) ;; *) continue ;; esac # not a disk of raylog
    folder=/mnt/$label
    sudo mkdir -p "$folder"
    grep -q "LABEL=$label " /etc/fstab ||
        echo "LABEL=$label $folder ext4 noatime,nofail 0 2" | sudo tee -a /etc/fstab >/dev/null
    mountpoint -q "$folder" || sudo mount "$folder"
    sudo chown "$(id -u):$(id -g)" "$folder"
    sudo chmod 700 "$folder"
done < <(lsblk -dnpro NAME,TYPE | awk '$2 == "disk" {print $1}' | sort)
