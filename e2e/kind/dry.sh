# The tools of a dry run: they print what they would be asked, and answer as far as the scripts need it. Sourced by common.sh.
# shellcheck shell=bash disable=SC2154

printed() { { printf '+'; printf ' %q' "$@"; printf '\n'; } >&2; }

# Every file that is named has to be there.
files_are_there() {
    while [ $# -gt 0 ]; do
        if [ "$1" = -f ] && [ "${2:--}" != - ] && [ ! -e "$2" ]; then
            say "no file $2"
            exit 1
        fi
        shift
    done
}

kind() {
    printed kind "$@"
    case "$*" in
    *create*) files_are_there "${@/#--config/-f}" ;;
    "get nodes"*) echo node-of-the-member ;;
    esac
}

docker() {
    printed docker "$@"
    case "$1" in
    inspect) echo 192.0.2.10 ;;
    create) echo container ;;
    cp) : ;;
    esac
}

openssl() { printed openssl "$@"; }

kubectl() {
    printed kubectl "$@"
    files_are_there "$@"
    case "$*" in
    *"--from-file=kubeconfig=/dev/stdin"*) cat >/dev/null ;;
    *" -f -") grep -A 1 'clusterNames:' >&2 || true ;;
    *"token create"*"--print-helm-command"*)
        local words="$*"
        words=${words#*--cluster-name }
        printf 'helm upgrade --install muster-agent charts/agent --namespace %s --create-namespace \\\n  --set clusterName=%s \\\n' "$namespace" "${words%% *}"
        printf '  --set fleet.server=https://192.0.2.10:30443 \\\n  --set fleet.token=abcdef.0123456789abcdef \\\n  --set fleet.caData=LS0tLS1CRUdJTg== \\\n  --set "fleet.caHash={sha256:%064d}"\n' 0
        ;;
    *".data.kubeconfig"*) printf 'apiVersion: v1\nkind: Config\n' | base64 ;;
    esac
}

# Renders the chart with the values of the command; what the schema refuses, or a template, ends the dry run.
helm() {
    printed helm "$@"
    "$root/.ci/tool" python e2e/kind/dry.py "$@"
}
