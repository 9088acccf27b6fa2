{{- /*
What Helm can know before it installs anything: whether the volumes of a bundled fleet API will be made. Included by NOTES.txt, so that it
changes no object: `helm template`, Argo CD and Flux's dry runs see no cluster and skip it. Off with preflight=false.
*/ -}}
{{- define "muster.preflight" -}}
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
{{- if or $etcd.snapshots.schedule $etcd.restore -}}
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
