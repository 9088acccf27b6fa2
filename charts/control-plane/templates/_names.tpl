{{- /* Start of the names of everything that the chart makes. */ -}}
{{- define "muster.fullname" -}}
{{ .Values.fullnameOverride | default .Release.Name }}
{{- end }}

{{- /* What this chart was installed from, with its version: the release workflow notes it in Chart.yaml. */ -}}
{{- define "muster.chart" -}}
{{ index (.Chart.Annotations | default dict) "failover.muster.io/location" | default "charts/control-plane" }}
{{- end }}

{{- /* Value of the label app.kubernetes.io/name of the control plane's own pods. */ -}}
{{- define "muster.name" -}}
{{ .Values.nameOverride | default .Chart.Name }}
{{- end }}

{{- /* Labels of one part: list of the chart's context and the part's name. */ -}}
{{- define "muster.part.labels" -}}
{{- $chart := index . 0 -}}
{{- $labels := dict "helm.sh/chart" (printf "%s-%s" $chart.Chart.Name $chart.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") "app.kubernetes.io/version" $chart.Chart.AppVersion "app.kubernetes.io/managed-by" $chart.Release.Service "app.kubernetes.io/part-of" "muster" -}}
{{- $labels = merge (include "muster.part.selector" . | fromYaml) $labels $chart.Values.commonLabels -}}
{{ toYaml $labels }}
{{- end }}

{{- define "muster.part.selector" -}}
app.kubernetes.io/name: {{ index . 1 }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
{{- end }}

{{- define "muster.labels" -}}
{{ include "muster.part.labels" (list . (include "muster.name" .)) }}
{{- end }}

{{- define "muster.selector" -}}
{{ include "muster.part.selector" (list . (include "muster.name" .)) }}
{{- end }}

{{- /*
An image: list of the chart's context, the image and the tag that it has by default. A digest, which no registry can exchange, is used in
place of the tag. A repository that names a registry keeps it, unless all images come from one (global.imageRegistry).
*/ -}}
{{- define "muster.image" -}}
{{- $image := index . 1 -}}
{{- $registry := (index . 0).Values.global.imageRegistry | default (ternary "" $image.registry (regexMatch "^([^/]*[.:][^/]*|localhost)/" $image.repository)) -}}
{{- if $registry }}{{ trimSuffix "/" $registry }}/{{ end }}{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ get $image "tag" | default (index . 2) }}{{ end }}
{{- end }}

{{- /* The pods' PriorityClass. It has no namespace, so that its own name says whose it is. */ -}}
{{- define "muster.priorityClass" -}}
{{ .Values.priorityClass.name | default (printf "%s-%s" (include "muster.fullname" .) .Release.Namespace | trimSuffix "-") }}
{{- end }}

{{- /* Start of the names of everything that belongs to a bundled fleet API. */ -}}
{{- define "muster.fleet" -}}
{{ include "muster.fullname" . }}-fleet
{{- end }}

{{- /* The Secret with the control plane's kubeconfig of the fleet API. */ -}}
{{- define "muster.fleet.kubeconfig" -}}
{{- if eq .Values.fleetApi.mode "bundled" -}}
{{ include "muster.fleet" . }}-control-plane
{{- else -}}
{{ .Values.fleet.kubeconfigSecret }}
{{- end -}}
{{- end }}

{{- /* The Secret with the serving certificate of a bundled fleet API. */ -}}
{{- define "muster.fleet.serving" -}}
{{ include "muster.fleet" . }}-{{ ternary "serving" "api-tls" (not (empty .Values.fleetApi.certificates.issuerRef)) }}
{{- end }}

{{- /* Not empty where the death of a node is to stop nothing. */ -}}
{{- define "muster.production" -}}
{{- if eq (.Values.fleetApi.profile | default "") "production" }}yes{{ end -}}
{{- end }}

{{- /* Replicas of a part whose values name none: list of the chart's context and that number. */ -}}
{{- define "muster.replicas" -}}
{{ if kindIs "invalid" (index . 1) }}{{ ternary 3 2 (ne (include "muster.production" (index . 0)) "") }}{{ else }}{{ index . 1 }}{{ end }}
{{- end }}

{{- /* Number of members of etcd, which nobody gets without having chosen it; fails with a sentence that says what there is to choose. */ -}}
{{- define "muster.fleet.members" -}}
{{- $profile := .Values.fleetApi.profile -}}
{{- if not $profile -}}
{{- fail "fleetApi.profile is missing: set it to production, for three members of etcd on nodes of their own, so that the death of a node stops nothing; or to trial, for one member of etcd, without whose node nothing is decided and no failover happens (a release that is upgraded takes the one that fits its members)" -}}
{{- end -}}
{{- $members := ternary 3 1 (eq $profile "production") -}}
{{- with .Values.fleetApi.etcd.replicas -}}
{{- if ne (int .) $members -}}
{{- fail (printf "fleetApi.etcd.replicas=%d contradicts fleetApi.profile=%s, which has %d: leave fleetApi.etcd.replicas out, and choose fleetApi.profile=production for 3 members of etcd, trial for 1" (int .) $profile $members) -}}
{{- end -}}
{{- end -}}
{{ $members }}
{{- end }}

{{- /* The members of etcd: list of the chart's context and a format of name and host. */ -}}
{{- define "muster.fleet.etcd" -}}
{{- $chart := index . 0 -}}
{{- $format := index . 1 -}}
{{- $service := printf "%s-etcd" (include "muster.fleet" $chart) -}}
{{- $list := list -}}
{{- range $member := until (include "muster.fleet.members" $chart | int) -}}
{{- $name := printf "%s-%d" $service $member -}}
{{- $host := printf "%s.%s.%s.svc" $name $service $chart.Release.Namespace -}}
{{- $list = append $list ($format | replace "NAME" $name | replace "HOST" $host) -}}
{{- end -}}
{{ join "," $list }}
{{- end }}

{{- /* Where a URL points to: its host and port, without a name, a password and a path. An IPv6 address is in brackets. */ -}}
{{- define "muster.url.authority" -}}
{{- $rest := regexReplaceAll "[/?#].*$" (regexReplaceAll "^[a-z0-9]+://" . "") "" -}}
{{ regexReplaceAll "^.*@" $rest "" }}
{{- end }}

{{- /* The port of a URL: the one that is written in it, or that of its scheme. */ -}}
{{- define "muster.url.port" -}}
{{- $scheme := regexFind "^[a-z0-9]+" . -}}
{{ regexFind ":[0-9]+$" (include "muster.url.authority" .) | trimPrefix ":" | default (get (dict "http" "80" "socks5" "1080") $scheme) | default "443" }}
{{- end }}

{{- /* The host of a URL as certificates name it: an IPv6 address without its brackets. */ -}}
{{- define "muster.url.host" -}}
{{ regexReplaceAll ":[0-9]+$" (include "muster.url.authority" .) "" | trimPrefix "[" | trimSuffix "]" }}
{{- end }}

{{- /* Names of a certificate of cert-manager, which wants IP addresses by themselves: a list of both. */ -}}
{{- define "muster.certificate.names" -}}
{{- $addresses := list -}}
{{- $dns := list -}}
{{- range uniq . -}}
{{- if regexMatch "^([0-9.]+|.*:.*)$" . }}{{ $addresses = append $addresses . }}{{ else }}{{ $dns = append $dns . }}{{ end -}}
{{- end -}}
dnsNames: {{- toYaml $dns | nindent 2 }}
{{- with $addresses }}
ipAddresses: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Seconds of a duration such as 1h30m. */ -}}
{{- define "muster.seconds" -}}
{{- $seconds := 0.0 -}}
{{- range regexFindAll "[0-9.]+[a-z]+" . -1 -}}
{{- $seconds = addf $seconds (mulf (regexFind "^[0-9.]+" . | float64) (get (dict "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0) (regexFind "[a-z]+$" .))) -}}
{{- end -}}
{{ $seconds }}
{{- end }}

{{- /* The name by which members reach a bundled fleet API through an Ingress or a TLSRoute that distinguishes hosts by their names; fails with a sentence that names the value. */ -}}
{{- define "muster.fleet.host" -}}
{{- $host := include "muster.url.host" .Values.fleetApi.address -}}
{{- if regexMatch "^([0-9.]*|.*:.*)$" $host -}}
{{- fail (printf "fleetApi.ingress and fleetApi.tlsRoute distinguish hosts by their names: set fleetApi.address=https://NAME (it is %q)" .Values.fleetApi.address) -}}
{{- end -}}
{{ $host }}
{{- end }}

{{- /* What a bundled fleet API's certificates cannot be; fails with a sentence that names the value. */ -}}
{{- define "muster.fleet.certificates.check" -}}
{{- $api := .Values.fleetApi -}}
{{- $certificates := $api.certificates -}}
{{- $lifetime := include "muster.seconds" $certificates.lifetime | float64 -}}
{{- if lt $lifetime 900.0 -}}
{{- fail (printf "fleetApi.certificates.lifetime is %s: it has to be 15m or longer, for kube-controller-manager reads its certificate every five minutes, and a third of the lifetime is left for that" $certificates.lifetime) -}}
{{- end -}}
{{- if lt (include "muster.seconds" $certificates.authorityLifetime | float64) $lifetime -}}
{{- fail (printf "fleetApi.certificates.authorityLifetime is %s: an authority has to outlive the certificates that it signs (fleetApi.certificates.lifetime is %s)" $certificates.authorityLifetime $certificates.lifetime) -}}
{{- end -}}
{{- if $certificates.issuerRef -}}
{{- if lt $lifetime 3600.0 -}}
{{- fail (printf "fleetApi.certificates.lifetime is %s: with fleetApi.certificates.issuerRef it has to be 1h or longer, for cert-manager issues for no less" $certificates.lifetime) -}}
{{- end -}}
{{- if and (ne $api.service.type "ClusterIP") (not $api.address) (not $certificates.names) -}}
{{- fail (printf "With fleetApi.certificates.issuerRef and fleetApi.service.type=%s the certificate would not have the address by which members reach the fleet API, and they would refuse it: set fleetApi.address=https://NAME:PORT, or put the address into fleetApi.certificates.names" $api.service.type) -}}
{{- end -}}
{{- end -}}
{{- end }}
