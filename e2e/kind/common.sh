# What the scripts of this folder share. Sourced by them.
# shellcheck shell=bash
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# The host runs the control plane and a fleet API as pods of its own.
host=muster-host
namespace=muster-system
tag=e2e
registry=ghcr.io/muster-io
node_image='kindest/node:v1.33.1@sha256:050072256b9a903bd914c0b2866828150cb229cea0efe5892e2b644d5dd3b34f'
# Three, because the scenarios want three; the scripts work with two.
read -ra members <<<"${MUSTER_KIND_MEMBERS:-member1 member2 member3}"

say() { printf '== %s\n' "$*"; }

# The sandbox's workload with its policy: one replica in the first member, two in the second.
web() {
    sed -e "s/member1/FIRST/g; s/member2/SECOND/g; s/FIRST/${members[0]}/g; s/SECOND/${members[1]}/g" "$root/e2e/sandbox/src/manifests/web.yaml"
}

# A file as base64 in one line, with what GNU's and BSD's tools have in common.
encoded() { base64 <"$1" | tr -d '\n'; }

# Prints a kubeconfig: server, file of its root certificate, then a key and value of the user's credentials for each further pair.
kubeconfig() {
    local server=$1 root_certificate=$2
    shift 2
    printf 'apiVersion: v1\nkind: Config\ncurrent-context: it\ncontexts: [{name: it, context: {cluster: it, user: it}}]\n'
    printf 'clusters: [{name: it, cluster: {server: "%s", certificate-authority-data: %s}}]\n' "$server" "$(encoded "$root_certificate")"
    printf 'users: [{name: it, user: {'
    while [ $# -gt 1 ]; do
        printf '%s: %s' "$1" "$2"
        shift 2
        [ $# -le 1 ] || printf ', '
    done
    printf '}}]\n'
}

# Runs a command again and again until it succeeds: seconds, what is waited for, command.
until_it() {
    local deadline=$((SECONDS + $1)) what=$2
    shift 2
    say "waiting until $what"
    [ -z "${MUSTER_KIND_DRY_RUN:-}" ] || { "$@" || true; return 0; }
    until "$@"; do
        if [ "$SECONDS" -ge "$deadline" ]; then
            say "not in time: $what"
            return 1
        fi
        sleep 2
    done
}

# Where the host's node is for containers of the network that all nodes are in, and for this machine.
host_address() { docker inspect -f '{{.NetworkSettings.Networks.kind.IPAddress}}' "$host-control-plane"; }

# With MUSTER_KIND_DRY_RUN nothing is run: commands are printed, what helm is given is rendered with the charts, and files have to be there.
if [ -n "${MUSTER_KIND_DRY_RUN:-}" ]; then
    # shellcheck source=e2e/kind/dry.sh
    source "$root/e2e/kind/dry.sh"
fi
