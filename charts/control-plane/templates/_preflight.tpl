{{- /*
What Helm can know before it installs or upgrades anything: whether the volumes of a bundled fleet API will be made, whether its store would be split or left behind, and whether the API would refuse a part of an upgrade.
Included by NOTES.txt, so that it changes no object: `helm template`, Argo CD and Flux's dry runs see no cluster and skip it; there the pods of etcd
refuse to start (check-etcd-member). Off with preflight=false.
*/ -}}
{{- define "muster.preflight" -}}
{{- include "muster.preflight.members" . -}}
{{- include "muster.preflight.names" . -}}
{{- include "muster.preflight.store" . -}}
{{- include "muster.preflight.snapshots" . -}}
{{- include "muster.preflight.priority" . -}}
{{- include "muster.preflight.service" . -}}
{{- include "muster.preflight.issuer" . -}}
{{- if and .Values.preflight .Release.IsInstall (eq .Values.fleetApi.mode "bundled") -}}
{{- $etcd := .Values.fleetApi.etcd -}}
{{- $name := printf "%s-etcd" (include "muster.fleet" .) -}}
{{- $classes := lookup "storage.k8s.io/v1" "StorageClass" "" "" -}}
{{- if hasKey $classes "items" -}}
{{- $names := list -}}
{{- $default := "" -}}
{{- range $classes.items -}}
{{- $names = append $names .metadata.name -}}
{{- if eq (dig "metadata" "annotations" "storageclass.kubernetes.io/is-default-class" "" .) "true" }}{{ $default = .metadata.name }}{{ end -}}
{{- end -}}
{{- $there := printf "there are: %s" (join ", " $names | default "none") -}}
{{- $wanted := dict "fleetApi.etcd.storage.className" (dict "class" $etcd.storage.className "claim" (printf "data-%s-0" $name)) -}}
{{- if include "muster.fleet.keeps" . -}}
{{- $_ := set $wanted "fleetApi.etcd.snapshots.className" (dict "class" $etcd.snapshots.className "claim" (printf "%s-snapshots" $name)) -}}
{{- end -}}
{{- range $value, $each := $wanted -}}
{{- /* A volume that an earlier installation left is used again. */ -}}
{{- if not (lookup "v1" "PersistentVolumeClaim" $.Release.Namespace $each.claim) -}}
{{- if and (not $each.class) (not $default) -}}
{{- fail (printf "\n\nThe fleet API keeps its state on volumes, and this cluster has no default StorageClass: set %s (%s).\n" $value $there) -}}
{{- else if and $each.class (not (has $each.class $names)) -}}
{{- fail (printf "\n\nThis cluster has no StorageClass %q: set %s to another one (%s), or preflight=false for volumes that you have made by hand.\n" $each.class $value $there) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- /* Members of etcd that have data are as many as the values want, or the values restore a snapshot into all of them. */ -}}
{{- define "muster.preflight.members" -}}
{{- if and .Values.preflight (eq .Values.fleetApi.mode "bundled") (not .Values.fleetApi.etcd.restore) -}}
{{- $name := printf "%s-etcd" (include "muster.fleet" .) -}}
{{- $wanted := include "muster.fleet.members" . | int -}}
{{- $members := dig "spec" "replicas" 0 (lookup "apps/v1" "StatefulSet" .Release.Namespace $name) | int -}}
{{- /* None runs: those whose volumes are there, also those of an earlier installation. */ -}}
{{- if not $members -}}
{{- range $member := until 3 -}}
{{- if lookup "v1" "PersistentVolumeClaim" $.Release.Namespace (printf "data-%s-%d" $name $member) }}{{ $members = add1 $member | int }}{{ end -}}
{{- end -}}
{{- end -}}
{{- if and $members (ne $members $wanted) -}}
{{- fail (printf "\n\nThe fleet API's etcd has %d member(s) with data, and fleetApi.profile=%s, which has %d, would not change that: further members begin with an empty store, and a store that lacks members does not answer. Keep the number with --set fleetApi.profile=%s; or restore a snapshot into %d member(s), as .github/FLEET_API.md says (fleetApi.etcd.restore).\n" $members .Values.fleetApi.profile $wanted (ternary "trial" "production" (eq $members 1)) $wanted) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- /*
A release keeps the names by which it was installed: by others it would be another, empty fleet, with authorities that no member trusts, and the objects that Helm changes before the Deployments, such
as the Service of admission, would select no running pod.
*/ -}}
{{- define "muster.preflight.names" -}}
{{- if and .Values.preflight .Release.IsUpgrade -}}
{{- $own := include "muster.name" . -}}
{{- $was := dig "spec" "selector" "matchLabels" "app.kubernetes.io/name" $own (lookup "apps/v1" "Deployment" .Release.Namespace (include "muster.fullname" .)) -}}
{{- if ne $was $own -}}
{{- fail (printf "\n\nnameOverride is fixed at installation: Deployment %s selects its pods by the name %s, and Kubernetes does not change the selector of a Deployment. Set nameOverride=%s.\n" (include "muster.fullname" .) $was $was) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.preflight .Release.IsUpgrade (eq .Values.fleetApi.mode "bundled") -}}
{{- $name := printf "%s-etcd" (include "muster.fleet" .) -}}
{{- $stores := lookup "apps/v1" "StatefulSet" .Release.Namespace "" -}}
{{- range get $stores "items" | default list -}}
{{- if and (hasSuffix "-fleet-etcd" .metadata.name) (ne .metadata.name $name) (eq (dig "metadata" "labels" "app.kubernetes.io/instance" "" .) $.Release.Name) -}}
{{- fail (printf "\n\nfullnameOverride is fixed at installation: this release keeps its fleet in %s, and would begin another, empty one in %s. Set fullnameOverride=%s.\n" .metadata.name $name (trimSuffix "-fleet-etcd" .metadata.name)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- /* Kubernetes changes no claim that a StatefulSet makes. */ -}}
{{- define "muster.preflight.store" -}}
{{- if and .Values.preflight (eq .Values.fleetApi.mode "bundled") -}}
{{- $name := printf "%s-etcd" (include "muster.fleet" .) -}}
{{- $wanted := .Values.fleetApi.etcd.storage -}}
{{- $wantedClass := $wanted.className | default "" -}}
{{- range dig "spec" "volumeClaimTemplates" list (lookup "apps/v1" "StatefulSet" .Release.Namespace $name) -}}
{{- $class := dig "spec" "storageClassName" "" . -}}
{{- $size := dig "spec" "resources" "requests" "storage" "" . -}}
{{- $other := "" -}}
{{- if ne $class $wantedClass -}}
{{- $other = printf "className=%s: %s is there with %s" $wantedClass $name ($class | default "none") -}}
{{- else if and $size (ne (include "muster.bytes" $wanted.size) (include "muster.bytes" $size)) -}}
{{- $other = printf "size=%s: %s is there with %s" $wanted.size $name $size -}}
{{- end -}}
{{- if $other -}}
{{- fail (printf "\n\nfleetApi.etcd.storage.%s, and Kubernetes changes that of no StatefulSet. Keep it; or make the volumes larger, or others, as .github/FLEET_API.md says (The volumes of etcd).\n" $other) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- /*
Kubernetes changes neither mode nor class of a claim, and makes none smaller, except where an expansion failed: down to more than the volume has (since 1.32). A class that the cluster chose stays
when none is wanted.
*/ -}}
{{- define "muster.preflight.snapshots" -}}
{{- if and .Values.preflight (eq .Values.fleetApi.mode "bundled") (include "muster.fleet.keeps" .) -}}
{{- $name := printf "%s-etcd-snapshots" (include "muster.fleet" .) -}}
{{- $wanted := .Values.fleetApi.etcd.snapshots -}}
{{- $claim := lookup "v1" "PersistentVolumeClaim" .Release.Namespace $name -}}
{{- $modes := dig "spec" "accessModes" list $claim -}}
{{- $class := dig "spec" "storageClassName" "" $claim -}}
{{- $size := dig "spec" "resources" "requests" "storage" "" $claim -}}
{{- $has := dig "status" "capacity" "storage" "" $claim -}}
{{- $wantedClass := $wanted.className | default "" -}}
{{- $isChosen := ne $wantedClass "" -}}
{{- range dig "metadata" "managedFields" list $claim -}}
{{- if and $.Release.IsUpgrade (ne .manager "kube-controller-manager") (hasKey (dig "fieldsV1" "f:spec" dict .) "f:storageClassName") }}{{ $isChosen = true }}{{ end -}}
{{- end -}}
{{- $bytes := include "muster.bytes" $wanted.size | float64 -}}
{{- $shrinks := and $has (semverCompare ">=1.32-0" .Capabilities.KubeVersion.Version) (gt $bytes (include "muster.bytes" $has | float64)) -}}
{{- $other := "" -}}
{{- if and $modes (not (has $wanted.accessMode $modes)) -}}
{{- $other = printf "accessMode=%s: the claim %s is there with %s" $wanted.accessMode $name (join ", " $modes) -}}
{{- else if and $class $isChosen (ne $class $wantedClass) -}}
{{- $other = printf "className=%s: the claim %s is there with %s" $wantedClass $name $class -}}
{{- else if and $size (not $shrinks) (lt $bytes (include "muster.bytes" $size | float64)) -}}
{{- $other = printf "size=%s: the claim %s is there with %s" $wanted.size $name $size -}}
{{- end -}}
{{- if $other -}}
{{- fail (printf "\n\nfleetApi.etcd.snapshots.%s, which Kubernetes does not change to that. Keep it; or copy the snapshots elsewhere and delete the claim first.\n" $other) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- /* The number of a quantity. */ -}}
{{- define "muster.bytes" -}}
{{- $unit := regexFind "[A-Za-z]*$" . -}}
{{- $decimal := dict "" 1.0 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 -}}
{{- $binary := dict "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 "Pi" 1125899906842624.0 "Ei" 1152921504606846976.0 -}}
{{- mulf (trimSuffix $unit . | float64) (get (merge $decimal $binary) $unit) -}}
{{- end }}

{{- /* Kubernetes changes the value of no PriorityClass. */ -}}
{{- define "muster.preflight.priority" -}}
{{- if and .Values.preflight .Release.IsUpgrade (not .Values.priorityClass.name) -}}
{{- $name := include "muster.priorityClass" . -}}
{{- $class := lookup "scheduling.k8s.io/v1" "PriorityClass" "" $name -}}
{{- $wanted := int64 .Values.priorityClass.value -}}
{{- if and $class (ne (int64 $class.value) $wanted) -}}
{{- fail (printf "\n\npriorityClass.value=%d: the class %s is there with %d, and Kubernetes changes that of no class. Keep it; or run `kubectl delete priorityclass %s` first: pods that run keep theirs.\n" $wanted $name (int64 $class.value) $name) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- /*
Kubernetes does not change the class of a load balancer, nor give one to a load balancer that has none. A class that the chart did not write stays when none is wanted: AWS's controller sets one by
admission, and no field manager owns it. The field manager of the chart is the one that owns the selector as well.
*/ -}}
{{- define "muster.preflight.service" -}}
{{- if and .Values.preflight .Release.IsUpgrade (eq .Values.fleetApi.mode "bundled") (eq .Values.fleetApi.service.type "LoadBalancer") -}}
{{- $name := printf "%s-api" (include "muster.fleet" .) -}}
{{- $service := lookup "v1" "Service" .Release.Namespace $name -}}
{{- $class := dig "spec" "loadBalancerClass" "" $service -}}
{{- $wanted := .Values.fleetApi.service.loadBalancerClass | default "" -}}
{{- $isChosen := ne $wanted "" -}}
{{- range dig "metadata" "managedFields" list $service -}}
{{- $fields := dig "fieldsV1" "f:spec" dict . -}}
{{- if and (hasKey $fields "f:loadBalancerClass") (hasKey $fields "f:selector") }}{{ $isChosen = true }}{{ end -}}
{{- end -}}
{{- if and $isChosen (eq (dig "spec" "type" "" $service) "LoadBalancer") (ne $class $wanted) -}}
{{- fail (printf "\n\nfleetApi.service.loadBalancerClass=%s: the Service %s is there with %s, and Kubernetes does not change the class of a load balancer. Keep it; or upgrade with fleetApi.service.type=ClusterIP first, which gives its address up.\n" ($wanted | default "none") $name ($class | default "none")) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- /* Tokens of service accounts name their issuer. The API server issues them under the first one of its command, and accepts those of all. */ -}}
{{- define "muster.preflight.issuer" -}}
{{- if and .Values.preflight .Release.IsUpgrade (eq .Values.fleetApi.mode "bundled") -}}
{{- $api := .Values.fleetApi -}}
{{- $flag := "--service-account-issuer=" -}}
{{- $was := "" -}}
{{- range dig "spec" "template" "spec" "containers" list (lookup "apps/v1" "Deployment" .Release.Namespace (printf "%s-api" (include "muster.fleet" .))) -}}
{{- range .command -}}
{{- if and (not $was) (hasPrefix $flag .) }}{{ $was = . }}{{ end -}}
{{- end -}}
{{- end -}}
{{- $accepted := append $api.apiServer.extraArgs (printf "%shttps://kubernetes.default.svc.%s" $flag $api.clusterDomain) -}}
{{- if and $was (not (has $was $accepted)) -}}
{{- fail (printf "\n\nfleetApi.clusterDomain=%s: the fleet API would refuse the tokens of service accounts that it has issued, for it knows them by %s. Keep the domain; or have them accepted, too: --set 'fleetApi.apiServer.extraArgs={%s}'.\n" $api.clusterDomain (trimPrefix $flag $was) $was) -}}
{{- end -}}
{{- end -}}
{{- end }}
